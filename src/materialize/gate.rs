//! A gate that lets so many through at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

pub struct Gate {
    free: Mutex<usize>,
    changed: Condvar,
}

/// One that is through, until it is dropped.
pub struct Inside<'a>(&'a Gate);

impl Gate {
    pub fn new(places: usize) -> Gate {
        Gate { free: Mutex::new(places), changed: Condvar::new() }
    }

    /// Waits for a place.
    pub fn enter(&self) -> Inside<'_> {
        let free = self.changed.wait_while(self.free(), |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Inside(self)
    }

    /// The number is whole even if a thread died while it held the lock.
    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_than_its_places_are_inside_and_all_come_through() {
        let (gate, inside, most, done) = (Gate::new(3), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let _inside = gate.enter();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!((most.into_inner(), done.into_inner()), (3, 20));
    }
}
