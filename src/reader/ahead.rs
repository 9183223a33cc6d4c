//! Fetching ahead, where shards lie in a remote store: while batches are computed, threads that do little but wait for the
//! store bring the chunks of those to come, so that a batch finds them at hand.

use super::fetch::Fetch;
use crate::engine::pool::Pool;
use crate::plan::order::batch::Share;
use arrow::buffer::Buffer;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Requests under way.
pub const THREADS: usize = 32;
/// Chunks fetched that no batch has come to, in bytes.
const BYTES: u64 = 256 << 20;
/// Rows looked ahead at: where they are small, this many lie in few chunks.
const ROWS: usize = 1 << 18;
/// How long who ends early waits for requests under way, so that what this process says in the store of what it uses is
/// taken back; if it isn't, it counts no more after a while.
const PARTING: Duration = Duration::from_secs(2);

/// Shares, each with what was fetched for it.
pub struct Ahead<I> {
    shares: I,
    fetch: Arc<Fetch>,
    /// `None`: nothing has to be fetched.
    threads: Option<Pool>,
    coming: VecDeque<(Share, Arc<Brought>)>,
    rows: usize,
    tasks: Arc<Tasks>,
}

/// Chunks that are at hand as long as this is.
#[derive(Default)]
pub struct Brought {
    chunks: Mutex<Vec<Buffer>>,
    bytes: AtomicU64,
}

#[derive(Default)]
struct Tasks {
    state: Mutex<State>,
    finished: Condvar,
}

#[derive(Default)]
struct State {
    unfinished: usize,
    ended: bool,
    /// Chunks that were fetched for one of the shares.
    seen: HashSet<(u32, usize)>,
}

impl Tasks {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().expect("no panics while locked"))
    }
}

impl<I: Iterator<Item = Share>> Ahead<I> {
    pub fn new(shares: I, fetch: Arc<Fetch>, threads: Option<Pool>) -> Self {
        Ahead { shares, fetch, threads, coming: VecDeque::new(), rows: 0, tasks: Arc::default() }
    }

    fn has_room(&self) -> bool {
        let bytes: u64 = self.coming.iter().map(|(_, brought)| brought.bytes.load(Ordering::Relaxed)).sum();
        bytes < BYTES && self.rows < ROWS && self.tasks.with(|state| state.unfinished) < 2 * THREADS
    }

    fn begin(&mut self, share: Share, threads: &Pool) {
        let brought = Arc::new(Brought::default());
        let mut partitions: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        share.rows.iter().for_each(|row| partitions.entry(row.partition).or_default().push(row.row));
        for (partition, rows) in partitions {
            let (fetch, brought, tasks) = (self.fetch.clone(), brought.clone(), self.tasks.clone());
            tasks.with(|state| state.unfinished += 1);
            threads.start(move || {
                bring(&fetch, partition, &rows, &brought, &tasks);
                // All that it holds goes before it counts as finished.
                drop((fetch, brought));
                tasks.with(|state| state.unfinished -= 1);
                tasks.finished.notify_all();
                Ok(())
            });
        }
        self.rows += share.rows.len();
        self.coming.push_back((share, brought));
    }
}

fn bring(fetch: &Fetch, partition: u32, rows: &[u64], brought: &Brought, tasks: &Tasks) {
    if tasks.with(|state| state.ended) {
        return;
    }
    fetch.open().bring(partition, rows, |chunk, bytes, buffer| {
        if tasks.with(|state| state.seen.insert((partition, chunk))) {
            brought.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        brought.chunks.lock().expect("no panics while locked").push(buffer);
    });
}

impl<I: Iterator<Item = Share>> Iterator for Ahead<I> {
    type Item = (Share, Arc<Brought>);

    fn next(&mut self) -> Option<Self::Item> {
        let Some(threads) = self.threads.clone() else {
            return self.shares.next().map(|share| (share, Arc::default()));
        };
        while self.coming.is_empty() || self.has_room() {
            let Some(share) = self.shares.next() else { break };
            self.begin(share, &threads);
        }
        let next = self.coming.pop_front()?;
        self.rows -= next.0.rows.len();
        Some(next)
    }
}

impl<I> Drop for Ahead<I> {
    fn drop(&mut self) {
        let mut state = self.tasks.state.lock().expect("no panics while locked");
        state.ended = true;
        let _ = self.tasks.finished.wait_timeout_while(state, PARTING, |state| state.unfinished > 0);
    }
}
