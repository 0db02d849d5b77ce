//! How the host learns that a run has ended.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::BoardError;

/// An interrupt of a UIO device.
pub struct Interrupt {
    path: PathBuf,
    file: File,
}

impl Interrupt {
    /// Opens `/dev/uioN`.
    ///
    /// # Errors
    /// A file that can't be opened.
    pub fn open(path: &Path) -> Result<Self, BoardError> {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(BoardError::io(path, "can't be opened"))?;
        Ok(Self::of(path, file))
    }

    /// One that is open: 4 bytes written enable it, 4 bytes read are how often it came.
    pub fn of(path: &Path, file: File) -> Self {
        let path = path.to_owned();
        Self { path, file }
    }

    /// Lets the next interrupt through.
    ///
    /// # Errors
    /// A kernel that refuses.
    pub fn enable(&mut self) -> Result<(), BoardError> {
        let written = self.file.write_all(&1u32.to_ne_bytes());
        written.map_err(BoardError::io(&self.path, "the interrupt can't be enabled"))
    }

    /// Whether it came until a moment.
    ///
    /// # Errors
    /// A kernel that refuses.
    pub fn wait(&mut self, until: Instant) -> Result<bool, BoardError> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let time = Timespec::try_from(left.min(Duration::from_secs(3600)));
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut fds, time.ok().as_ref()) {
                Ok(0) if Instant::now() >= until => return Ok(false),
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => {
                    return Err(BoardError::io(&self.path, "can't be waited for")(
                        error.into(),
                    ));
                }
            }
        }
        let mut count = [0; 4];
        let read = self.file.read_exact(&mut count);
        read.map_err(BoardError::io(&self.path, "the interrupt can't be read"))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_interrupt_is_waited_for_until_a_moment() {
        let (ours, mut kernel) = UnixStream::pair().unwrap();
        let mut interrupt = Interrupt::of(Path::new("uio"), File::from(OwnedFd::from(ours)));
        let soon = || Instant::now() + Duration::from_millis(20);
        assert!(!interrupt.wait(soon()).unwrap());
        interrupt.enable().unwrap();
        let mut enabled = [0; 4];
        kernel.read_exact(&mut enabled).unwrap();
        assert_eq!(u32::from_ne_bytes(enabled), 1);
        kernel.write_all(&7u32.to_ne_bytes()).unwrap();
        assert!(
            interrupt
                .wait(Instant::now() + Duration::from_secs(60))
                .unwrap()
        );
        assert!(!interrupt.wait(soon()).unwrap());
        drop(kernel);
        let gone = interrupt.wait(soon()).unwrap_err().to_string();
        assert!(
            gone.starts_with("uio: the interrupt can't be read"),
            "{gone}"
        );
    }
}
