//! Fetching ahead, where shards lie in a remote store: while batches are computed, threads that do little but wait for the
//! store bring the chunks of those to come, so that a batch finds them at hand.

use super::fetch::Fetch;
use super::open::Shard;
use crate::engine::pool::Pool;
use crate::plan::order::batch::Share;
use arrow::buffer::Buffer;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Requests under way.
pub const THREADS: usize = 16;
/// Chunks that are coming or there, and to which no batch has come, in bytes.
const BYTES: u64 = 256 << 20;
/// Neighbouring chunks are fetched together up to so many bytes.
const RUN: u64 = 16 << 20;
/// Rows looked ahead at: where they are small, this many lie in few chunks.
const ROWS: usize = 1 << 18;
/// How long who ends early waits for requests under way, so that what this process says in the store of what it uses is
/// taken back; if it isn't, it counts no more after a while.
const PARTING: Duration = Duration::from_secs(2);

/// Shares, each with what was fetched for it.
pub struct Ahead<I> {
    shares: I,
    /// `None`: nothing has to be fetched.
    bringer: Option<Bringer>,
    coming: VecDeque<(Share, Arc<Brought>)>,
    rows: usize,
}

/// Chunks that are at hand, or on their way, as long as this is.
#[derive(Default)]
pub struct Brought(Mutex<Vec<Arc<Slot>>>);

/// A chunk's bytes, once they are there.
struct Slot {
    bytes: u64,
    buffer: OnceLock<Buffer>,
    tasks: Arc<Tasks>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.tasks.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Tasks {
    state: Mutex<State>,
    finished: Condvar,
    /// Of all slots.
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    unfinished: usize,
    ended: bool,
    /// By partition and chunk.
    slots: HashMap<(u32, usize), Weak<Slot>>,
}

/// Who brings what.
#[derive(Clone)]
struct Bringer {
    fetch: Arc<Fetch>,
    threads: Pool,
    tasks: Arc<Tasks>,
}

impl<I: Iterator<Item = Share>> Ahead<I> {
    pub fn new(shares: I, fetch: Arc<Fetch>, threads: Option<Pool>) -> Self {
        let bringer = threads.map(|threads| Bringer { fetch, threads, tasks: Arc::default() });
        Ahead { shares, bringer, coming: VecDeque::new(), rows: 0 }
    }
}

impl<I: Iterator<Item = Share>> Iterator for Ahead<I> {
    type Item = (Share, Arc<Brought>);

    fn next(&mut self) -> Option<Self::Item> {
        let Some(bringer) = &self.bringer else {
            return self.shares.next().map(|share| (share, Arc::default()));
        };
        while self.coming.is_empty() || self.rows < ROWS && bringer.has_room() {
            let Some(share) = self.shares.next() else { break };
            self.rows += share.rows.len();
            let brought = bringer.begin(&share);
            self.coming.push_back((share, brought));
        }
        let next = self.coming.pop_front()?;
        self.rows -= next.0.rows.len();
        Some(next)
    }
}

impl<I> Drop for Ahead<I> {
    fn drop(&mut self) {
        let Some(Bringer { tasks, .. }) = &self.bringer else { return };
        let mut state = tasks.state.lock().expect("no panics while locked");
        state.ended = true;
        let _ = tasks.finished.wait_timeout_while(state, PARTING, |state| state.unfinished > 0);
    }
}

impl Bringer {
    fn has_room(&self) -> bool {
        self.tasks.bytes.load(Ordering::Relaxed) < BYTES && self.tasks.with(|state| state.unfinished) < 2 * THREADS
    }

    fn begin(&self, share: &Share) -> Arc<Brought> {
        let brought = Arc::new(Brought::default());
        let mut partitions: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        share.rows.iter().for_each(|row| partitions.entry(row.partition).or_default().push(row.row));
        for (partition, rows) in partitions {
            let brought = brought.clone();
            self.start(move |bringer| bringer.bring(partition, &rows, &brought));
        }
        brought
    }

    /// Runs a task on one of the threads, unless the end comes first.
    fn start(&self, task: impl FnOnce(&Bringer) + Send + 'static) {
        let (bringer, tasks) = (self.clone(), self.tasks.clone());
        tasks.with(|state| state.unfinished += 1);
        self.threads.start(move || {
            if !tasks.with(|state| state.ended) {
                task(&bringer);
            }
            // All that it holds goes before it counts as finished.
            drop(bringer);
            tasks.with(|state| state.unfinished -= 1);
            tasks.finished.notify_all();
            Ok(())
        });
    }

    /// Finds out which chunks rows of a partition lie in, and has those brought that aren't coming yet.
    fn bring(&self, partition: u32, rows: &[u64], brought: &Brought) {
        let Some((shard, chunks)) = self.fetch.open().stored_chunks(partition, rows) else { return };
        let Some(stored) = &shard.stored else { return };
        let mut runs: Vec<Vec<(usize, Arc<Slot>)>> = Vec::new();
        for chunk in chunks {
            let (slot, new) = self.tasks.slot((partition, chunk), || stored.chunk_bytes(chunk));
            if new {
                let joins = |run: &&mut Vec<(usize, Arc<Slot>)>| {
                    run.last().is_some_and(|(last, _)| last + 1 == chunk)
                        && run.iter().map(|(_, slot)| slot.bytes).sum::<u64>() + slot.bytes <= RUN
                };
                match runs.last_mut().filter(joins) {
                    Some(run) => run.push((chunk, slot.clone())),
                    None => runs.push(vec![(chunk, slot.clone())]),
                }
            }
            brought.0.lock().expect("no panics while locked").push(slot);
        }
        for run in runs {
            let shard = shard.clone();
            self.start(move |_| fill(&shard, &run));
        }
    }
}

/// What can't be brought now is met again, and dealt with, when its rows are gathered.
fn fill(shard: &Shard, run: &[(usize, Arc<Slot>)]) {
    let chunks: Vec<usize> = run.iter().map(|(chunk, _)| *chunk).collect();
    let Some(Ok(buffers)) = shard.stored.as_ref().map(|stored| stored.bring(&chunks)) else { return };
    for ((_, slot), buffer) in run.iter().zip(buffers) {
        let _ = slot.buffer.set(buffer);
    }
}

impl Tasks {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().expect("no panics while locked"))
    }

    /// The slot of a chunk, and whether it is new.
    fn slot(self: &Arc<Self>, key: (u32, usize), bytes: impl FnOnce() -> u64) -> (Arc<Slot>, bool) {
        self.with(|state| {
            if let Some(slot) = state.slots.get(&key).and_then(Weak::upgrade) {
                return (slot, false);
            }
            let slot = Arc::new(Slot { bytes: bytes(), buffer: OnceLock::new(), tasks: self.clone() });
            self.bytes.fetch_add(slot.bytes, Ordering::Relaxed);
            state.slots.retain(|_, slot| slot.strong_count() > 0);
            state.slots.insert(key, Arc::downgrade(&slot));
            (slot, true)
        })
    }
}
