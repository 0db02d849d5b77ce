//! An open design: its library, its thread, its runs.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use vta_driver::{DeviceMemory, PhysAddr};

use crate::RtlError;
use crate::abort;
use crate::host::Host;
use crate::library::{Context, Library};
use crate::plant::Ran;

/// How long a design may take to leave.
const LEAVING: Duration = Duration::from_secs(2);

/// Libraries that are open: each holds one design, since the interface's functions name none.
static OPEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// How a design is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the library shall write a waveform.
    pub wave: Option<PathBuf>,
    /// Clocks of a run at most, where that is fewer than [`most_clocks`](crate::most_clocks).
    pub max_clocks: Option<u64>,
    /// How long no clock may pass in a run.
    pub silence: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wave: None,
            max_clocks: None,
            silence: Duration::from_secs(10),
        }
    }
}

/// An open design. Dropping it tells the design to leave and unloads the library; one that doesn't leave
/// stays loaded.
pub struct Rtl {
    context: Arc<Context>,
    /// Both missing while it is dropped.
    library: Option<Library>,
    thread: Option<JoinHandle<()>>,
    claim: Option<Claim>,
    silence: Duration,
    broken: Option<String>,
}

/// A library that nobody else may open.
struct Claim(PathBuf);

impl Claim {
    fn on(path: &Path) -> Result<Self, RtlError> {
        let whole = path.canonicalize();
        let whole = whole.map_err(|error| RtlError::library(path, error))?;
        if open().insert(whole.clone()) {
            Ok(Self(whole))
        } else {
            let reason = "it is open already: a library holds one design";
            Err(RtlError::library(path, reason))
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        open().remove(&self.0);
    }
}

fn open() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rtl {
    /// Loads a library and starts its design, which waits.
    ///
    /// # Errors
    /// A file that is no such library, one that is open already, a waveform that it can't write.
    pub fn open(path: &Path, options: &Options) -> Result<Self, RtlError> {
        machine(path)?;
        let claim = Claim::on(path)?;
        // The loader looks for a bare name elsewhere.
        let library = Library::load(&claim.0)?;
        let context = library.init();
        if let Some(wave) = &options.wave {
            trace(&library, path, wave)?;
        }
        let (sim, shared) = (library.sim(), Arc::clone(&context));
        let work = move || {
            abort::caught(&shared.plant.aborted);
            let (code, why) = sim();
            shared.plant.left(code, why);
        };
        let thread = std::thread::Builder::new()
            .name("rtl".to_owned())
            .spawn(work);
        let thread = thread.map_err(|error| RtlError::Thread {
            reason: error.to_string(),
        })?;
        Ok(Self {
            context,
            library: Some(library),
            thread: Some(thread),
            claim: Some(claim),
            silence: options.silence,
            broken: None,
        })
    }

    /// Runs instructions that lie in memory, of which FINISH is the last.
    ///
    /// # Errors
    /// As [`RtlError`] says. After one the design isn't run again.
    pub fn run(
        &mut self,
        insn_addr: PhysAddr,
        insns: usize,
        memory: &mut DeviceMemory,
        max_clocks: u64,
    ) -> Result<Ran, RtlError> {
        if let Some(broken) = &self.broken {
            return Err(RtlError::Broken(broken.clone()));
        }
        let count = u32::try_from(insns);
        let count = count.map_err(|_| RtlError::Misbehaved(format!("{insns} instructions")))?;
        let (host, plant) = (Host::launch(insn_addr.0, count), &self.context.plant);
        let ran = plant.run(host, memory, max_clocks, self.silence);
        ran.inspect_err(|error| self.broken = Some(error.to_string()))
    }
}

impl Drop for Rtl {
    fn drop(&mut self) {
        let (leaves, aborted) = (
            self.context.plant.leave(LEAVING),
            self.context.plant.aborted.load(Ordering::Acquire),
        );
        if leaves && !aborted {
            // It has nothing left to do but end.
            let _ = self.thread.take().map(JoinHandle::join);
            return;
        }
        // Its thread is in the library's code: neither may go.
        tracing::warn!("the design doesn't leave; its library stays loaded");
        std::mem::forget((self.library.take(), self.claim.take()));
    }
}

/// Asks for a waveform.
fn trace(library: &Library, path: &Path, wave: &Path) -> Result<(), RtlError> {
    let name = CString::new(wave.as_os_str().as_encoded_bytes());
    let name = name.map_err(|error| RtlError::library(wave, error))?;
    match library.trace(&name) {
        Some(0) => Ok(()),
        Some(code) => Err(RtlError::library(
            path,
            format_args!(
                "it can't write the waveform {}: VTADPITrace gave {code}",
                wave.display()
            ),
        )),
        None => {
            let reason = "it has no VTADPITrace: it writes no waveform";
            Err(RtlError::library(path, reason))
        }
    }
}

/// Whether a file is a library for this machine, where libraries are ELF files; the loader's own words for
/// that are few.
fn machine(path: &Path) -> Result<(), RtlError> {
    use std::io::Read;
    const MACHINES: [(&str, u16); 3] = [("x86_64", 62), ("aarch64", 183), ("riscv", 243)];
    let foreign = |reason: String| {
        let reason = format_args!("no library of this machine: {reason}");
        Err(RtlError::library(path, reason))
    };
    let unreadable = |error| RtlError::library(path, error);
    let kind = path.metadata().map_err(unreadable)?;
    if !kind.is_file() {
        // A FIFO would wait for whoever writes it.
        return foreign("it is no regular file".to_owned());
    }
    let mut head = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let read = file.take(20).read_to_end(&mut head);
    read.map_err(unreadable)?;
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let Ok(head) = <[u8; 20]>::try_from(head) else {
        return foreign("it is no ELF file".to_owned());
    };
    let (arch, machine) = (
        std::env::consts::ARCH,
        u16::from_le_bytes([head[18], head[19]]),
    );
    let own = MACHINES.iter().find(|(name, _)| *name == arch);
    match own {
        _ if !head.starts_with(b"\x7fELF") => foreign("it is no ELF file".to_owned()),
        Some(_) if head[4] != 2 => foreign("it is for 32 bits".to_owned()),
        Some((_, own)) if *own != machine => {
            let name = MACHINES.iter().find(|(_, other)| *other == machine);
            let name = name.map_or_else(|| format!("ELF machine {machine}"), |m| m.0.to_owned());
            foreign(format!("it is for {name}, this is {arch}"))
        }
        _ => Ok(()),
    }
}
