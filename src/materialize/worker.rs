//! Several machines that store the same targets: which partitions each takes, and in which turn. Pure; nobody talks to
//! anybody, and any number of them may start late, die or come again.
//!
//! Each partition ranks all workers. A worker takes the partitions where it is first (its own part), then those where it is
//! second, and so on, looking each time whether the shards are there by now. Its own part is every n-th partition, so that a
//! stretch of large files is shared by all. The part of one that died falls to all others in equal shares, and the shares of
//! two that died likewise. From one rank to the next the direction turns, so that who helps begins where the helped one
//! would come last.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Worker `index` of `of`, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    index: u32,
    of: u32,
}

impl Worker {
    pub fn new(index: u32, of: u32) -> Result<Worker> {
        match index < of {
            true => Ok(Worker { index, of }),
            false => Err(Error::invalid(format!(
                "there is no worker {index} of {of}: workers count from 0, expected a number below {of}"
            ))),
        }
    }

    /// Whether the partition is of this worker's own part.
    pub fn owns(self, partition: usize) -> bool {
        self.rank(partition) == 0
    }

    /// When the partition is visited: the lower, the sooner. No two partitions have one turn.
    pub fn turn(self, partition: usize) -> (usize, isize) {
        let rank = self.rank(partition);
        let place = isize::try_from(partition).unwrap_or(isize::MAX);
        (rank, if rank.is_multiple_of(2) { place } else { -place })
    }

    /// Of n workers each has another one, from 0.
    fn rank(self, partition: usize) -> usize {
        let (index, of) = (self.index as usize, self.of as usize);
        match (index + of - partition % of) % of {
            0 => 0,
            // Partitions of one part rank the others in turn.
            behind => 1 + (behind - 1 + partition / of) % (of - 1),
        }
    }
}

impl fmt::Display for Worker {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// `0/4`: the first of four.
impl FromStr for Worker {
    type Err = Error;
    fn from_str(text: &str) -> Result<Worker> {
        let number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
        let parts = text.split_once('/').and_then(|(index, of)| Some((number(index)?, number(of)?)));
        let (index, of) = parts.ok_or_else(|| {
            Error::invalid(format!("expected I/N, worker I of N counted from 0, such as 0/4; found {text:?}"))
        })?;
        Worker::new(index, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn order(worker: Worker, partitions: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..partitions).collect();
        order.sort_by_key(|partition| worker.turn(*partition));
        order
    }

    fn workers(of: u32) -> impl Iterator<Item = Worker> {
        (0..of).map(move |index| Worker::new(index, of).unwrap())
    }

    #[test]
    fn every_worker_visits_every_partition_its_own_part_first() {
        for of in [1, 2, 3, 4, 5, 8, 17, 100] {
            for partitions in [0, 1, 2, 3, 7, 40, 100, 333] {
                let mut owned = BTreeSet::new();
                for worker in workers(of) {
                    let order = order(worker, partitions);
                    assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), partitions, "{worker} of {partitions}");
                    let own: Vec<usize> =
                        (0..partitions).filter(|p| p % of as usize == worker.index as usize).collect();
                    assert_eq!(order[..own.len()], own, "{worker} of {partitions}");
                    assert!(own.len().abs_diff(partitions / of as usize) <= 1);
                    owned.extend(own);
                }
                assert_eq!(owned.len(), partitions);
            }
        }
    }

    #[test]
    fn all_orders_are_distinct() {
        for of in [2, 3, 4, 5, 8, 17, 100] {
            for partitions in [of as usize, of as usize + 1, 3 * of as usize, 333] {
                let orders: BTreeSet<Vec<usize>> = workers(of).map(|worker| order(worker, partitions)).collect();
                assert_eq!(orders.len(), of as usize, "{partitions} partitions");
            }
        }
    }

    /// Each partition ranks the workers from first to last, so that of those who help at the same rank no two meet.
    #[test]
    fn no_two_workers_have_one_rank() {
        for of in [1, 2, 3, 4, 5, 8, 17] {
            for partition in 0..400 {
                let ranks: BTreeSet<usize> = workers(of).map(|worker| worker.rank(partition)).collect();
                assert_eq!(ranks, (0..of as usize).collect());
            }
        }
    }

    #[test]
    fn the_part_of_a_dead_worker_is_shared_by_the_others() {
        for dead in 0..5 {
            let mut shares: BTreeMap<u32, usize> = BTreeMap::new();
            for partition in (0..1000).filter(|p| p % 5 == dead) {
                let helper = workers(5).find(|worker| worker.rank(partition) == 1).unwrap();
                *shares.entry(helper.index).or_default() += 1;
            }
            assert_eq!(shares.into_values().collect::<Vec<_>>(), [50; 4]);
        }
    }

    #[test]
    fn who_helps_begins_where_the_helped_one_comes_last() {
        let [one, other] = [0, 1].map(|index| order(Worker::new(index, 2).unwrap(), 10));
        assert_eq!(one, [0, 2, 4, 6, 8, 9, 7, 5, 3, 1]);
        assert_eq!(other, [1, 3, 5, 7, 9, 8, 6, 4, 2, 0]);
    }

    #[test]
    fn a_worker_is_a_number_below_another() {
        for (text, worker) in [("0/1", "0/1"), ("3/4", "3/4"), ("007/100", "7/100")] {
            assert_eq!(text.parse::<Worker>().unwrap().to_string(), worker);
        }
        for text in
            ["", "1", "/", "1/", "/4", "-1/4", "+1/4", "1/4/5", "a/b", "0x1/4", " 1/4", "1/99999999999999999999"]
        {
            let error = text.parse::<Worker>().unwrap_err();
            assert!(error.message().starts_with("expected I/N"), "{text:?}: {error}");
        }
        for (text, words) in [("4/4", "no worker 4 of 4"), ("9/4", "no worker 9 of 4"), ("0/0", "no worker 0 of 0")] {
            assert!(text.parse::<Worker>().unwrap_err().message().contains(words), "{text}");
        }
    }
}
