//! What all image steps share: binding to columns, the loop over rows, and building the output columns. A step's own
//! file has its parameters and a `Kernel`, which writes one row.

use super::pixels::{Depth, Image, MOST_BYTES, Shape, check_bytes};
use super::settings::Names;
use crate::error::{Error, Result};
use crate::format::canonical;
use crate::format::schema::words;
use crate::format::shard::tensor::{self, DType, Kind, View};
use crate::format::{ERROR, KEY};
use crate::step::random::Stream;
use crate::step::registry::{Build, Definition};
use crate::step::{Context, Info, Output, Purity, Step};
use arrow::array::{
    Array, ArrayRef, AsArray, LargeBinaryArray, LargeStringArray, LargeStringBuilder, NullBufferBuilder, RecordBatch,
};
use arrow::buffer::{Buffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::fmt::Debug;
use std::sync::Arc;

/// A row's reason to fail.
pub type Reason = String;

/// One step's work on one row.
pub trait Kernel: Debug + Send + Sync {
    /// What is settled once for all columns of a row: a crop's window, a flip.
    type Plan;
    fn plan(&self, row: &Row) -> Result<Self::Plan, Reason>;
    /// Appends the output of one column; returns a tensor's dimensions, or anything where the output is binary.
    fn write(&self, plan: &Self::Plan, cell: Cell, column: &Column, out: &mut Vec<u8>) -> Result<[usize; 3], Reason>;
}

/// A row as a plan sees it.
pub struct Row<'a> {
    /// A cell for each column of the step.
    pub cells: &'a [Option<Cell<'a>>],
    pub columns: &'a [Column],
    context: Context,
    step: &'static str,
    key: &'a str,
}

impl Row<'_> {
    /// The row's random stream.
    pub fn stream(&self) -> Stream {
        Stream::new(self.context, self.step, self.key)
    }

    /// Height and width, which must be those of every column: an image and its mask are cut alike.
    pub fn size(&self) -> Result<(usize, usize), Reason> {
        let mut size = None;
        for (cell, column) in self.cells.iter().zip(self.columns) {
            let Some(Cell::Image(image)) = cell else { continue };
            let own = (image.shape.height, image.shape.width);
            let (height, width) = *size.get_or_insert(own);
            if own != (height, width) {
                return Err(format!(
                    "column {:?} has [{}, {}] pixels where {:?} has [{height}, {width}]; the columns of a step must be of one size",
                    column.name, own.0, own.1, self.columns[0].name
                ));
            }
        }
        size.ok_or_else(|| "no image".into())
    }
}

/// The value of one column in one row.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    Bytes(&'a [u8]),
    Image(Image<'a>),
}

impl<'a> Cell<'a> {
    pub fn image(self) -> Result<Image<'a>, Reason> {
        match self {
            Cell::Image(image) => Ok(image),
            Cell::Bytes(_) => Err("bytes where an image was bound".into()),
        }
    }
    pub fn bytes(self) -> Result<&'a [u8], Reason> {
        match self {
            Cell::Bytes(bytes) => Ok(bytes),
            Cell::Image(_) => Err("an image where bytes were bound".into()),
        }
    }
}

/// A column that a step reads and writes.
#[derive(Debug)]
pub struct Column {
    pub name: String,
    /// Classes, not colours: never blended.
    pub mask: bool,
    input: usize,
    output: usize,
    target: Target,
}

/// What an output column holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// Dimensions known to be equal in all rows are `Some`.
    Tensor(DType, [Option<usize>; 3]),
    Binary,
}

/// An input column as known before any data.
pub struct Input {
    pub mask: bool,
    /// Absent for encoded bytes.
    pub image: Option<Images>,
}

/// What is known of an image column before any data.
#[derive(Debug, Clone, Copy)]
pub struct Images {
    pub depth: Depth,
    /// Height, width and channels where equal in all rows.
    pub dims: [Option<usize>; 3],
}

impl Images {
    pub const fn dtype(&self) -> DType {
        match self.depth {
            Depth::Eight => DType::U8,
            Depth::Sixteen => DType::U16,
        }
    }
    /// The same with another height and width.
    pub const fn sized(&self, height: Option<usize>, width: Option<usize>) -> Target {
        Target::Tensor(self.dtype(), [height, width, self.dims[2]])
    }
}

