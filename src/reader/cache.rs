//! What a reader holds while it reads, bounded by weight: opened shards and decoded chunks. Under pressure values give up
//! what they no longer need, then some are let go.

use crate::error::Result;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// A value that may need less than it weighs.
pub trait Held {
    /// Weight that `shrink` would free at this time.
    fn spare(&self) -> usize {
        0
    }
    /// Frees it; the weight that remains.
    fn shrink(&self) -> usize {
        0
    }
}

/// Values made once per key, however many threads ask.
pub struct Cache<K, V> {
    limit: usize,
    state: Mutex<State<K, V>>,
    overflowed: AtomicBool,
}

struct State<K, V> {
    slots: HashMap<K, Slot<V>>,
    weight: usize,
}

struct Slot<V> {
    value: Arc<OnceLock<V>>,
    making: Arc<Mutex<()>>,
    weight: usize,
}

impl<K: Clone + Eq + Hash, V: Clone + Held> Cache<K, V> {
    /// `limit`: the most weight held besides what is being made.
    pub fn new(limit: usize) -> Self {
        let state = State { slots: HashMap::new(), weight: 0 };
        Cache { limit, state: Mutex::new(state), overflowed: AtomicBool::new(false) }
    }

    /// Whether a value was let go that may be wanted again.
    pub fn overflowed(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The value of `key`, made by `make` (which also says its weight) where it isn't held.
    pub fn get(&self, key: &K, make: impl FnOnce() -> Result<(V, usize)>) -> Result<V> {
        let (value, making) = self.slot(key);
        if let Some(value) = value.get() {
            return Ok(value.clone());
        }
        // Others who want the same value wait for it here instead of making it again.
        let guard = making.lock().expect("makers don't panic");
        self.fill(key, &value, guard, make)
    }

    /// Makes the value of `key` unless it is held, another thread is making it, or others would have to go for it.
    pub fn prepare(&self, key: &K, make: impl FnOnce() -> Result<(V, usize)>) -> Result<()> {
        if self.state.lock().expect("no panics while locked").weight >= self.limit {
            return Ok(());
        }
        let (value, making) = self.slot(key);
        match (value.get(), making.try_lock()) {
            (None, Ok(guard)) => self.fill(key, &value, guard, make).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn fill(
        &self,
        key: &K,
        value: &Arc<OnceLock<V>>,
        making: MutexGuard<()>,
        make: impl FnOnce() -> Result<(V, usize)>,
    ) -> Result<V> {
        if let Some(value) = value.get() {
            return Ok(value.clone());
        }
        let (made, weight) = make()?;
        let made = value.get_or_init(|| made).clone();
        drop(making);
        self.weigh(key, value, weight);
        self.relieve(key);
        Ok(made)
    }

    pub fn remove(&self, key: &K) {
        self.state.lock().expect("no panics while locked").remove(key);
    }

    fn slot(&self, key: &K) -> (Arc<OnceLock<V>>, Arc<Mutex<()>>) {
        let mut state = self.state.lock().expect("no panics while locked");
        let empty = || Slot { value: Arc::new(OnceLock::new()), making: Arc::new(Mutex::new(())), weight: 0 };
        let slot = state.slots.entry(key.clone()).or_insert_with(empty);
        (slot.value.clone(), slot.making.clone())
    }

    /// Notes the weight of a value that is still held.
    fn weigh(&self, key: &K, value: &Arc<OnceLock<V>>, weight: usize) {
        let mut state = self.state.lock().expect("no panics while locked");
        let Some(slot) = state.slots.get_mut(key).filter(|slot| Arc::ptr_eq(&slot.value, value)) else { return };
        let before = std::mem::replace(&mut slot.weight, weight);
        state.weight = state.weight - before + weight;
    }

    /// Shrinks or lets go of values other than `keep` until the limit is kept.
    fn relieve(&self, keep: &K) {
        loop {
            let mut state = self.state.lock().expect("no panics while locked");
            if state.weight <= self.limit {
                return;
            }
            let others = || state.slots.iter().filter(|(key, slot)| slot.weight > 0 && *key != keep);
            let spare = |slot: &Slot<V>| slot.value.get().map_or(0, Held::spare);
            let most = others().map(|(key, slot)| (spare(slot), key, slot)).max_by_key(|(spare, ..)| *spare);
            let Some((spare, key, slot)) = most else { return };
            if 4 * spare >= slot.weight {
                let (key, value, before) = (key.clone(), slot.value.clone(), slot.weight);
                drop(state);
                let weight = value.get().map_or(0, Held::shrink);
                if weight < before {
                    self.weigh(&key, &value, weight);
                } else {
                    // It couldn't shrink, and would be asked to for ever.
                    self.remove(&key);
                }
                continue;
            }
            // Rows are wanted in turn from all that is open, so the least recently used is the one wanted next. The heaviest
            // has the most rows still to come: those that stay are done with soonest, and few are made again.
            let heaviest = others().max_by_key(|(_, slot)| slot.weight).map(|(key, _)| key.clone());
            heaviest.iter().for_each(|key| state.remove(key));
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }
}

impl<K: Eq + Hash, V> State<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(slot) = self.slots.remove(key) {
            self.weight -= slot.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug, Clone)]
    struct Value(u32, Arc<AtomicUsize>);

    impl Held for Value {
        fn spare(&self) -> usize {
            self.1.load(Ordering::Relaxed)
        }
        fn shrink(&self) -> usize {
            10 - self.1.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn values_are_made_once_and_the_limit_is_kept() {
        let cache: Cache<u32, Value> = Cache::new(30);
        let made = AtomicUsize::new(0);
        let get = |key: u32| {
            let make = || {
                made.fetch_add(1, Ordering::Relaxed);
                Ok((Value(key * 10, Arc::default()), 10))
            };
            cache.get(&key, make).unwrap()
        };
        let count = || made.load(Ordering::Relaxed);
        assert_eq!([get(1).0, get(2).0, get(3).0, get(1).0], [10, 20, 30, 10]);
        assert_eq!(count(), 3);
        assert!(!cache.overflowed());
        // One of the three goes.
        get(4);
        assert!(cache.overflowed());
        assert_eq!(cache.state.lock().unwrap().slots.len(), 3);
        assert_eq!(get(4).0, 40);
        assert_eq!(count(), 4);
        cache.remove(&4);
        get(4);
        assert_eq!(count(), 5);
        cache.prepare(&4, || unreachable!("it is held")).unwrap();
        cache.prepare(&5, || unreachable!("there is no room")).unwrap();
        cache.remove(&4);
        cache.prepare(&4, || Ok((Value(7, Arc::default()), 10))).unwrap();
        assert_eq!(get(4).0, 7);
        // What another is making is left to it.
        cache.remove(&4);
        let (_, making) = cache.slot(&9);
        let _making = making.lock().unwrap();
        cache.prepare(&9, || unreachable!("it is being made")).unwrap();
    }

    #[test]
    fn what_is_no_longer_needed_goes_before_any_value() {
        let cache: Cache<u32, Value> = Cache::new(30);
        let get = |key: u32| cache.get(&key, || Ok((Value(key, Arc::default()), 10))).unwrap();
        let first = get(1);
        get(2);
        get(3);
        first.1.store(6, Ordering::Relaxed);
        get(4);
        // 4 + 10 + 10 + 10 is too much still, and nothing else has anything to spare.
        assert_eq!(first.1.load(Ordering::Relaxed), 0);
        assert!(cache.state.lock().unwrap().weight <= 30);
    }

    #[test]
    fn what_cannot_shrink_is_let_go() {
        #[derive(Clone)]
        struct Stubborn;
        impl Held for Stubborn {
            fn spare(&self) -> usize {
                10
            }
            fn shrink(&self) -> usize {
                10
            }
        }
        let cache: Cache<u32, Stubborn> = Cache::new(10);
        for key in 0..3 {
            cache.get(&key, || Ok((Stubborn, 10))).unwrap();
        }
        assert_eq!(cache.state.lock().unwrap().weight, 10);
    }

    #[test]
    fn a_failure_is_not_held() {
        let cache: Cache<u32, Value> = Cache::new(2);
        assert!(cache.get(&1, || Err(crate::error::Error::corrupt("x"))).is_err());
        assert_eq!(cache.get(&1, || Ok((Value(5, Arc::default()), 1))).unwrap().0, 5);
    }
}
