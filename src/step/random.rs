//! The counter-based random stream of one (seed, epoch, sample key, step name, occurrence): the same draw wherever,
//! whenever and from whichever cut it is made. Specified in `formats/random.md`.

use crate::format::canonical::{Domain, Writer};
use crate::step::Context;

/// An endless stream of random 64-bit words: the extendable output of BLAKE3, read as little-endian words.
pub struct Stream(blake3::OutputReader);

impl Stream {
    /// The stream of one row of one step.
    pub fn new(context: Context, step: &str, key: &str) -> Self {
        let mut writer = Writer::new(Domain::Random);
        writer.list(5);
        writer.int(context.seed.into());
        writer.int(context.epoch.into());
        writer.str(key);
        writer.str(step);
        writer.int(context.occurrence.into());
        Stream(writer.stream())
    }

    pub fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Uniform in `0..n` by multiplying high (the bias is below n / 2^64); 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`: the upper 53 bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Uniform in `[low, high)`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_keyed_by_every_term() {
        let context = Context { seed: u64::MAX, epoch: 1, occurrence: 0 };
        let first = |context, step, key| Stream::new(context, step, key).next_u64();
        let draw = first(context, "image.random_crop", "a.jpg");
        assert_eq!(draw, first(context, "image.random_crop", "a.jpg"));
        assert_ne!(draw, first(context, "image.random_crop", "b.jpg"));
        assert_ne!(draw, first(context, "image.random_flip", "a.jpg"));
        assert_ne!(draw, first(Context { epoch: 2, ..context }, "image.random_crop", "a.jpg"));
        assert_ne!(draw, first(Context { seed: 0, ..context }, "image.random_crop", "a.jpg"));
        assert_ne!(draw, first(Context { occurrence: 1, ..context }, "image.random_crop", "a.jpg"));
    }

    #[test]
    fn draws_are_in_range_and_spread() {
        let mut stream = Stream::new(Context { seed: 0, epoch: 0, occurrence: 0 }, "s", "k");
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[stream.below(10) as usize] += 1;
            assert!((0.0..1.0).contains(&stream.unit()));
        }
        assert!(counts.iter().all(|c| (850..1150).contains(c)), "{counts:?}");
        assert_eq!(stream.below(0), 0);
    }
}
