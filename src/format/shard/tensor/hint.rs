//! How other tools turn a stored tensor column into numpy arrays, in one line each. The lines are run by the tests.

use super::Kind;
use crate::error::Result;
use crate::format::encoding::Container;
use arrow::datatypes::Field;

/// A tool that reads shards without Forebay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consumer {
    PyArrow,
    Polars,
    /// Parquet only.
    DuckDb,
}

/// What the lines for a container's files need.
pub fn decode_imports(container: Container) -> &'static str {
    match container {
        Container::Arrow => "import numpy as np, polars as pl, pyarrow as pa",
        Container::Parquet => "import duckdb, numpy as np, polars as pl, pyarrow.parquet as pq",
    }
}

/// A Python expression for the column's values, given `path` and `decode_imports`. Tensors become a list of arrays of the right dtype and shape, `None`
/// where null; other columns a list of Python values. `None`: the tool doesn't read the container.
pub fn decode_hint(field: &Field, container: Container, consumer: Consumer) -> Result<Option<String>> {
    let name = field.name();
    // A JSON string is a Python string; SQL doubles the quotes of a name.
    let column = serde_json::Value::from(name.as_str()).to_string();
    let shape_column = serde_json::Value::from(shape_column(name)).to_string();
    let sql = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let open = match (container, consumer) {
        (Container::Arrow, Consumer::PyArrow) => "pa.ipc.open_file(path).read_all()",
        (Container::Arrow, Consumer::Polars) => "pl.read_ipc(path)",
        (Container::Parquet, Consumer::PyArrow) => "pq.ParquetFile(path).read()",
        (Container::Parquet, Consumer::Polars) => "pl.read_parquet(path)",
        (Container::Parquet, Consumer::DuckDb) => "duckdb",
        (Container::Arrow, Consumer::DuckDb) => return Ok(None),
    };
    let list = match consumer {
        Consumer::PyArrow => "to_pylist",
        Consumer::Polars | Consumer::DuckDb => "to_list",
    };
    let select = |columns: &str| {
        let query = serde_json::Value::from(format!("SELECT {columns} FROM read_parquet(?)"));
        format!("duckdb.execute({query}, [path]).fetchall()")
    };
    let hint = match (super::kind(field)?, container) {
        (Kind::NotTensor, _) => match consumer {
            Consumer::DuckDb => format!("[v for (v,) in {}]", select(&sql(name))),
            _ => format!("{open}[{column}].{list}()"),
        },
        (Kind::Fixed { dtype, shape }, Container::Parquet) => {
            let array = format!("np.frombuffer(v, {:?}).reshape({})", dtype.name(), tuple(&shape));
            match consumer {
                Consumer::DuckDb => {
                    format!("[None if v is None else {array} for (v,) in {}]", select(&sql(name)))
                }
                _ => format!("[None if v is None else {array} for v in {open}[{column}].{list}()]"),
            }
        }
        (Kind::Variable { dtype, .. }, Container::Parquet) => {
            let array = format!("np.frombuffer(v, {:?}).reshape(s)", dtype.name());
            let pairs = match consumer {
                Consumer::DuckDb => select(&format!("{}, {}", sql(name), sql(&self::shape_column(name)))),
                _ => format!("zip(*({open}[c].{list}() for c in ({column}, {shape_column})))"),
            };
            format!("[None if v is None else {array} for v, s in {pairs}]")
        }
        (Kind::Fixed { dtype, shape }, Container::Arrow) => {
            let array = format!("np.array(v, {:?}).reshape({})", dtype.name(), tuple(&shape));
            match consumer {
                Consumer::PyArrow => format!(
                    "[v.values.to_numpy().reshape({}) if v.is_valid else None for c in {open}[{column}].chunks for v in c.storage]",
                    tuple(&shape)
                ),
                _ => format!("[None if v is None else {array} for v in {open}[{column}].{list}()]"),
            }
        }
        (Kind::Variable { dtype, .. }, Container::Arrow) => {
            let array = format!("np.array(v[\"data\"], {:?}).reshape(v[\"shape\"])", dtype.name());
            format!("[None if v is None else {array} for v in {open}[{column}].{list}()]")
        }
    };
    Ok(Some(hint))
}

/// The Parquet column beside a ragged tensor column that holds its rows' shapes.
pub fn shape_column(name: &str) -> String {
    format!("{name}_shape")
}

fn tuple(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}
