//! Round trips, determinism and damage.
