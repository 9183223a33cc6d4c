//! What a reader holds while it reads: opened shards and decoded chunks, the least recently used out first. A chunk all
//! of whose rows were handed out is let go at once, as no epoch needs a row twice.

use crate::error::Result;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock};

/// Values made once per key, however many threads ask, bounded by weight.
pub struct Cache<K, V> {
    limit: usize,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    slots: HashMap<K, Slot<V>>,
    clock: u64,
    weight: usize,
}

struct Slot<V> {
    value: Arc<OnceLock<V>>,
    making: Arc<Mutex<()>>,
    used: u64,
    weight: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    /// `limit`: the most weight held besides what is being made.
    pub fn new(limit: usize) -> Self {
        Cache { limit, state: Mutex::new(State { slots: HashMap::new(), clock: 0, weight: 0 }) }
    }

    /// The value of `key`, made by `make` (which also says its weight) where it isn't held.
    pub fn get(&self, key: &K, make: impl FnOnce() -> Result<(V, usize)>) -> Result<V> {
        let (value, making) = self.slot(key);
        if let Some(value) = value.get() {
            return Ok(value.clone());
        }
        // Others who want the same value wait for it here instead of making it again.
        let guard = making.lock().expect("makers don't panic");
        if let Some(value) = value.get() {
            return Ok(value.clone());
        }
        let (made, weight) = make()?;
        let made = value.get_or_init(|| made).clone();
        drop(guard);
        self.weigh(key, weight);
        Ok(made)
    }

    pub fn remove(&self, key: &K) {
        let mut state = self.state.lock().expect("no panics while locked");
        if let Some(slot) = state.slots.remove(key) {
            state.weight -= slot.weight;
        }
    }

    fn slot(&self, key: &K) -> (Arc<OnceLock<V>>, Arc<Mutex<()>>) {
        let mut state = self.state.lock().expect("no panics while locked");
        state.clock += 1;
        let used = state.clock;
        let slot = state.slots.entry(key.clone()).or_insert_with(|| Slot {
            value: Arc::new(OnceLock::new()),
            making: Arc::new(Mutex::new(())),
            used,
            weight: 0,
        });
        slot.used = used;
        (slot.value.clone(), slot.making.clone())
    }

    fn weigh(&self, key: &K, weight: usize) {
        let mut state = self.state.lock().expect("no panics while locked");
        let Some(slot) = state.slots.get_mut(key) else { return };
        slot.weight = weight;
        state.weight += weight;
        while state.weight > self.limit {
            let oldest = state.slots.iter().filter(|(k, s)| s.weight > 0 && *k != key).min_by_key(|(_, s)| s.used);
            let Some(oldest) = oldest.map(|(k, _)| k.clone()) else { break };
            if let Some(slot) = state.slots.remove(&oldest) {
                state.weight -= slot.weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first_and_values_are_made_once() {
        let cache: Cache<u32, u32> = Cache::new(2);
        let made = Mutex::new(Vec::new());
        let get = |k: u32| {
            let make = || {
                made.lock().unwrap().push(k);
                Ok((k * 10, 1))
            };
            cache.get(&k, make).unwrap()
        };
        assert_eq!([get(1), get(2), get(1), get(3), get(1), get(2)], [10, 20, 10, 30, 10, 20]);
        assert_eq!(*made.lock().unwrap(), [1, 2, 3, 2]);
        cache.remove(&1);
        get(1);
        assert_eq!(made.lock().unwrap().last(), Some(&1));
    }

    #[test]
    fn a_failure_is_not_held() {
        let cache: Cache<u32, u32> = Cache::new(2);
        assert!(cache.get(&1, || Err(crate::error::Error::corrupt("x"))).is_err());
        assert_eq!(cache.get(&1, || Ok((5, 1))).unwrap(), 5);
    }
}
