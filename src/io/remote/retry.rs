//! Trying again: what may pass is tried again after a growing, random pause until a total time is over. When a service
//! asks to slow down, fewer requests are let through at a time; as they succeed, more.

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{Error, GetResult};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// Each pause is up to twice as long as the one before, up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// What one attempt may take, apart from its bytes.
const ATTEMPT: Duration = Duration::from_secs(30);
/// The slowest that is waited for.
const BYTES_PER_SECOND: u64 = 256 << 10;
/// Requests at a time when nothing is wrong.
const MOST: f64 = 64.0;

#[derive(Debug)]
pub struct Retry {
    patience: Duration,
    first_pause: Duration,
    gate: Gate,
}

impl Retry {
    pub fn new(patience: Duration, first_pause: Duration) -> Retry {
        Retry { patience, first_pause, gate: Gate { state: Mutex::new((MOST, 0)), freed: Notify::new() } }
    }

    /// What a request of little takes at most, with all attempts.
    pub fn longest(&self) -> Duration {
        self.patience + ATTEMPT
    }

    /// `bytes`: what an attempt moves at most. Returns the last attempt's failure.
    pub async fn run<T, F>(&self, bytes: u64, call: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let begun = Instant::now();
        let limit = ATTEMPT + Duration::from_secs(bytes / BYTES_PER_SECOND);
        let mut pause = self.first_pause;
        loop {
            let pass = self.gate.enter().await;
            let result = match timeout(limit, call()).await {
                Ok(result) => result,
                Err(_) => Err(generic(format!("no answer within {} s", limit.as_secs()))),
            };
            let slow = result.as_ref().is_err_and(wants_less);
            self.gate.leave(pass, slow);
            let error = match result {
                Err(error) if may_pass(&error) => error,
                result => return result,
            };
            let waited = pause.mul_f64(0.5 + 0.5 * random());
            if begun.elapsed() + waited > self.patience {
                return Err(error);
            }
            sleep(waited).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// A reply's body in the pieces in which it came; a failure where it has another length, which may pass.
pub async fn body(found: GetResult, expected: u64) -> Result<Vec<Bytes>, Error> {
    let mut stream = found.into_stream();
    let (mut pieces, mut length) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        length += piece.len() as u64;
        if length > expected {
            return Err(generic(format!("the reply has more bytes than the {expected} that were asked for")));
        }
        pieces.push(piece);
    }
    match length == expected {
        true => Ok(pieces),
        false => Err(generic(format!("the reply has {length} bytes; expected {expected}"))),
    }
}

fn generic(message: String) -> Error {
    Error::Generic { store: "S3", source: message.into() }
}

/// Codes of services under a status that says otherwise (400, 403, 404).
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Generic { source, .. } => {
            let text = source.to_string();
            !["status code: 4", "status code: 3", "redirect without LOCATION", "Missing", "invalid"]
                .iter()
                .any(|sign| text.contains(sign))
                || ["429", "408", "RequestTimeout", "SlowDown"].iter().any(|sign| text.contains(sign))
        }
        _ => false,
    }
}

fn wants_less(error: &Error) -> bool {
    let text = error.to_string();
    ["SlowDown", "status code: 503", "status code: 429", "TooManyRequests"].iter().any(|sign| text.contains(sign))
}

/// Between 0 and 1: pauses of several processes must not fall together.
fn random() -> f64 {
    (RandomState::new().hash_one(()) >> 11) as f64 / (1u64 << 53) as f64
}

/// Lets so many requests through at a time as went well lately.
#[derive(Debug)]
struct Gate {
    /// How many may be under way, and how many are.
    state: Mutex<(f64, usize)>,
    freed: Notify,
}

/// One request under way; one that is dropped in mid-course frees its place.
struct Pass<'a>(&'a Gate);

impl Gate {
    async fn enter(&self) -> Pass<'_> {
        loop {
            let freed = self.freed.notified();
            {
                let mut state = self.state.lock().expect("no panics while locked");
                if (state.1 as f64) < state.0 {
                    state.1 += 1;
                    return Pass(self);
                }
            }
            freed.await;
        }
    }

    fn leave(&self, pass: Pass, slow: bool) {
        {
            let mut state = self.state.lock().expect("no panics while locked");
            state.0 = if slow { (state.0 / 2.0).max(1.0) } else { (state.0 + 1.0 / state.0).min(MOST) };
        }
        drop(pass);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.state.lock().expect("no panics while locked").1 -= 1;
        self.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn run(patience: Duration, failures: usize, message: &str) -> (Result<usize, Error>, f64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let retry = Retry::new(patience, Duration::from_millis(1));
        let calls = AtomicUsize::new(0);
        let result = runtime.block_on(retry.run(0, || async {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call < failures { Err(generic(message.to_owned())) } else { Ok(call) }
        }));
        let allowed = retry.gate.state.lock().unwrap().0;
        (result, allowed)
    }

    #[test]
    fn what_may_pass_is_tried_again_within_a_total_time() {
        assert_eq!(run(Duration::from_secs(60), 5, "connection reset").0.unwrap(), 5);
        let error = run(Duration::from_millis(200), 1000, "connection reset").0.unwrap_err();
        assert!(error.to_string().contains("connection reset"), "{error}");
        assert!(run(Duration::from_secs(60), 1, "non-2xx status code: 400 Bad Request").0.is_err());
        assert_eq!(run(Duration::from_secs(60), 1, "non-2xx status code: 429 Too Many").0.unwrap(), 1);
    }

    #[test]
    fn a_service_that_asks_for_less_gets_less_and_later_more() {
        let (_, allowed) = run(Duration::from_secs(60), 3, "non-2xx status code: 503 SlowDown");
        assert!((8.0..9.0).contains(&allowed), "{allowed}");
        assert_eq!(run(Duration::from_secs(60), 0, "").1, MOST);
    }
}
