//! Threads beside the one that asks for them.

use std::sync::atomic::{AtomicUsize, Ordering};

use self::pool::Pool;

/// Threads that start when they are first needed and end with this. After a run they look for another one for about a
/// millisecond before they sleep, as threads of OpenMP and of onnxruntime do: to wake one takes tens of microseconds, as
/// long as a layer.
#[derive(Debug)]
pub struct Threads {
    /// All but the one that asks.
    others: usize,
    /// Who runs jobs now.
    running: AtomicUsize,
    pool: Pool,
}

impl Threads {
    /// So many, the one that asks among them; 0 counts as 1.
    pub const fn new(threads: usize) -> Self {
        Self {
            others: threads.saturating_sub(1),
            running: AtomicUsize::new(0),
            pool: Pool::new(),
        }
    }

    /// How many it was made with.
    pub fn count(&self) -> usize {
        self.others + 1
    }

    /// How many there are beside the one that asks: none if the system gives none.
    pub fn others(&self) -> usize {
        match self.others {
            0 => 0,
            others if self.pool.starts(others) => others,
            _ => 0,
        }
    }

    /// The same, and none while they run jobs.
    pub fn free(&self) -> usize {
        match self.running.load(Ordering::Relaxed) {
            0 => self.others(),
            _ => 0,
        }
    }

    /// Runs each of `jobs`, at most [`Self::others`], on a thread and `own` on this one, and returns when all have
    /// ended.
    ///
    /// # Panics
    /// When one of them does, after all have stopped.
    pub fn run<F: FnOnce() + Send>(&self, jobs: Vec<F>, own: impl FnOnce()) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let _ended = Ended(&self.running);
        self.pool.run(self.others, jobs, own);
    }
}

/// Somebody's jobs, which end with this, by a panic, too.
struct Ended<'a>(&'a AtomicUsize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Built with `--cfg vta_thread_sanitizer`, threads are started and joined in each run: those are the calls that a thread
/// sanitizer sees in a standard library that isn't built with it. WebAssembly has none.
#[cfg(any(vta_thread_sanitizer, target_family = "wasm"))]
mod pool {
    #[derive(Debug)]
    pub(super) struct Pool;

    impl Pool {
        pub const fn new() -> Self {
            Self
        }

        pub fn starts(&self, _: usize) -> bool {
            cfg!(vta_thread_sanitizer)
        }

        pub fn run<F: FnOnce() + Send>(&self, _: usize, jobs: Vec<F>, own: impl FnOnce()) {
            if cfg!(target_family = "wasm") {
                return own();
            }
            std::thread::scope(|scope| {
                let jobs: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
                own();
                let ended = jobs.into_iter().map(|job| job.join());
                if let Some(panicked) = ended.filter_map(Result::err).last() {
                    std::panic::resume_unwind(panicked);
                }
            });
        }
    }
}

#[cfg(not(any(vta_thread_sanitizer, target_family = "wasm")))]
mod pool {
    //! Threads that linger.

    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rayon::{Scope, ThreadPool, ThreadPoolBuilder, Yield};

    /// How often threads look for jobs behind one, and who asked for the end of all: for about a millisecond.
    const LOOKS: usize = 1000;
    /// Pauses of the CPU between two looks.
    const PAUSES: usize = 16;

    /// Started when it is first needed; inside, `None` if the system gives no threads.
    #[derive(Debug)]
    pub(super) struct Pool(OnceLock<Option<ThreadPool>>);

    impl Pool {
        pub const fn new() -> Self {
            Self(OnceLock::new())
        }

        /// Whether there are so many threads, which are started if they aren't.
        pub fn starts(&self, threads: usize) -> bool {
            self.get(threads).is_some()
        }

        fn get(&self, threads: usize) -> Option<&ThreadPool> {
            let start = || {
                let builder = ThreadPoolBuilder::new().num_threads(threads);
                let pool = builder.thread_name(|n| format!("vta-{}", n + 1)).build();
                pool.inspect_err(|error| tracing::warn!(%error, "one thread does all"))
                    .ok()
            };
            self.0.get_or_init(start).as_ref()
        }

        pub fn run<F: FnOnce() + Send>(&self, threads: usize, jobs: Vec<F>, own: impl FnOnce()) {
            let pool = (!jobs.is_empty()).then(|| self.get(threads)).flatten();
            let left = AtomicUsize::new(jobs.len());
            match pool {
                Some(pool) => pool.in_place_scope(|scope| {
                    start(scope, jobs, &left);
                    own();
                    // A scope sleeps until its jobs have ended, however soon that is.
                    let mut looks = 0..LOOKS;
                    while left.load(Ordering::Relaxed) > 0 && looks.next().is_some() {
                        pause();
                    }
                    // The last has yet to tell the scope.
                    pause();
                }),
                None => {
                    debug_assert!(jobs.is_empty(), "there is no thread for them");
                    own();
                }
            }
        }
    }

    /// Has a thread do each job. Those that must be woken wake others before they work: one alone would take
    /// microseconds for each of them.
    fn start<'s, F: FnOnce() + Send + 's>(
        scope: &Scope<'s>,
        mut jobs: Vec<F>,
        left: &'s AtomicUsize,
    ) {
        while !jobs.is_empty() {
            let mut part = jobs.split_off(jobs.len() / 2);
            scope.spawn(move |scope| {
                let own = part.pop();
                start(scope, part, left);
                if !LINGERS.get() {
                    rayon::spawn(linger);
                }
                own.into_iter().for_each(|job| job());
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    thread_local! {
        static LINGERS: Cell<bool> = const { Cell::new(false) };
    }

    /// A moment, in which others may have the core.
    fn pause() {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        std::thread::yield_now();
    }

    /// Does what jobs come, until none has come for a while.
    fn linger() {
        if LINGERS.replace(true) {
            return;
        }
        let mut looks = 0;
        while looks < LOOKS {
            if rayon::yield_now() == Some(Yield::Executed) {
                looks = 0;
            } else {
                pause();
                looks += 1;
            }
        }
        LINGERS.set(false);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::Threads;

    #[test]
    fn every_job_is_done_once_whatever_their_number() {
        let threads = Threads::new(6);
        for jobs in 0..=threads.others() {
            let done: Vec<AtomicUsize> = (0..=jobs).map(|_| AtomicUsize::new(0)).collect();
            let job = |at: usize| {
                let done = &done;
                move || {
                    done[at].fetch_add(1, Ordering::Relaxed);
                }
            };
            threads.run((0..jobs).map(job).collect(), job(jobs));
            let done: Vec<usize> = done.iter().map(|d| d.load(Ordering::Relaxed)).collect();
            assert_eq!(done, vec![1; jobs + 1]);
        }
    }

    #[test]
    fn a_panic_is_the_callers_and_the_threads_go_on() {
        let threads = Threads::new(4);
        let job = |at: usize| move || assert!(at != 1, "job {at}");
        let run = |jobs: std::ops::Range<usize>| threads.run(jobs.map(job).collect(), || ());
        let failed = catch_unwind(AssertUnwindSafe(|| run(0..3)));
        assert_eq!(
            failed.unwrap_err().downcast_ref::<String>().unwrap(),
            "job 1"
        );
        assert_eq!(threads.free(), 3);
        run(2..5);
    }

    #[test]
    fn one_thread_is_the_one_that_asks() {
        let threads = Threads::new(1);
        let mut done = false;
        threads.run(Vec::<fn()>::new(), || done = true);
        assert!(done && threads.others() == 0);
    }
}
