//! Values for people: a type in words, a value in a line, a stage of a sample as files.

use crate::error::{Error, Result};
use crate::format::schema::words;
use crate::format::shard::tensor::{DType, Kind, View, kind};
use crate::id::Digest;
use crate::source::row::text;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field};
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
    let text = text(array, row).unwrap_or("?".to_owned());
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

/// Most characters of a key in a file's name.
const MOST_SHOWN: usize = 80;

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
            _ => write(path("txt"), format!("{}\n", text(array, row).unwrap_or("?".to_owned())).as_bytes())?,
        };
        written.push(target);
    }
    Ok(written)
}

/// A key or column as part of a file's name, another for each: what the name leaves out, and capitals, which some file
/// systems take for small letters, are told apart by a digest behind it.
pub fn file_name(text: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.' | '#');
    let shown = |c: char| {
        if c == '/' {
            '+'
        } else if plain(c) || c.is_alphanumeric() {
            c
        } else {
            '_'
        }
    };
    let name: String = text.trim_start_matches('.').chars().take(MOST_SHOWN).map(shown).collect();
    // A key that ends like `.3-resize` could be taken for a stage.
    let like_a_stage =
        text.split('.').skip(1).any(|part| part.starts_with(|c: char| c.is_ascii_digit()) && part.contains('-'));
    let same = text.chars().all(|c| c == '/' || plain(c)) && text.len() == name.len() && !like_a_stage;
    if same { name } else { format!("{name}~{}", Digest::of(text.as_bytes()).short()) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ListArray, StructArray, TimestampMicrosecondArray};
    use arrow::buffer::OffsetBuffer;
    use std::sync::Arc;

    #[test]
    fn times_with_a_zone_are_shown_in_utc() {
        let times = TimestampMicrosecondArray::from(vec![1_577_836_800_000_000]).with_timezone("Europe/Berlin");
        let times: ArrayRef = Arc::new(times);
        let item = Arc::new(Field::new("at", times.data_type().clone(), true));
        let rows = StructArray::new([item].into_iter().collect(), vec![times.clone()], None);
        let item = Arc::new(Field::new_list_field(rows.data_type().clone(), true));
        let nested: ArrayRef = Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1]), Arc::new(rows), None));
        for (array, expected) in [(times, "2020-01-01T00:00:00Z"), (nested, "[{at: 2020-01-01T00:00:00Z}]")] {
            let field = Field::new("when", array.data_type().clone(), true);
            assert_eq!(short(&field, &array, 0), expected);
            let keep = tempfile::tempdir().unwrap();
            let batch = RecordBatch::try_from_iter([("when", array)]).unwrap();
            let written = save(&batch, 0, keep.path(), "a").unwrap();
            assert_eq!(std::fs::read_to_string(&written[0]).unwrap(), format!("{expected}\n"));
        }
    }

    #[test]
    fn each_key_has_a_file_name_of_its_own() {
        assert_eq!(file_name("cats/1.jpg"), "cats+1.jpg");
        assert_eq!(file_name("train-00000.parquet#12"), "train-00000.parquet#12");
        let keys = [
            "a/b.jpg",
            "a_b.jpg",
            "a+b.jpg",
            "a b.jpg",
            "a\\b.jpg",
            "A/b.jpg",
            "a/B.jpg",
            "ä/b.jpg",
            "Ä/b.jpg",
            ".a/b.jpg",
            "..a/b.jpg",
            "a",
            "a.0-concatenated.image",
            "a.0-concatenated",
            "a.1-b",
            "a~b",
            "a:b",
        ];
        let long: Vec<String> = (0..3).map(|n| format!("{}{n}", "x".repeat(100))).collect();
        let keys = keys.into_iter().chain(long.iter().map(String::as_str));
        let mut names: Vec<String> =
            keys.map(|key| format!("{}.0-concatenated", file_name(key)).to_lowercase()).collect();
        assert!(
            names.iter().all(|name| name.len() < 150 && !name.contains(['/', '\\', ':']) && !name.starts_with('.')),
            "{names:?}"
        );
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
        assert!(!names.contains(&"a.0-concatenated.image.0-concatenated".to_owned()));
    }
}
