//! Trying again: what may pass is tried again after a growing, random pause, as long as the service says at least, until a
//! total time is over. One that was never there is waited for a few seconds only. When a service asks to slow down, fewer
//! requests are let through at a time; as they succeed, more.

use super::answer::Answer;
use super::failure::{may_pass, was_reached};
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::{Error, GetResult};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// The same while the service was never reached.
    unreached: Duration,
    reached: AtomicBool,
    first_pause: Duration,
    gate: Gate,
}

impl Retry {
    pub fn new(patience: Duration, unreached: Duration, first_pause: Duration) -> Retry {
        let gate = Gate { state: Mutex::new((MOST, 0)), freed: Notify::new() };
        Retry { patience, unreached, reached: AtomicBool::new(false), first_pause, gate }
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
            let answer = result.as_ref().err().and_then(|error| Answer::of(error));
            self.gate.leave(pass, answer.is_some_and(Answer::wants_less));
            if result.as_ref().err().is_none_or(was_reached) {
                self.reached.store(true, Ordering::Relaxed);
            }
            let asked = answer.and_then(|answer| answer.retry_after).unwrap_or_default();
            let error = match result {
                Err(error) if may_pass(&error) => error,
                result => return result,
            };
            let waited = pause.mul_f64(0.5 + 0.5 * random()).max(asked);
            let patience = if self.reached.load(Ordering::Relaxed) { self.patience } else { self.unreached };
            if begun.elapsed() + waited > patience {
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

/// So is one with other bytes than it must have.
pub fn same(bytes: &[u8], expected: &[u8]) -> Result<(), Error> {
    match bytes == expected {
        true => Ok(()),
        false => Err(generic("the reply has other bytes than were written".to_owned())),
    }
}

fn generic(message: String) -> Error {
    Error::Generic { store: "S3", source: message.into() }
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
    use std::sync::atomic::AtomicUsize;

    fn answer(status: u16, code: &str) -> Error {
        let answer = Answer { status, code: code.to_owned(), ..Answer::default() };
        Error::Generic { store: "S3", source: Box::new(answer.into_refusal()) }
    }

    fn reset() -> Error {
        generic("connection reset".to_owned())
    }

    fn run(patience: Duration, failures: usize, failure: impl Fn() -> Error) -> (Result<usize, Error>, f64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let retry = Retry::new(patience, patience, Duration::from_millis(1));
        let calls = AtomicUsize::new(0);
        let result = runtime.block_on(retry.run(0, || async {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            if call < failures { Err(failure()) } else { Ok(call) }
        }));
        let allowed = retry.gate.state.lock().unwrap().0;
        (result, allowed)
    }

    #[test]
    fn what_may_pass_is_tried_again_within_a_total_time() {
        assert_eq!(run(Duration::from_secs(60), 5, reset).0.unwrap(), 5);
        let error = run(Duration::from_millis(200), 1000, reset).0.unwrap_err();
        assert!(error.to_string().contains("connection reset"), "{error}");
        for (status, code, tries) in [
            (400, "", 1),
            (400, "RequestTimeout", 2),
            (403, "", 1),
            (403, "RequestTimeTooSkewed", 1),
            (409, "", 1),
            (409, "OperationAborted", 2),
            (429, "", 2),
            (500, "", 2),
            (501, "", 1),
            (503, "SlowDown", 2),
            (507, "XMinioStorageFull", 1),
        ] {
            let result = run(Duration::from_secs(60), 1, || answer(status, code)).0;
            assert_eq!(result.map_or(1, |calls| calls + 1), tries, "{status} {code}");
        }
    }

    #[test]
    fn one_that_was_never_there_is_given_up_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let retry = Retry::new(Duration::from_secs(60), Duration::from_millis(50), Duration::from_millis(1));
        let begun = Instant::now();
        assert!(runtime.block_on(retry.run(0, || async { Err::<(), _>(reset()) })).is_err());
        assert!(begun.elapsed() < Duration::from_secs(5));
        runtime.block_on(retry.run(0, || async { Ok(()) })).unwrap();
        let calls = AtomicUsize::new(0);
        let many =
            retry.run(0, || async { if calls.fetch_add(1, Ordering::Relaxed) < 10 { Err(reset()) } else { Ok(()) } });
        runtime.block_on(many).unwrap();
    }

    #[test]
    fn a_service_that_says_how_long_to_wait_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let retry = Retry::new(Duration::from_secs(60), Duration::from_secs(60), Duration::from_millis(1));
        let calls = AtomicUsize::new(0);
        let begun = Instant::now();
        let run = retry.run(0, || async {
            let first = calls.fetch_add(1, Ordering::Relaxed) == 0;
            let asks = Answer { status: 503, retry_after: Some(Duration::from_millis(300)), ..Answer::default() };
            let refusal = Error::Generic { store: "S3", source: Box::new(asks.into_refusal()) };
            if first { Err(refusal) } else { Ok(()) }
        });
        runtime.block_on(run).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(300));
    }

    #[test]
    fn a_service_that_asks_for_less_gets_less_and_later_more() {
        let (_, allowed) = run(Duration::from_secs(60), 3, || answer(503, "SlowDown"));
        assert!((8.0..9.0).contains(&allowed), "{allowed}");
        assert_eq!(run(Duration::from_secs(60), 0, reset).1, MOST);
    }
}
