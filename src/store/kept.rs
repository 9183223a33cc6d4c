//! A document that counts while it is young: written again and again by a thread while its owner lives, removed when the
//! owner is dropped, and dead some time after its owner died. Intents and lists of candidates are such.

use super::Store;
use crate::error::{Error, Result};
use crate::format::name::Name;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How often what happens. All processes at one store must agree on `lifetime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// For how long a document counts after it was written, by the store's clock.
    pub lifetime: Duration,
    /// How often it is written anew.
    pub renew: Duration,
    /// How old what is known of lists of candidates may be when something is published.
    pub look: Duration,
    /// How often is looked whether a list is gone that is waited for.
    pub poll: Duration,
}

impl Pace {
    pub const LIFETIME: Duration = Duration::from_secs(600);

    /// Where looking is cheap it is done often.
    pub fn usual(local: bool) -> Pace {
        let look = Duration::from_secs(if local { 2 } else { 30 });
        Pace { lifetime: Self::LIFETIME, renew: Duration::from_secs(60), look, poll: Duration::from_secs(1) }
    }

    /// How long after it was last written the owner may still act on the strength of it: the rest is for the action itself.
    fn safe(&self) -> Duration {
        self.lifetime * 3 / 5
    }
}

/// A moment by two clocks: one stands still while the machine sleeps, the other may be set.
#[derive(Debug, Clone, Copy)]
pub struct Moment(Instant, SystemTime);

impl Moment {
    pub fn now() -> Moment {
        Moment(Instant::now(), SystemTime::now())
    }

    /// By the clock that says more.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or_default())
    }
}

#[derive(Debug)]
pub struct Kept {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    name: String,
    pace: Pace,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    bytes: Vec<u8>,
    /// Before it was last written.
    written: Moment,
    /// It was too old once: what relied upon it may be gone.
    lapsed: bool,
    ended: bool,
}

impl Kept {
    pub fn new(store: &Store, name: &Name, bytes: Vec<u8>, pace: Pace) -> Result<Kept> {
        let written = Moment::now();
        store.storage.put(&bytes, &name.to_string(), true)?;
        let state = Mutex::new(State { bytes, written, lapsed: false, ended: false });
        let (store, name) = (Store { lease: None, ..store.clone() }, name.to_string());
        let shared = Arc::new(Shared { store, name, pace, state, wake: Condvar::new() });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("forebay-lease".to_owned()).spawn(move || of_thread.renew());
        let thread =
            thread.map_err(|e| Error::unavailable("cannot start a thread: lower their number").caused_by(e))?;
        Ok(Kept { shared, thread: Some(thread) })
    }

    /// Writes it with other contents.
    pub fn replace(&self, bytes: Vec<u8>) -> Result<()> {
        self.shared.lock().bytes = bytes;
        self.shared.write()
    }

    /// `Unavailable` if it may have been too old for a while since it was first written, as after a process was stopped.
    pub fn check(&self) -> Result<()> {
        match self.shared.is_lapsed() {
            false => Ok(()),
            true => Err(Error::unavailable(format!(
                "{} could not be renewed for {} s, as this process was stopped or the store out of reach, so that what it relies upon may have been removed meanwhile: run the command again",
                self.shared.name,
                self.shared.pace.safe().as_secs()
            ))),
        }
    }
}

impl Drop for Kept {
    /// One that can't be removed dies by itself.
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = self.shared.store.storage.delete(&self.shared.name);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each field is whole even if a thread died while it held the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_lapsed(&self) -> bool {
        let mut state = self.lock();
        state.lapsed |= state.written.elapsed() > self.pace.safe();
        state.lapsed
    }

    fn write(&self) -> Result<()> {
        let bytes = self.lock().bytes.clone();
        let begun = Moment::now();
        self.store.storage.put(&bytes, &self.name, true)?;
        // Late: how long it was too old is not known any more once the time is noted.
        self.is_lapsed();
        self.lock().written = begun;
        Ok(())
    }

    fn renew(&self) {
        let mut wait = self.pace.renew;
        loop {
            let state = self.lock();
            let (state, _) =
                self.wake.wait_timeout_while(state, wait, |state| !state.ended).unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            drop(state);
            // A failure shows when the owner next relies upon it; till then it is tried again.
            wait = if self.write().is_ok() { self.pace.renew } else { self.pace.renew / 10 };
        }
    }
}
