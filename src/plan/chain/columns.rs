//! What follows from the columns that steps read and write: which steps a counting pass must run, and which steps could
//! stand before a random one.

use super::Chain;
use crate::format::{ERROR, KEY};
use crate::step::{Cardinality, Info, Purity};
use std::collections::BTreeSet;

/// What must be computed to know how many rows of each partition reach the last deterministic stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counting {
    /// Indices of the stages whose steps must run, ascending; none where the chain is one-to-one.
    pub stages: Vec<usize>,
    /// Whether these need more of the source than `_key`, so that it must be read.
    pub source: bool,
}

impl Chain {
    /// Follows reads and writes backwards from the steps that change the number of rows.
    ///
    /// A row that failed passes through later steps, with nulls in what they write, so what a step does depends on whether any
    /// step before it failed. Only a filter whose columns are never null decides without that.
    pub fn counting(&self) -> Counting {
        let mut stages = Vec::new();
        let mut needed: BTreeSet<&str> = BTreeSet::new();
        let last = self.last_deterministic();
        for index in (1..=last).rev() {
            let Some(step) = &self.stages[index].step else { continue };
            let info = step.info();
            let matters = |column: &String| needed.contains(column.as_str());
            if info.cardinality == Cardinality::OneToOne && !needed.contains(ERROR) && !info.writes.iter().any(matters)
            {
                continue;
            }
            stages.push(index);
            needed.retain(|column| !info.writes.iter().any(|written| written == column));
            needed.extend(info.reads.iter().map(String::as_str));
            let input = &self.stages[index - 1].schema;
            let never_null = |column: &String| input.field_with_name(column).is_ok_and(|field| !field.is_nullable());
            if info.cardinality != Cardinality::Filter || !info.reads.iter().all(never_null) {
                needed.insert(ERROR);
            }
        }
        stages.reverse();
        Counting { stages, source: needed.iter().any(|column| *column != KEY) }
    }

    /// Indices of the deterministic stages behind the first random step that neither depend on a step that must stay nor
    /// disturb one: moved before it, they could be stored.
    pub fn movable(&self) -> Vec<usize> {
        let mut staying: Vec<&Info> = Vec::new();
        let mut movable = Vec::new();
        for (index, stage) in self.stages.iter().enumerate().skip(self.last_deterministic() + 1) {
            let Some(step) = &stage.step else { continue };
            let info = step.info();
            let free = info.purity == Purity::Deterministic
                && matches!(info.cardinality, Cardinality::OneToOne | Cardinality::Filter)
                && staying.iter().all(|other| independent(info, other));
            if free {
                movable.push(index);
            } else {
                staying.push(info);
            }
        }
        movable
    }
}

/// Whether two steps may change places.
fn independent(later: &Info, earlier: &Info) -> bool {
    let apart = |a: &[String], b: &[String]| a.iter().all(|column| !b.contains(column));
    apart(&later.reads, &earlier.writes)
        && apart(&later.writes, &earlier.reads)
        && apart(&later.writes, &earlier.writes)
}
