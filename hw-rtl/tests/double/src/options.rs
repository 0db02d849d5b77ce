//! What the environment variable `VTA_RTL_DOUBLE` says: words with commas between.

use vta_sim::cycle::TimingConfig;

/// The variable.
pub const VARIABLE: &str = "VTA_RTL_DOUBLE";

/// How the double behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose cycles it takes: `timing=de10`; `pynq` where nothing is said.
    pub timing: TimingConfig,
    /// What it does wrong.
    pub fault: Fault,
}

/// What a double does wrong. Of faults that a design has for good it says on standard error, once, which instruction
/// was the first at fault. Instructions are counted in its first run; in later ones the same instruction
/// is meant, wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// `byte=N`: instruction N computes, loads or stores a wrong value.
    Byte(usize),
    /// `late=N`: instruction N takes some cycles too long.
    Late(usize),
    /// `shift`: the ALU's right shift is logical.
    Shift,
    /// `drop`: the last beat of each burst that is written isn't.
    Drop,
    /// `early`: every LOAD gives its token a cycle early.
    Early,
    /// `burst=N`: in each run the Nth burst of a LOAD is corrupted.
    Burst(usize),
    /// `hang`: no run finishes.
    Hang,
    /// `freeze`: the clock stops in the first run.
    Freeze,
    /// `leave`: `VTADPISim` returns in the first run.
    Leave,
    /// `address`: it reads where nothing is allocated.
    Address,
}

impl Options {
    /// Reads a value of the variable.
    ///
    /// # Errors
    /// A word that isn't known.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self {
            timing: TimingConfig::pynq(),
            fault: Fault::None,
        };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let index = || value.parse().map_err(|_| format!("{VARIABLE}: {word}"));
            match (name, value) {
                ("timing", "pynq") => options.timing = TimingConfig::pynq(),
                ("timing", "de10") => options.timing = TimingConfig::de10(),
                ("byte", _) => options.fault = Fault::Byte(index()?),
                ("late", _) => options.fault = Fault::Late(index()?),
                ("shift", "") => options.fault = Fault::Shift,
                ("drop", "") => options.fault = Fault::Drop,
                ("early", "") => options.fault = Fault::Early,
                ("burst", _) => options.fault = Fault::Burst(index()?),
                ("hang", "") => options.fault = Fault::Hang,
                ("freeze", "") => options.fault = Fault::Freeze,
                ("leave", "") => options.fault = Fault::Leave,
                ("address", "") => options.fault = Fault::Address,
                _ => return Err(format!("{VARIABLE}: {word}")),
            }
        }
        Ok(options)
    }
}
