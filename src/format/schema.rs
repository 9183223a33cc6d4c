//! An Arrow schema in its two forms: base64 of an Arrow IPC schema message, from which nothing is lost, for heads; and
//! a canonical value of names, types and nullability, for keys. `formats/keys.md` specifies the second.

use crate::error::{Error, Result};
use crate::format::canonical::Value;
use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit, UnionMode};
use arrow::ipc::convert::{IpcSchemaEncoder, try_fb_to_schema};
use arrow::ipc::writer::DictionaryTracker;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Base64 of the schema as the flatbuffer of an Arrow IPC schema; metadata is sorted, so equal schemas have equal text.
pub fn encode(schema: &Schema) -> String {
    let mut dictionaries = DictionaryTracker::new(false);
    let mut encoder = IpcSchemaEncoder::new().with_dictionary_tracker(&mut dictionaries);
    STANDARD.encode(encoder.schema_to_fb(schema).finished_data())
}

/// The inverse of `encode`; the error is `Corrupt`.
pub fn decode(text: &str) -> Result<Schema> {
    let bad = || Error::corrupt("expected a schema as Arrow IPC bytes in base64");
    let bytes = STANDARD.decode(text).map_err(|e| bad().caused_by(e))?;
    let message = arrow::ipc::root_as_schema(&bytes).map_err(|e| bad().caused_by(e.to_string()))?;
    try_fb_to_schema(message).map_err(|e| bad().caused_by(e))
}

/// What a schema means to a key: fields in order with name, type, nullability and extension type; no other metadata.
pub fn canonical(schema: &Schema) -> Value {
    fields(schema.fields())
}

fn fields(fields: &Fields) -> Value {
    Value::List(fields.iter().map(|f| field(f)).collect())
}

fn field(field: &Field) -> Value {
    let mut map = vec![
        ("name", Value::from(field.name().as_str())),
        ("nullable", field.is_nullable().into()),
        ("type", data_type(field.data_type())),
    ];
    if let Some(name) = field.extension_type_name() {
        let metadata = field.extension_type_metadata().unwrap_or_default();
        map.push(("extension", vec![Value::from(name), metadata.into()].into()));
    }
    Value::map(map)
}

fn data_type(data_type: &DataType) -> Value {
    let with =
        |name: &str, arguments: Vec<Value>| Value::List(std::iter::once(Value::from(name)).chain(arguments).collect());
    let decimal = |bits: i64, precision: u8, scale: i8| {
        with("decimal", vec![bits.into(), i64::from(precision).into(), i64::from(scale).into()])
    };
    match data_type {
        DataType::Null => "null".into(),
        DataType::Boolean => "bool".into(),
        DataType::Int8 => "int8".into(),
        DataType::Int16 => "int16".into(),
        DataType::Int32 => "int32".into(),
        DataType::Int64 => "int64".into(),
        DataType::UInt8 => "uint8".into(),
        DataType::UInt16 => "uint16".into(),
        DataType::UInt32 => "uint32".into(),
        DataType::UInt64 => "uint64".into(),
        DataType::Float16 => "float16".into(),
        DataType::Float32 => "float32".into(),
        DataType::Float64 => "float64".into(),
        DataType::Binary => "binary".into(),
        DataType::LargeBinary => "large_binary".into(),
        DataType::BinaryView => "binary_view".into(),
        DataType::Utf8 => "utf8".into(),
        DataType::LargeUtf8 => "large_utf8".into(),
        DataType::Utf8View => "utf8_view".into(),
        DataType::Date32 => "date32".into(),
        DataType::Date64 => "date64".into(),
        DataType::FixedSizeBinary(bytes) => with("fixed_size_binary", vec![i64::from(*bytes).into()]),
        DataType::Timestamp(unit, zone) => {
            with("timestamp", vec![time_unit(*unit).into(), zone.as_deref().map(Value::from).into()])
        }
        DataType::Time32(unit) => with("time32", vec![time_unit(*unit).into()]),
        DataType::Time64(unit) => with("time64", vec![time_unit(*unit).into()]),
        DataType::Duration(unit) => with("duration", vec![time_unit(*unit).into()]),
        DataType::Interval(unit) => with("interval", vec![interval_unit(*unit).into()]),
        DataType::Decimal32(precision, scale) => decimal(32, *precision, *scale),
        DataType::Decimal64(precision, scale) => decimal(64, *precision, *scale),
        DataType::Decimal128(precision, scale) => decimal(128, *precision, *scale),
        DataType::Decimal256(precision, scale) => decimal(256, *precision, *scale),
        DataType::List(item) => with("list", vec![field(item)]),
        DataType::LargeList(item) => with("large_list", vec![field(item)]),
        DataType::ListView(item) => with("list_view", vec![field(item)]),
        DataType::LargeListView(item) => with("large_list_view", vec![field(item)]),
        DataType::FixedSizeList(item, length) => with("fixed_size_list", vec![field(item), i64::from(*length).into()]),
        DataType::Struct(children) => with("struct", vec![fields(children)]),
        DataType::Map(entries, sorted) => with("map", vec![field(entries), (*sorted).into()]),
        DataType::Dictionary(index, value) => with("dictionary", vec![self::data_type(index), self::data_type(value)]),
        DataType::RunEndEncoded(ends, values) => with("run_end_encoded", vec![field(ends), field(values)]),
        DataType::Union(children, mode) => {
            let mode = match mode {
                UnionMode::Sparse => "sparse",
                UnionMode::Dense => "dense",
            };
            let children = children.iter().map(|(id, f)| Value::List(vec![i64::from(id).into(), field(f)])).collect();
            with("union", vec![mode.into(), Value::List(children)])
        }
    }
}

