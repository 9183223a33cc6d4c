//! A flipped byte anywhere, a cut at any length, a record that lies: found, named, never a panic.

use super::*;
use forebay::error::{Error, Kind, Result};
use forebay::format::record::Part;
use forebay::format::shard::verify_part;
use forebay::id::Digest;

fn small(encoding: Encoding) -> (SchemaRef, Vec<RecordBatch>, Vec<u8>, Part) {
    let mut columns = keys(3);
    columns.extend(tensors(3));
    let chunk = batch(columns);
    let chunks = vec![chunk.clone(), chunk.slice(1, 2)];
    let (bytes, part) = write(&chunk.schema(), &chunks, encoding);
    (chunk.schema(), chunks, bytes, part)
}

fn read_all(bytes: &[u8], part: &Part, schema: &SchemaRef, encoding: Encoding) -> Result<Vec<RecordBatch>> {
    let reader = PartReader::open(Buffer::from(bytes), part, schema.clone(), encoding)?;
    (0..reader.chunks()).map(|chunk| reader.chunk(chunk, None)).collect()
}

#[test]
fn a_flipped_byte_anywhere_is_found() {
    for text in ["arrow-none", "arrow-zstd-1", "parquet-none", "parquet-snappy"] {
        let encoding = encoding(text);
        let (schema, _, mut bytes, part) = small(encoding);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x40;
            let error = read_all(&bytes, &part, &schema, encoding).expect_err(&format!("{text}: byte {at}"));
            assert_eq!(error.kind(), Kind::Corrupt);
            let named = verify_part(&bytes, &part, &schema);
            // The span and the whole; what lies before the first chunk has no span.
            let before = part.chunks[0].head.unwrap_or(part.chunks[0].columns[0]).offset;
            assert_eq!(named.len(), if (at as u64) < before { 1 } else { 2 }, "{text}: byte {at}");
            bytes[at] ^= 0x40;
        }
        assert_eq!(verify_part(&bytes, &part, &schema).len(), 0);
    }
}

#[test]
fn a_bad_chunk_spares_the_others_and_is_named() {
    for text in ["arrow-none", "parquet-zstd-3"] {
        let encoding = encoding(text);
        let (schema, chunks, mut bytes, part) = small(encoding);
        let image = 2;
        bytes[part.chunks[1].columns[image].offset as usize] ^= 1;
        let reader = open(&bytes, &part, &schema, encoding);
        assert_eq!(reader.chunk(0, None).unwrap(), chunks[0]);
        assert_eq!(reader.chunk(1, Some(&[0, 3])).unwrap(), chunks[1].project(&[0, 3]).unwrap());
        for _ in 0..2 {
            let error = reader.chunk(1, Some(&[image])).unwrap_err();
            assert!(error.chain().contains("column \"image\" of chunk 1"), "{}", error.chain());
        }
        let named: Vec<String> = reader.verify().iter().map(Error::chain).collect();
        assert!(named[0].starts_with("column \"image\" of chunk 1"), "{named:?}");
        assert!(named[1].contains("digest"), "{named:?}");
    }
}

#[test]
fn a_cut_at_any_length_is_found() {
    for text in ["arrow-none", "parquet-none"] {
        let encoding = encoding(text);
        let (schema, _, bytes, part) = small(encoding);
        for length in 0..bytes.len() {
            let error = read_all(&bytes[..length], &part, &schema, encoding).unwrap_err();
            assert_eq!(error.kind(), Kind::Corrupt);
            assert!(!verify_part(&bytes[..length], &part, &schema).is_empty());
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert!(read_all(&longer, &part, &schema, encoding).is_err());
    }
}

/// Digests of whatever lies under the spans, as a forger would write them.
fn forged(bytes: &[u8], part: &Part) -> Part {
    let mut part = part.clone();
    let digest = |offset: u64, length: u64| {
        let end = offset.saturating_add(length) as usize;
        Digest::of(bytes.get(offset as usize..end).unwrap_or_default())
    };
    for chunk in &mut part.chunks {
        for span in chunk.head.iter_mut().chain(&mut chunk.columns) {
            span.digest = digest(span.offset, span.bytes);
        }
    }
    part.footer.digest = digest(part.footer.offset, part.footer.bytes);
    part.blob = Digest::of(bytes);
    part
}

#[test]
fn bytes_under_forged_digests_never_panic() {
    let mut read = 0;
    for text in ["arrow-none", "arrow-lz4", "arrow-zstd-1", "parquet-none", "parquet-zstd-3"] {
        let encoding = encoding(text);
        let (schema, _, mut bytes, part) = small(encoding);
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80] {
                bytes[at] ^= flip;
                read += read_all(&bytes, &forged(&bytes, &part), &schema, encoding).is_ok() as usize;
                bytes[at] ^= flip;
            }
        }
    }
    // Values and padding may change unseen where the digests say so.
    assert!(read > 0);
}

#[test]
fn a_record_that_lies_about_the_part_is_corrupt() {
    type Lie = fn(&mut Part);
    let lies: [Lie; 11] = [
        |part| part.rows += 1,
        |part| part.bytes -= 1,
        |part| part.chunks[0].rows += 1,
        |part| part.chunks[0].rows = u64::MAX,
        |part| part.chunks.truncate(1),
        |part| part.chunks[0].columns.truncate(2),
        |part| part.chunks[0].columns[1].offset += 1,
        |part| part.chunks[1].columns[0].bytes = u64::MAX,
        |part| part.footer.offset = u64::MAX,
        |part| part.footer.bytes = 0,
        |part| part.chunks.swap(0, 1),
    ];
    for text in ["arrow-none", "parquet-none"] {
        let encoding = encoding(text);
        let (schema, _, bytes, part) = small(encoding);
        for (index, lie) in lies.iter().enumerate() {
            let mut part = part.clone();
            lie(&mut part);
            let error = read_all(&bytes, &part, &schema, encoding).expect_err(&format!("{text}: lie {index}"));
            assert_eq!(error.kind(), Kind::Corrupt, "{text}: lie {index}");
            assert!(read_all(&bytes, &forged(&bytes, &part), &schema, encoding).is_err(), "{text}: lie {index}");
        }
    }
}

/// Takes so many bytes and no more.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Ok(taken)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_fills_up_anywhere_is_an_error_that_says_so() {
    for text in ["arrow-none", "parquet-none"] {
        let encoding = encoding(text);
        let (schema, chunks, bytes, _) = small(encoding);
        let encoder = Encoder::new(schema, encoding).unwrap();
        let write = |room: usize| -> Result<()> {
            let mut part = encoder.part(Full(room))?;
            for chunk in &chunks {
                part.append(encoder.encode(chunk)?)?;
            }
            part.finish().map(drop)
        };
        for room in (0..bytes.len()).step_by(61).chain([bytes.len() - 1]) {
            let error = write(room).expect_err(&format!("{text}: {room} bytes"));
            assert_eq!(error.kind(), Kind::Unavailable, "{text}: {room} bytes: {error:?}");
        }
        write(bytes.len()).unwrap();
    }
}
