//! A tree of steps: what several chains want of the same input, with what they share computed once.

use crate::engine::rows::Rows;
use crate::error::{Error, Kind, Result};
use crate::id::RecipeKey;
use crate::plan::chain::{Chain, Stage};
use crate::step::Context;

/// A stage to compute from its parent's rows.
#[derive(Debug, Clone)]
pub struct Node {
    stage: Stage,
    /// Handed out, not only passed on.
    wanted: bool,
    children: Vec<Node>,
}

/// Everything to compute from one stage's rows.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Node,
}

impl Tree {
    /// The tree that leads from stage `start` to each of the stages `wanted`, `start` among them where it is wanted.
    /// Stages are known by recipe, so chains share what is equal.
    pub fn new(chains: &[Chain], start: RecipeKey, wanted: &[RecipeKey]) -> Result<Tree> {
        let first = chains.iter().flat_map(|c| &c.stages).find(|s| s.recipe == start);
        let first = first.ok_or_else(|| Error::internal(format!("no chain has the stage {start}")))?;
        let mut root = Node { stage: first.clone(), wanted: wanted.contains(&start), children: Vec::new() };
        for target in wanted.iter().filter(|w| **w != start) {
            let path = chains.iter().find_map(|chain| {
                let from = chain.stages.iter().position(|s| s.recipe == start)?;
                let to = chain.stages.iter().position(|s| s.recipe == *target)?;
                (from < to).then(|| &chain.stages[from + 1..=to])
            });
            let path = path.ok_or_else(|| Error::internal(format!("no chain leads from {start} to {target}")))?;
            root.insert(path);
        }
        Ok(Tree { root })
    }

    /// Computes from `rows` of the start; calls `emit` with each wanted stage's rows, a stage before those that follow from it.
    pub fn run(&self, rows: Rows, seed: u64, epoch: u64, emit: &mut dyn FnMut(RecipeKey, Rows)) -> Result<()> {
        self.root.run(rows, seed, epoch, emit)
    }
}

impl Node {
    fn insert(&mut self, path: &[Stage]) {
        let Some((next, rest)) = path.split_first() else {
            self.wanted = true;
            return;
        };
        let found = self.children.iter().position(|c| c.stage.recipe == next.recipe);
        let index = found.unwrap_or_else(|| {
            self.children.push(Node { stage: next.clone(), wanted: false, children: Vec::new() });
            self.children.len() - 1
        });
        self.children[index].insert(rest);
    }

    fn run(&self, rows: Rows, seed: u64, epoch: u64, emit: &mut dyn FnMut(RecipeKey, Rows)) -> Result<()> {
        if self.wanted {
            emit(self.stage.recipe, rows.clone());
        }
        self.children.iter().try_for_each(|child| child.step(&rows, seed, epoch, emit))
    }

    /// Applies the step and goes on. Output that is too large for one batch is computed in halves.
    fn step(&self, rows: &Rows, seed: u64, epoch: u64, emit: &mut dyn FnMut(RecipeKey, Rows)) -> Result<()> {
        let context = Context { seed, epoch, occurrence: self.stage.occurrence };
        match rows.apply(&self.stage, context) {
            Ok(done) => self.run(done, seed, epoch, emit),
            Err(error) if error.kind() == Kind::Invalid && rows.len() > 1 => {
                let half = rows.len() / 2;
                self.step(&rows.slice(0, half), seed, epoch, emit)?;
                self.step(&rows.slice(half, rows.len() - half), seed, epoch, emit)
            }
            Err(error) => Err(error),
        }
    }
}