impl Input {
    pub fn images(&self) -> Result<Images> {
        self.image.ok_or_else(|| Error::internal("bytes where images were asked for"))
    }
}

/// Which columns a step takes, and which its parameters name.
pub struct Selection<'a> {
    pub takes: Takes,
    pub column: &'a mut Option<Names>,
    pub to: &'a mut Option<Names>,
    pub masks: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// `large_binary`
    Encoded,
    /// Tensors of three dimensions, uint8 or uint16.
    Images,
}

/// Columns that a source names after what is in them; the first choice where several columns are binary.
const ENCODED_NAMES: [&str; 11] = ["image", "img", "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "photo"];

/// A step bound to its columns.
#[derive(Debug)]
pub struct Bound {
    info: Info,
    input: SchemaRef,
    schema: SchemaRef,
    columns: Vec<Column>,
    key: usize,
    error: usize,
}

impl Bound {
    /// Finds the columns (and notes them in the selection, so that the parameters hashed name them) and settles the
    /// output schema with `target`, whose errors say their own place.
    pub fn new(
        build: &Build,
        (definition, version): (&Definition, u32),
        selection: Selection,
        mut target: impl FnMut(&Input) -> Result<Target>,
    ) -> Result<Self> {
        let input = build.input;
        let &Definition { name, purity, cardinality, .. } = definition;
        let own = |column: &str| {
            input.index_of(column).map_err(|_| Error::internal(format!("{name} is bound to a schema without {column}")))
        };
        let (key, error) = (own(KEY)?, own(ERROR)?);
        let Selection { takes, column, to, masks } = selection;
        let names = match column {
            Some(names) => names.clone(),
            None => Names::new(vec![only_fit(build, takes)?]),
        };
        let outputs = to.clone().unwrap_or_else(|| names.clone());
        if outputs.as_slice().len() != names.as_slice().len() {
            return Err(build.params.span_of("to").error(format!(
                "expected a name for each of {} columns, found {}",
                names.as_slice().len(),
                outputs.as_slice().len()
            )));
        }
        if let Some(mask) = masks.iter().find(|mask| !names.as_slice().contains(mask)) {
            let message = format!("expected masks to be among the columns {:?}, found {mask:?}", names.as_slice());
            return Err(build.params.span_of("masks").error(message));
        }
        let mut fields: Vec<Arc<Field>> = input.fields().iter().cloned().collect();
        let mut columns = Vec::new();
        for (name, to) in names.as_slice().iter().zip(outputs.as_slice()) {
            let index = input.index_of(name).map_err(|_| no_such_column(build, name, takes))?;
            let field = input.field(index);
            let image = images(field).map_err(|e| build.params.span_of("column").error(e.chain()))?;
            if !takes.fits(field) {
                return Err(build.params.span_of("column").error(format!(
                    "column {name:?} is {}; expected {}",
                    describe(field),
                    takes.describe()
                )));
            }
            let mask = masks.contains(name);
            let target = target(&Input { mask, image })?;
            if let Target::Tensor(dtype, dims) = &target {
                // What isn't known yet is at least 1.
                let [a, b, c] = dims.map(|side| side.unwrap_or(1));
                check_bytes(a, b, c.saturating_mul(dtype.bytes()))
                    .map_err(|reason| build.params.span_of("size").error(reason))?;
            }
            let field = Arc::new(target.field(to).map_err(|e| build.span.error(e.chain()))?);
            let output = match input.index_of(to) {
                Ok(output) if output == index => {
                    fields[output] = field;
                    output
                }
                Ok(_) => {
                    let message = format!("there is a column {to:?} already; expected a new name");
                    return Err(build.params.span_of("to").error(message));
                }
                Err(_) => {
                    fields.push(field);
                    fields.len() - 1
                }
            };
            columns.push(Column { name: name.clone(), mask, input: index, output, target });
        }
        let mut reads: Vec<String> = names.as_slice().to_vec();
        if purity == Purity::Random {
            reads.push(KEY.to_owned());
        }
        let writes = outputs.as_slice().to_vec();
        (*column, *to) = (Some(names), Some(outputs));
        let params = canonical::Value::Null;
        let info = Info { name, version, purity, cardinality, reads, writes, params };
        let schema = Arc::new(Schema::new_with_metadata(fields, input.metadata().clone()));
        Ok(Bound { info, input: input.clone(), schema, columns, key, error })
    }

    /// The step: `params` are the parameters with every default filled in.
    pub fn step<K: Kernel + 'static>(mut self, params: &impl serde::Serialize, kernel: K) -> Result<Arc<dyn Step>> {
        self.info.params = canonical::Value::of(params)?;
        Ok(Arc::new(ImageStep { bound: self, kernel }))
    }
}

