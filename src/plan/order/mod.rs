//! The order of samples as a pure function of (order table, seed, epoch, position, L, K); ranks, tails and the cursor.
//! Specified in `formats/order.md`.
