//! Values for people: a type in words, a value in a line, a stage of a sample as files.

use crate::error::{Error, Result};
use crate::format::schema::words;
use crate::format::shard::tensor::{DType, Kind, View, kind};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::path::{Path, PathBuf};

/// `uint8 [?, ?, 3]`, `text`, …
pub fn type_name(field: &Field) -> String {
    let sizes = |sizes: &[Option<usize>]| {
        let texts: Vec<String> = sizes.iter().map(|s| s.map_or("?".to_owned(), |s| s.to_string())).collect();
        texts.join(", ")
    };
    match kind(field) {
        Ok(Kind::Fixed { dtype, shape }) => format!("{} {shape:?}", dtype.name()),
        Ok(Kind::Variable { dtype, uniform, .. }) => format!("{} [{}]", dtype.name(), sizes(&uniform)),
        _ => words(field.data_type()),
    }
}

/// One value in at most about 60 characters.
pub fn short(field: &Field, array: &ArrayRef, row: usize) -> String {
    if array.is_null(row) {
        return "null".to_owned();
    }
    if let Ok(Kind::Fixed { .. } | Kind::Variable { .. }) = kind(field) {
        let shape =
            View::new(field, array).ok().and_then(|v| v.row(row).ok().flatten().map(|r| (v.dtype(), r.shape.to_vec())));
        return shape.map_or("?".to_owned(), |(dtype, shape)| format!("{} {shape:?}", dtype.name()));
    }
    if let Some(bytes) = array.as_binary_opt::<i64>() {
        return format!("{} bytes", bytes.value(row).len());
    }
    let options = FormatOptions::default();
    let text = ArrayFormatter::try_new(array.as_ref(), &options).map_or("?".to_owned(), |f| f.value(row).to_string());
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(61).collect();
    if flat.chars().count() > 60 { format!("{}…", flat.chars().take(59).collect::<String>()) } else { flat }
}

/// A row as JSON: numbers and texts as they are, tensors and bytes by type and size.
pub fn row_json(batch: &RecordBatch, row: usize) -> serde_json::Value {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    serde_json::Value::Object(
        fields.map(|(field, array)| (field.name().clone(), value_json(field, array, row))).collect(),
    )
}

fn value_json(field: &Field, array: &ArrayRef, row: usize) -> serde_json::Value {
    use arrow::datatypes::{Float32Type, Float64Type, Int32Type, Int64Type, UInt32Type, UInt64Type};
    if array.is_null(row) {
        return serde_json::Value::Null;
    }
    match array.data_type() {
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => array.as_primitive::<Float32Type>().value(row).into(),
        DataType::Float64 => array.as_primitive::<Float64Type>().value(row).into(),
        _ => short(field, array, row).into(),
    }
}

/// Writes a row's columns into `directory` as files named `<prefix>.<column>.<extension>`: images as PNG, texts and numbers as
/// text, bytes as they are. Columns that begin with `_` are left out.
pub fn save(batch: &RecordBatch, row: usize, directory: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        if field.name().starts_with('_') || array.is_null(row) {
            continue;
        }
        let path = |extension: &str| directory.join(format!("{prefix}.{}.{extension}", file_name(field.name())));
        let target = match (kind(field), array.as_binary_opt::<i64>()) {
            (Ok(Kind::Fixed { .. } | Kind::Variable { .. }), _) => {
                let view = View::new(field, array)?;
                let Some(tensor) = view.row(row)? else { continue };
                match png(view.dtype(), tensor.shape, tensor.bytes)? {
                    Some(png) => write(path("png"), &png)?,
                    None => write(path("bin"), tensor.bytes)?,
                }
            }
            (_, Some(bytes)) => write(path(extension(bytes.value(row))), bytes.value(row))?,
            _ => {
                let text = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default())?.value(row).to_string();
                write(path("txt"), format!("{text}\n").as_bytes())?
            }
        };
        written.push(target);
    }
    Ok(written)
}

/// A key or column as part of a file's name.
pub fn file_name(text: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    let name: String = text.chars().map(safe).take(80).collect();
    name.trim_start_matches('.').to_owned()
}

/// A PNG of an image of 8 or 16 bits, or of floats in 0..1 stretched from their own range; `None` for what is no image.
fn png(dtype: DType, shape: &[i32], bytes: &[u8]) -> Result<Option<Vec<u8>>> {
    let &[height, width, channels] = shape else { return Ok(None) };
    let color = match (channels, dtype) {
        (1, DType::U8 | DType::F32) => image::ExtendedColorType::L8,
        (3, DType::U8 | DType::F32) => image::ExtendedColorType::Rgb8,
        (4, DType::U8 | DType::F32) => image::ExtendedColorType::Rgba8,
        (1, DType::U16) => image::ExtendedColorType::L16,
        (3, DType::U16) => image::ExtendedColorType::Rgb16,
        (4, DType::U16) => image::ExtendedColorType::Rgba16,
        _ => return Ok(None),
    };
    let stretched;
    let bytes = if dtype == DType::F32 {
        let values: Vec<f32> = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let low = values.iter().copied().fold(f32::INFINITY, f32::min);
        let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let scale = if high > low { 255.0 / (high - low) } else { 0.0 };
        stretched = values.iter().map(|v| ((v - low) * scale).round() as u8).collect::<Vec<u8>>();
        &stretched
    } else {
        bytes
    };
    let mut out = Vec::new();
    let encoder = image::codecs::png::PngEncoder::new(&mut out);
    image::ImageEncoder::write_image(encoder, bytes, width.unsigned_abs(), height.unsigned_abs(), color)
        .map_err(|e| Error::internal("cannot encode a PNG").caused_by(e))?;
    Ok(Some(out))
}

fn extension(bytes: &[u8]) -> &'static str {
    match bytes {
        [0xFF, 0xD8, ..] => "jpg",
        [0x89, b'P', b'N', b'G', ..] => "png",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "webp",
        [b'R', b'I', b'F', b'F', ..] => "wav",
        [b'G', b'I', b'F', ..] => "gif",
        _ => "bin",
    }
}

fn write(path: PathBuf, bytes: &[u8]) -> Result<PathBuf> {
    std::fs::write(&path, bytes).map_err(|e| Error::io(format!("cannot write {}", path.display()), e))?;
    Ok(path)
}