impl Takes {
    fn fits(self, field: &Field) -> bool {
        match self {
            Takes::Encoded => *field.data_type() == DataType::LargeBinary,
            Takes::Images => matches!(images(field), Ok(Some(_))),
        }
    }
    const fn describe(self) -> &'static str {
        match self {
            Takes::Encoded => "a column of encoded images (bytes)",
            Takes::Images => "a column of images (uint8 or uint16 tensors of height, width and channels)",
        }
    }
}

/// What a field says about its images; `None` where it holds none.
fn images(field: &Field) -> Result<Option<Images>> {
    let (dtype, dims) = match tensor::kind(field)? {
        Kind::Fixed { dtype, shape } => (dtype, shape.into_iter().map(Some).collect()),
        Kind::Variable { dtype, uniform, .. } => (dtype, uniform),
        Kind::NotTensor => return Ok(None),
    };
    let depth = match dtype {
        DType::U8 => Depth::Eight,
        DType::U16 => Depth::Sixteen,
        _ => return Ok(None),
    };
    Ok(<[Option<usize>; 3]>::try_from(dims).ok().map(|dims| Images { depth, dims }))
}

fn describe(field: &Field) -> String {
    match tensor::kind(field) {
        Ok(Kind::Fixed { dtype, shape }) => format!("{} tensors of shape {shape:?}", dtype.name()),
        Ok(Kind::Variable { dtype, ndim, .. }) => format!("{} tensors of {ndim} dimensions", dtype.name()),
        _ => words(field.data_type()),
    }
}

fn only_fit(build: &Build, takes: Takes) -> Result<String> {
    let fits: Vec<&str> =
        build.input.fields().iter().filter(|f| takes.fits(f)).map(|field| field.name().as_str()).collect();
    let named: Vec<&str> = match takes {
        Takes::Encoded => fits.iter().copied().filter(|name| ENCODED_NAMES.contains(name)).collect(),
        Takes::Images => Vec::new(),
    };
    match (fits.as_slice(), named.as_slice()) {
        ([only], _) | (_, [only]) => Ok((*only).to_owned()),
        ([], _) => Err(build.span.error(format!(
            "no column fits: expected {}, found {}",
            takes.describe(),
            build
                .input
                .fields()
                .iter()
                .map(|f| format!("{} ({})", f.name(), describe(f)))
                .collect::<Vec<_>>()
                .join(", ")
        ))),
        (several, _) => {
            Err(build.span.error(format!("several columns fit: {}; say which with column:", several.join(", "))))
        }
    }
}

fn no_such_column(build: &Build, name: &str, takes: Takes) -> Error {
    let fits = build.input.fields().iter().filter(|f| takes.fits(f)).map(|f| f.name().as_str());
    let hint = crate::spec::node::suggest(name, "columns that fit are", fits);
    build.params.span_of("column").error(format!("there is no column {name:?}; {hint}"))
}

impl Target {
    fn field(&self, name: &str) -> Result<Field> {
        match self {
            Target::Binary => Ok(Field::new(name, DataType::LargeBinary, true)),
            Target::Tensor(dtype, [Some(a), Some(b), Some(c)]) => tensor::fixed_field(name, *dtype, &[*a, *b, *c]),
            Target::Tensor(dtype, dims) => tensor::variable_field(name, *dtype, dims),
        }
    }
}

#[derive(Debug)]
struct ImageStep<K> {
    bound: Bound,
    kernel: K,
}

