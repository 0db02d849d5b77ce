//! Memory that a model, an image or a configuration asks for, before it is taken.
//!
//! An allocation that fails ends a Rust process. So the work whose size a file or an argument
//! decides asks here first whether there is room for the whole of it, and ends in an error that says
//! what there is no room for. That is an estimate: what is beyond it, the process must survive some
//! other way.

use std::hint::black_box;

use crate::error::{Error, Result};

/// What any work takes beside the data that it is asked for: stacks, small objects.
const MARGIN: u64 = 32 << 20;

/// Bytes of a network while it is compiled and run, for each of its weights: as the model has them, packed, and
/// in the device's memory; measured for the networks of the zoo.
pub(crate) const PER_WEIGHT: u64 = 5;

/// Sees whether the system has room for so many bytes more, which are given back at once.
///
/// # Errors
/// [`Error::Memory`], when an address space or a container that is limited hasn't.
pub fn ask(bytes: u64, what: impl FnOnce() -> String) -> Result<()> {
    let wanted = bytes.saturating_add(MARGIN);
    // What isn't written to takes addresses, no memory: a container's limit wouldn't be seen.
    let within = container().is_none_or(|limit| wanted <= limit);
    if within && had(wanted) {
        return Ok(());
    }
    Err(Error::Memory {
        what: what(),
        bytes: wanted,
    })
}

fn had(bytes: u64) -> bool {
    let mut room: Vec<u8> = Vec::new();
    let reserved = usize::try_from(bytes).is_ok_and(|n| room.try_reserve_exact(n).is_ok());
    // Room that nobody looks at needn't be taken, as far as a compiler can see.
    black_box(&mut room);
    reserved
}

/// The memory that this process's control group may take, if it is limited.
#[cfg(target_os = "linux")]
fn container() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let read = |path: String| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    let limits = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next()?, fields.next()?) {
            ("", group) => read(format!("/sys/fs/cgroup{group}/memory.max")),
            (kinds, group) if kinds.split(',').any(|kind| kind == "memory") => read(format!(
                "/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"
            )),
            _ => None,
        }
    });
    limits.min()
}

#[cfg(not(target_os = "linux"))]
fn container() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_an_error_that_says_how_much() {
        assert!(ask(1 << 20, || unreachable!()).is_ok());
        for bytes in [1 << 50, u64::MAX] {
            let error = ask(bytes, || "a layer".to_owned()).unwrap_err().to_string();
            assert!(error.starts_with("a layer takes about "), "{error}");
            assert!(error.ends_with(" MiB of memory, which the system hasn't"));
        }
    }
}
