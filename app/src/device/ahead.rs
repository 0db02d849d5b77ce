//! Devices that are opened ahead: on a thread of their own, while a network is read and compiled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use web_time::Instant;

use vta_driver::Device;
use vta_isa::Config;

use crate::device;
use crate::error::{Error, Result};
use crate::options::Target;

/// Devices by name, and how long it took to open them.
type Opened = Vec<(String, Result<Arc<dyn Device>>, Duration)>;

/// Devices that somebody opens before they are asked for. Dropping it waits for them.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<State>);

#[derive(Default)]
struct State {
    /// What the devices are opened for.
    config: Config,
    thread: Option<JoinHandle<Opened>>,
    opened: Opened,
    /// Of all that were given out.
    took: Duration,
}

impl Ahead {
    /// Begins to open devices, one after the other. Where the system has no thread to give they
    /// are opened when they are asked for.
    pub fn begin(&self, names: Vec<String>, config: &Config, target: Target) {
        let mut state = self.state();
        state.config = config.clone();
        let config = config.clone();
        let begun = move || {
            let opened = |name: String| {
                let began = Instant::now();
                // None of these devices computes with the host's threads.
                let opened = device::opened(&name);
                let device = opened.and_then(|by| (by.open)(&name, &config, &target, 1));
                (name, device, began.elapsed())
            };
            names.into_iter().map(opened).collect()
        };
        state.thread = Builder::new().name("open".to_owned()).spawn(begun).ok();
    }

    /// A device: the one that was begun, if it was for this configuration, or a new one.
    ///
    /// # Errors
    /// A name that is no device, what a device that can't be opened says.
    pub fn device(
        &self,
        name: &str,
        config: &Config,
        target: &Target,
        threads: usize,
    ) -> Result<Arc<dyn Device>> {
        let mut state = self.state();
        if let Some(thread) = state.thread.take() {
            state.opened = thread.join().map_err(|_| Error::thread())?;
        }
        if state.config != *config {
            // Some boards can be opened once at a time.
            state.opened.clear();
        }
        if let Some(at) = state.opened.iter().position(|opened| opened.0 == name) {
            let (_, device, took) = state.opened.swap_remove(at);
            state.took += took;
            return device;
        }
        drop(state);
        let began = Instant::now();
        let device = (device::opened(name)?.open)(name, config, target, threads);
        self.state().took += began.elapsed();
        device
    }

    /// How long it took to open all that were given out.
    pub fn took(&self) -> Duration {
        self.state().took
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked left what is opened.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(thread) = self.state().thread.take() {
            // Nobody asks for the devices any more.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(log_batch: u32) -> Config {
        Config::from_json(&format!("{{\"LOG_BATCH\": {log_batch}}}")).unwrap()
    }

    #[test]
    fn devices_that_were_begun_are_given_out_once_and_for_their_configuration() {
        for asked in [0, 1] {
            let ahead = Ahead::default();
            ahead.begin(vec!["oracle".to_owned()], &config(0), Target::default());
            let opened = || ahead.state().opened.len();
            let device = ahead
                .device("oracle", &config(asked), &Target::default(), 1)
                .unwrap();
            assert_eq!(device.info().config, config(asked));
            assert_eq!(opened(), 0);
            assert!(ahead.took() > Duration::ZERO);
            let other = ahead
                .device("oracle", &config(asked), &Target::default(), 1)
                .unwrap();
            assert!(!Arc::ptr_eq(&device, &other));
        }
    }

    #[test]
    fn errors_come_when_the_device_is_asked_for() {
        let ahead = Ahead::default();
        ahead.begin(vec!["simm".to_owned()], &config(0), Target::default());
        let error = |ahead: &Ahead| {
            let device = ahead.device("simm", &config(0), &Target::default(), 1);
            device.err().map(|error| error.to_string())
        };
        let begun = error(&ahead);
        assert!(begun.is_some());
        assert_eq!(begun, error(&Ahead::default()));
        // Nobody asks.
        let ahead = Ahead::default();
        ahead.begin(vec!["sim".to_owned(); 2], &config(0), Target::default());
    }
}