impl<K: Kernel> Step for ImageStep<K> {
    fn info(&self) -> &Info {
        &self.bound.info
    }
    fn output_schema(&self) -> &SchemaRef {
        &self.bound.schema
    }
    fn apply(&self, batch: &RecordBatch, context: Context) -> Result<Output> {
        let bound = &self.bound;
        let name = bound.info.name;
        let wrong = |what: &str| Error::internal(format!("{name}: {what}"));
        let keys = batch.column(bound.key).as_string_opt::<i64>().ok_or_else(|| wrong("_key is no large_utf8"))?;
        let errors =
            batch.column(bound.error).as_string_opt::<i64>().ok_or_else(|| wrong("_error is no large_utf8"))?;
        let columns = &bound.columns;
        let inputs = columns
            .iter()
            .map(|c| Reader::new(bound.input.field(c.input), batch.column(c.input)))
            .collect::<Result<Vec<_>>>()?;
        for target in columns.iter().map(|c| &c.target) {
            if batch.num_rows() > 1
                && target.fixed_bytes().is_some_and(|b| b.saturating_mul(batch.num_rows()) > MOST_BYTES)
            {
                return Err(Error::invalid("a batch of images would be more than 1 GiB; use smaller batches"));
            }
        }
        let mut sinks: Vec<Sink> = columns.iter().map(|c| Sink::new(&c.target, batch.num_rows())).collect();
        let mut failures: Vec<(usize, Reason)> = Vec::new();
        let mut cells = Vec::with_capacity(columns.len());
        let mut written: Vec<Option<[usize; 3]>> = Vec::with_capacity(columns.len());
        for index in 0..batch.num_rows() {
            written.clear();
            if errors.is_null(index) {
                cells.clear();
                let mut row = || -> Result<(), Reason> {
                    for input in &inputs {
                        cells.push(input.cell(index)?);
                    }
                    if cells.iter().all(Option::is_none) {
                        return Ok(());
                    }
                    let key = keys.value(index);
                    let row = Row { cells: &cells, columns, context, step: name, key };
                    let plan = self.kernel.plan(&row)?;
                    for ((cell, column), sink) in cells.iter().zip(columns).zip(&mut sinks) {
                        let dims =
                            match cell {
                                Some(cell) => Some(self.kernel.write(&plan, *cell, column, &mut sink.values).map_err(
                                    |reason| match columns.len() {
                                        1 => reason,
                                        _ => format!("column {:?}: {reason}", column.name),
                                    },
                                )?),
                                None => None,
                            };
                        written.push(dims);
                    }
                    Ok(())
                };
                if let Err(reason) = row() {
                    written.clear();
                    failures.push((index, reason));
                }
            }
            for (at, sink) in sinks.iter_mut().enumerate() {
                sink.commit(written.get(at).copied().flatten())?;
            }
        }
        let mut arrays: Vec<ArrayRef> = batch.columns().to_vec();
        arrays.resize(bound.schema.fields().len(), arrays[bound.error].clone());
        for (column, sink) in columns.iter().zip(sinks) {
            arrays[column.output] = sink.finish()?;
        }
        if !failures.is_empty() {
            arrays[bound.error] = Arc::new(with_failures(errors, &failures));
        }
        Ok(Output::one_to_one(RecordBatch::try_new(bound.schema.clone(), arrays)?))
    }
}

fn with_failures(errors: &LargeStringArray, failures: &[(usize, Reason)]) -> LargeStringArray {
    let mut builder = LargeStringBuilder::new();
    let mut failures = failures.iter().peekable();
    for (index, error) in errors.iter().enumerate() {
        match failures.next_if(|(row, _)| *row == index) {
            Some((_, reason)) => builder.append_value(reason),
            None => builder.append_option(error),
        }
    }
    builder.finish()
}

/// Rows of an input column.
enum Reader<'a> {
    Binary(&'a LargeBinaryArray),
    Tensor(View, Depth),
}

impl<'a> Reader<'a> {
    fn new(field: &Field, array: &'a ArrayRef) -> Result<Self> {
        match images(field)? {
            Some(images) => Ok(Reader::Tensor(View::new(field, array)?, images.depth)),
            None => array
                .as_binary_opt::<i64>()
                .map(Reader::Binary)
                .ok_or_else(|| Error::internal(format!("column {:?} is no large_binary", field.name()))),
        }
    }

