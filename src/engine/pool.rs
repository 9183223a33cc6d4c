//! The threads that do the work, and maps over them that keep the order of their inputs within a bounded window.

use crate::error::{Error, Result};
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

/// A fixed number of threads. Tasks never wait for other tasks, so any number of maps can share a pool.
#[derive(Clone)]
pub struct Pool {
    /// `None`: tasks run in the caller, for debugging.
    threads: Option<Arc<rayon::ThreadPool>>,
}

impl Pool {
    /// `threads` 0: everything runs in the calling thread.
    pub fn new(threads: usize) -> Result<Self> {
        if threads == 0 {
            return Ok(Pool { threads: None });
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|i| format!("forebay-{i}"))
            .build()
            .map_err(|e| Error::unavailable(format!("cannot start {threads} threads")).caused_by(e))?;
        Ok(Pool { threads: Some(Arc::new(pool)) })
    }

    /// At least 1.
    pub fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, |p| p.current_num_threads())
    }

    /// Starts a task; a panic in it becomes an `Internal` error.
    pub fn start<T: Send + 'static>(&self, task: impl FnOnce() -> Result<T> + Send + 'static) -> Pending<T> {
        let (sender, receiver) = sync_channel(1);
        let run = move || {
            let result = catch_unwind(AssertUnwindSafe(task)).unwrap_or_else(|panic| Err(panicked(&*panic)));
            // Nobody waits any more when the map was dropped.
            let _ = sender.send(result);
        };
        match &self.threads {
            Some(pool) => pool.spawn_fifo(run),
            None => run(),
        }
        Pending(receiver)
    }

    /// Maps `inputs` on the pool's threads with at most `window` tasks begun and not yet taken; results come in input order.
    pub fn map<I, T, F>(&self, inputs: I, window: usize, function: F) -> Map<I, T, F>
    where
        I: Iterator,
        I::Item: Send + 'static,
        T: Send + 'static,
        F: Fn(I::Item) -> Result<T> + Clone + Send + 'static,
    {
        Map { pool: self.clone(), inputs, function, window: window.max(1), begun: VecDeque::new() }
    }
}

/// A task's result to come.
pub struct Pending<T>(Receiver<Result<T>>);

impl<T> Pending<T> {
    pub fn wait(self) -> Result<T> {
        self.0.recv().unwrap_or_else(|_| Err(Error::internal("a worker thread ended without a result")))
    }
}

pub struct Map<I, T, F> {
    pool: Pool,
    inputs: I,
    function: F,
    window: usize,
    begun: VecDeque<Pending<T>>,
}

impl<I, T, F> Iterator for Map<I, T, F>
where
    I: Iterator,
    I::Item: Send + 'static,
    T: Send + 'static,
    F: Fn(I::Item) -> Result<T> + Clone + Send + 'static,
{
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.begun.len() < self.window {
            let Some(input) = self.inputs.next() else { break };
            let function = self.function.clone();
            self.begun.push_back(self.pool.start(move || function(input)));
        }
        self.begun.pop_front().map(Pending::wait)
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::internal(format!("a worker thread panicked: {}", text.unwrap_or("no message")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_inputs_at_any_width() {
        for threads in [0, 1, 3] {
            let pool = Pool::new(threads).unwrap();
            let slow_first = |i: u64| {
                std::thread::sleep(std::time::Duration::from_micros(200 * (i % 3)));
                Ok(i * 2)
            };
            let out: Vec<u64> = pool.map(0..50, 7, slow_first).collect::<Result<_>>().unwrap();
            assert_eq!(out, (0..50).map(|i| i * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        let pool = Pool::new(1).unwrap();
        let error = pool.start(|| -> Result<()> { panic!("boom") }).wait().unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::Internal);
        assert!(error.message().contains("boom"));
        assert_eq!(pool.start(|| Ok(7)).wait().unwrap(), 7);
    }
}
