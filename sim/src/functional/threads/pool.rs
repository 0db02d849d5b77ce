//! Threads beside the one that runs the executor.

#[cfg(not(vta_thread_sanitizer))]
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Threads that sleep between runs.
///
/// Built with `--cfg vta_thread_sanitizer` they are started and joined in each run: those are the
/// calls that a thread sanitizer sees in a standard library that isn't built with it.
pub(crate) struct Threads {
    #[cfg(not(vta_thread_sanitizer))]
    pool: ThreadPool,
}

impl Threads {
    /// So many; `None` when they are not to be had.
    #[cfg(not(vta_thread_sanitizer))]
    pub fn new(count: usize) -> Option<Self> {
        let builder = ThreadPoolBuilder::new().num_threads(count);
        let pool = builder.thread_name(|n| format!("vta-sim-{}", n + 1));
        Some(Self {
            pool: pool.build().ok()?,
        })
    }

    #[cfg(vta_thread_sanitizer)]
    pub fn new(_: usize) -> Option<Self> {
        Some(Self {})
    }

    /// Runs each of `others` on a thread and `own` on this one, and returns when all have ended.
    ///
    /// # Panics
    /// When one of them does, after all have stopped.
    pub fn run<F: FnOnce() + Send>(&self, others: impl Iterator<Item = F>, own: impl FnOnce()) {
        #[cfg(not(vta_thread_sanitizer))]
        self.pool.in_place_scope(|scope| {
            others.for_each(|other| scope.spawn(|_| other()));
            own();
        });
        #[cfg(vta_thread_sanitizer)]
        std::thread::scope(|scope| {
            let others: Vec<_> = others.map(|other| scope.spawn(other)).collect();
            own();
            let ended = others.into_iter().map(|other| other.join());
            if let Some(panicked) = ended.filter_map(Result::err).last() {
                std::panic::resume_unwind(panicked);
            }
        });
    }
}