    /// `None` where the row is null.
    fn cell(&self, index: usize) -> Result<Option<Cell<'_>>, Reason> {
        match self {
            Reader::Binary(array) => Ok(array.is_valid(index).then(|| Cell::Bytes(array.value(index)))),
            Reader::Tensor(view, depth) => {
                let Some(row) = view.row(index).map_err(|e| e.chain())? else { return Ok(None) };
                let side = |at: usize| row.shape.get(at).and_then(|side| usize::try_from(*side).ok()).unwrap_or(0);
                let shape = Shape { height: side(0), width: side(1), channels: side(2) };
                if shape.dims().contains(&0) {
                    return Err(format!("an image without pixels, of shape {:?}", row.shape));
                }
                let image = Image::new(shape, *depth, row.bytes);
                Ok(Some(Cell::Image(image.ok_or("an image whose bytes are not those of its shape")?)))
            }
        }
    }
}

/// Bytes reserved before they are needed, at most.
const MOST_RESERVED: usize = 1 << 30;

/// An output column being built: kernels append to `values`, then the row is committed or taken back.
struct Sink<'a> {
    target: &'a Target,
    /// Expected.
    rows: usize,
    values: Vec<u8>,
    /// Bytes of committed rows.
    committed: usize,
    /// Bytes of each row; unused where all are equal.
    lengths: Vec<usize>,
    shapes: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl<'a> Sink<'a> {
    fn new(target: &'a Target, rows: usize) -> Self {
        let values =
            Vec::with_capacity(target.fixed_bytes().map_or(0, |bytes| bytes.saturating_mul(rows).min(MOST_RESERVED)));
        Sink {
            target,
            rows,
            values,
            committed: 0,
            lengths: Vec::new(),
            shapes: Vec::new(),
            nulls: NullBufferBuilder::new(rows),
        }
    }

    /// Ends a row: `None` is null, and takes back what was appended.
    fn commit(&mut self, dims: Option<[usize; 3]>) -> Result<()> {
        if dims.is_none() {
            self.values.truncate(self.committed);
        } else if self.committed == 0 && self.target.fixed_bytes().is_none() {
            // The other rows will be about as large as the first: no growing, which copies.
            let expected = self.values.len().saturating_mul(self.rows - self.nulls.len() - 1);
            self.values.reserve(expected.min(MOST_RESERVED));
        }
        self.nulls.append(dims.is_some());
        if let (Target::Tensor(_, declared), Some(dims)) = (self.target, dims)
            && !declared.iter().zip(dims).all(|(declared, found)| declared.is_none_or(|declared| declared == found))
        {
            return Err(Error::internal(format!("an image of {dims:?} where {declared:?} is declared")));
        }
        match self.target.fixed_bytes() {
            Some(bytes) => self.values.resize(self.committed + bytes, 0),
            None => {
                self.lengths.push(self.values.len() - self.committed);
                if let Target::Tensor(dtype, _) = self.target {
                    if self.values.len() / dtype.bytes() > i32::MAX as usize {
                        return Err(Error::invalid(
                            "a batch of images has more than 2^31 - 1 channels; use smaller batches",
                        ));
                    }
                    // Sides are bounded by the number of elements, which fits.
                    self.shapes.extend(dims.unwrap_or_default().map(|side| side as i32));
                }
            }
        }
        self.committed = self.values.len();
        Ok(())
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let nulls = self.nulls.finish();
        let values = Buffer::from_vec(self.values);
        match self.target {
            Target::Binary => {
                let offsets = OffsetBuffer::<i64>::from_lengths(self.lengths);
                Ok(Arc::new(LargeBinaryArray::try_new(offsets, values, nulls)?))
            }
            Target::Tensor(dtype, [Some(a), Some(b), Some(c)]) => {
                tensor::fixed_array(*dtype, &[*a, *b, *c], values, nulls)
            }
            Target::Tensor(dtype, dims) => {
                let elements = self.lengths.into_iter().map(|bytes| bytes / dtype.bytes());
                tensor::variable_array(*dtype, dims.len(), values, elements, self.shapes, nulls)
            }
        }
    }
}

impl Target {
    /// A row's bytes, where all rows have as many.
    fn fixed_bytes(&self) -> Option<usize> {
        match self {
            Target::Tensor(dtype, [Some(a), Some(b), Some(c)]) => Some(a * b * c * dtype.bytes()),
            _ => None,
        }
    }
}