/// A type in the words of people and errors: `text`, `int64`, `list of float32`.
pub fn words(data_type: &DataType) -> String {
    let inner = |field: &Field| words(field.data_type());
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytes".to_owned(),
        DataType::FixedSizeBinary(length) => format!("{length} bytes"),
        DataType::Boolean => "bool".to_owned(),
        DataType::Timestamp(unit, None) => format!("timestamp in {}", time_unit(*unit)),
        DataType::Timestamp(unit, Some(zone)) => format!("timestamp in {} at {zone}", time_unit(*unit)),
        DataType::Time32(unit) | DataType::Time64(unit) => format!("time in {}", time_unit(*unit)),
        DataType::Duration(unit) => format!("duration in {}", time_unit(*unit)),
        DataType::Interval(_) => "interval".to_owned(),
        DataType::List(item) | DataType::ListView(item) => format!("list of {}", inner(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => format!("large list of {}", inner(item)),
        DataType::FixedSizeList(item, length) => format!("list of {length} {}", inner(item)),
        DataType::Struct(fields) => {
            let fields: Vec<String> = fields.iter().map(|f| format!("{}: {}", f.name(), inner(f))).collect();
            format!("struct of {{{}}}", fields.join(", "))
        }
        DataType::Map(..) => "map".to_owned(),
        DataType::Dictionary(_, values) => words(values),
        DataType::RunEndEncoded(_, values) => inner(values),
        DataType::Union(..) => "union".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn time_unit(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn interval_unit(unit: IntervalUnit) -> &'static str {
    match unit {
        IntervalUnit::YearMonth => "year_month",
        IntervalUnit::DayTime => "day_time",
        IntervalUnit::MonthDayNano => "month_day_nano",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Arc;

    fn schema() -> Schema {
        let metadata: HashMap<_, _> = (0..20).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        let item = Arc::new(Field::new("item", DataType::Float32, true));
        let tensor = HashMap::from([
            ("ARROW:extension:name".to_owned(), "arrow.fixed_shape_tensor".to_owned()),
            ("ARROW:extension:metadata".to_owned(), "{\"shape\":[2]}".to_owned()),
        ]);
        Schema::new_with_metadata(
            vec![
                Field::new("_key", DataType::LargeUtf8, false),
                Field::new("when", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
                Field::new("x", DataType::FixedSizeList(item.clone(), 2), true).with_metadata(tensor),
                Field::new("s", DataType::Struct(vec![item].into()), true).with_metadata(metadata.clone()),
            ],
            metadata,
        )
    }

    #[test]
    fn text_loses_nothing_and_is_a_function_of_the_schema() {
        let text = encode(&schema());
        assert_eq!(decode(&text).unwrap(), schema());
        assert!((0..20).all(|_| encode(&schema()) == text));
    }

    #[test]
    fn damaged_text_is_an_error_or_another_schema() {
        let bytes = STANDARD.decode(encode(&schema())).unwrap();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let _ = decode(&STANDARD.encode(&changed));
            }
            // The last bytes are padding.
            assert!(
                decode(&STANDARD.encode(&bytes[..at])).is_ok_and(|s| s == schema()) == (at > bytes.len() - 4),
                "cut at {at}"
            );
        }
        assert!(decode("?").is_err() && decode("").is_err());
    }

    #[test]
    fn the_canonical_form_is_pinned() {
        let text = canonical(&schema()).to_json().to_string();
        assert_eq!(
            text,
            concat!(
                r#"[{"name":"_key","nullable":false,"type":"large_utf8"},"#,
                r#"{"name":"when","nullable":true,"type":["timestamp","us","UTC"]},"#,
                r#"{"extension":["arrow.fixed_shape_tensor","{\"shape\":[2]}"],"name":"x","nullable":true,"#,
                r#""type":["fixed_size_list",{"name":"item","nullable":true,"type":"float32"},2]},"#,
                r#"{"name":"s","nullable":true,"type":["struct",[{"name":"item","nullable":true,"type":"float32"}]]}]"#,
            )
        );
    }
}
