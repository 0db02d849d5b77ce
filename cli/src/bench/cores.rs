//! Measurements that stay on one core.

/// Does `work` on one core, the `nth` of those that this process may use; threads that it starts
/// stay there, too. So what one thread takes doesn't depend on when the system moves it, or the
/// thread of its device, away from its caches. Where cores can't be chosen, it is done anywhere.
pub fn on_core<T>(nth: usize, work: impl FnOnce() -> T) -> T {
    let before = choose(nth);
    let done = work();
    restore(before);
    done
}

#[cfg(target_os = "linux")]
type Cores = Option<rustix::thread::CpuSet>;

/// Keeps this thread on one core; the cores that it could use before, if that is possible.
#[cfg(target_os = "linux")]
fn choose(nth: usize) -> Cores {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let before = sched_getaffinity(None).ok()?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core));
    let mut one = CpuSet::new();
    one.set(usable.nth(nth)?);
    sched_setaffinity(None, &one).ok()?;
    Some(before)
}

#[cfg(target_os = "linux")]
fn restore(before: Cores) {
    if let Some(cores) = before {
        // The cores were this thread's before; if they were taken since, one is enough.
        let _ = rustix::thread::sched_setaffinity(None, &cores);
    }
}

#[cfg(not(target_os = "linux"))]
fn choose(_: usize) {}

#[cfg(not(target_os = "linux"))]
fn restore(_: ()) {}

#[cfg(test)]
mod tests {
    use super::on_core;

    #[test]
    fn work_is_done_and_cores_come_back() {
        let cores = || std::thread::available_parallelism().unwrap();
        let before = cores();
        for nth in [0, 1, 100_000] {
            assert_eq!(on_core(nth, || nth + 1), nth + 1);
        }
        if cfg!(target_os = "linux") {
            let inside = || std::thread::spawn(cores).join().unwrap().get();
            assert_eq!(on_core(0, inside), 1);
        }
        assert_eq!(cores(), before);
    }
}
