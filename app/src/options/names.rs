//! Options and commands by name, and sentences that name them. What a sentence quotes beside them, as a
//! file's name, stays as it is: a front writes its own names, and never looks for them in text.

use std::fmt::{self, Display, Formatter};

/// Who tells a sentence, and so has names of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front {
    /// `--timing-only`, `vta quantize`.
    CommandLine,
    /// `timing_only`, `pyvta.quantize`.
    Python,
    /// `timing_only`, as C has it; commands are those of the command line.
    Library,
}

/// An option, or a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Option,
    Command,
    /// A command that Python has no function for.
    Tool,
}

/// A constant for each, and lists of them.
macro_rules! names {
    ($($list:ident $doc:literal $kind:ident: $($NAME:ident = $name:literal)+;)+) => {$(
        $(
            #[doc = concat!("`", $name, "`.")]
            pub const $NAME: Name = Name { name: $name, kind: Kind::$kind };
        )+
        #[doc = $doc]
        pub const $list: &[Name] = &[$($NAME),+];
    )+};
}

names! {
    OPTIONS "Every option." Option:
        AGAINST = "against"
        ALLOW_HOST = "allow_host"
        AREA = "area"
        BATCH = "batch"
        BITSTREAM = "bitstream"
        BOARD = "board"
        CALIBRATION = "calibration"
        CANDIDATES = "candidates"
        CONFIG = "config"
        COSTS = "costs"
        DEVICE = "device"
        FLAT = "flat"
        HELD_OUT = "held_out"
        HOST_SPEED = "host_speed"
        INPUT = "input"
        INPUT_SHAPE = "input_shape"
        INT4 = "int4"
        KEEP_FLOAT = "keep_float"
        LIMIT_BYTES = "limit_bytes"
        LIMIT_CYCLES = "limit_cycles"
        LIMIT_STEPS = "limit_steps"
        LISTING = "listing"
        MEAN = "mean"
        OBJECTIVE = "objective"
        OUTPUT = "output"
        PICTURE = "picture"
        PLACEMENT = "placement"
        POINTS = "points"
        PREPROCESS = "preprocess"
        REFERENCE = "reference"
        REPORT = "report"
        REQUANT = "requant"
        SCALE = "scale"
        SCOPE = "scope"
        SEARCHES = "searches"
        SHARD = "shard"
        STD = "std"
        TARGET = "target"
        THREADS = "threads"
        TILES = "tiles"
        TIMING = "timing"
        TIMING_ONLY = "timing_only"
        TOP = "top"
        TRACE = "trace"
        VARY = "vary"
        VERIFY = "verify"
        WAVE = "wave";
    COMMANDS "Commands that Python has as functions." Command:
        CHECK = "check"
        MODELS = "models"
        QUANTIZE = "quantize"
        TUNE = "tune";
    TOOLS "Commands that only the command line has." Tool:
        EXEC = "exec";
}

impl Name {
    /// The bare word, as one writes it in code.
    pub fn bare(self, front: Front) -> &'static str {
        match front {
            // It may give the shapes of several.
            Front::Python if self == INPUT_SHAPE => "input_shapes",
            _ => self.name,
        }
    }

    /// As it stands in a sentence of that front.
    pub fn to(self, front: Front) -> String {
        let bare = self.bare(front);
        match (front, self.kind) {
            (Front::CommandLine, Kind::Option) => format!("--{}", bare.replace('_', "-")),
            (Front::CommandLine, _) => format!("vta {bare}"),
            (Front::Python, Kind::Command) => format!("`pyvta.{bare}`"),
            (_, Kind::Option) => format!("`{bare}`"),
            (_, _) => format!("`vta {bare}`"),
        }
    }
}

/// Some of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Words, and what they quote.
    Text(String),
    /// An option or a command.
    Name(Name),
}

impl From<&Name> for Piece {
    fn from(name: &Name) -> Self {
        Self::Name(*name)
    }
}

impl<T: Display + ?Sized> From<&T> for Piece {
    fn from(text: &T) -> Self {
        Self::Text(text.to_string())
    }
}

/// A sentence that may name options and commands. Displayed as [`Front::Library`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said(Vec<Piece>);

impl Said {
    /// Words with as many `{}` as there are pieces, which stand there.
    pub(crate) fn new<const N: usize>(words: &str, pieces: [Piece; N]) -> Self {
        let mut all = Vec::with_capacity(2 * N + 1);
        let mut pieces = pieces.into_iter();
        for text in words.split("{}") {
            all.push(text.into());
            all.extend(pieces.next());
        }
        Self(all)
    }

    /// In the words of a front.
    pub fn to(&self, front: Front) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Name(name) => name.to(front),
        });
        pieces.collect()
    }

    /// Puts words in front.
    pub(crate) fn begin(&mut self, text: String) {
        self.0.insert(0, Piece::Text(text));
    }
}

impl<T: AsRef<str>> From<T> for Said {
    fn from(text: T) -> Self {
        Self(vec![text.as_ref().into()])
    }
}

impl Display for Said {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to(Front::Library))
    }
}

/// A [`Said`] of what `format!` takes, or of words with a `{}` for each name or value that stands behind a
/// semicolon: only there may names of options be.
macro_rules! said {
    ($words:literal; $($piece:expr),+ $(,)?) => {{
        const { $crate::options::names::count($words, [$(stringify!($piece)),+].len()) };
        $crate::options::names::Said::new($words, [$((&$piece).into()),+])
    }};
    ($($text:tt)+) => {
        $crate::options::names::Said::from(format!($($text)+))
    };
}

/// Fails to compile where words haven't as many `{}` as there are pieces.
pub(crate) const fn count(words: &str, pieces: usize) {
    let (words, mut at, mut found) = (words.as_bytes(), 1, 0);
    while at < words.len() {
        if words[at - 1] == b'{' && words[at] == b'}' {
            found += 1;
        }
        at += 1;
    }
    assert!(found == pieces);
}

pub(crate) use said;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_has_names_of_its_own_and_text_stays_as_it_is() {
        let file = "`top`.onnx";
        let text = said!("{}: {} or {}, {}, {}"; file, TIMING_ONLY, INPUT_SHAPE, QUANTIZE, EXEC);
        for (front, told) in [
            (
                Front::CommandLine,
                "`top`.onnx: --timing-only or --input-shape, vta quantize, vta exec",
            ),
            (
                Front::Python,
                "`top`.onnx: `timing_only` or `input_shapes`, `pyvta.quantize`, `vta exec`",
            ),
            (
                Front::Library,
                "`top`.onnx: `timing_only` or `input_shape`, `vta quantize`, `vta exec`",
            ),
        ] {
            assert_eq!(text.to(front), told);
        }
    }
}
