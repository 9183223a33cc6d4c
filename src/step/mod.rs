//! Level 3: compute on record batches. A step knows its output schema before it sees data; its output for a row is a
//! function of that row and its key alone (and, for a random step, of the seed and epoch).

pub mod image;
pub mod random;
pub mod registry;
pub mod table;

use crate::error::Result;
use crate::format::canonical;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purity {
    Deterministic,
    /// Draws from `random::Stream` only.
    Random,
    /// Depends on what came before; may only end a chain.
    Stateful,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    OneToOne,
    Filter,
    OneToMany,
    /// Sees a whole partition in order.
    Partition,
}

/// What is fixed about a bound step, printable and hashed.
#[derive(Debug, Clone)]
pub struct Info {
    /// Registered name, `image.resize`.
    pub name: &'static str,
    /// Raised whenever the output for any input changes by a bit.
    pub version: u32,
    pub purity: Purity,
    pub cardinality: Cardinality,
    /// Columns read; `_key` is named only where the output depends on it.
    pub reads: Vec<String>,
    /// Columns added, changed or removed.
    pub writes: Vec<String>,
    /// Every parameter with defaults filled in; files by their digest.
    pub params: canonical::Value,
}

/// A step bound to its parameters and input schema.
///
/// Contract: `apply` takes any number of rows, 0 included, and returns `output_schema` exactly. A row whose `_error`
/// is set passes through unchanged with nulls in the columns written (a filter keeps it where a column that it reads is
/// null). A row on which the step fails gets nulls in the columns written and the reason in `_error`, without the step's
/// name, which the engine puts before it; `Err` is for what is wrong with the step or the machine, never with a row.
pub trait Step: Send + Sync + std::fmt::Debug {
    fn info(&self) -> &Info;
    fn output_schema(&self) -> &SchemaRef;
    fn apply(&self, batch: &RecordBatch, context: Context) -> Result<Output>;
}

/// What a random step may depend on besides the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    pub seed: u64,
    pub epoch: u64,
    /// How many steps of the same name stand before this one in the chain.
    pub occurrence: u32,
}

#[derive(Debug, Clone)]
pub struct Output {
    pub batch: RecordBatch,
    /// For each output row the input row it came from, ascending; `None`: one-to-one.
    pub rows: Option<UInt32Array>,
}

impl Output {
    pub fn one_to_one(batch: RecordBatch) -> Self {
        Output { batch, rows: None }
    }
}
