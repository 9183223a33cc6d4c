//! Compressed files: how they are told by their first bytes or by their names, and what to do about those that no source
//! reads. Only archives are read compressed, with gzip or zstd.

const SUFFIXES: [(&str, &str); 9] = [
    ("gz", "gzip"),
    ("zst", "zstd"),
    ("zstd", "zstd"),
    ("bz2", "bzip2"),
    ("xz", "xz"),
    ("lz4", "lz4"),
    ("sz", "snappy"),
    ("br", "brotli"),
    ("zip", "zip"),
];

/// By a file's first ten bytes, or all of a shorter one.
pub(super) fn by_bytes(first: &[u8]) -> Option<&'static str> {
    match first {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        // Text may begin with the first four of these.
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59] => Some("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("xz"),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some("lz4"),
        [b'P', b'K', 3, 4, ..] => Some("zip"),
        _ => None,
    }
}

/// By a file's name: what it would be called if it were not compressed, and with what it is.
pub fn by_name(name: &str) -> Option<(&str, &'static str)> {
    let (plain, suffix) = name.rsplit_once('.').filter(|(plain, _)| !plain.is_empty())?;
    SUFFIXES.iter().find(|(s, _)| suffix.eq_ignore_ascii_case(s)).map(|(_, compression)| (plain, *compression))
}

/// For a file whose name says that it is compressed: with what, and what to do about it.
pub fn advice(name: &str) -> Option<String> {
    let (plain, compression) = by_name(name)?;
    let archive = plain.to_ascii_lowercase().ends_with(".tar");
    let what = match compression {
        "gzip" | "zstd" if archive => "name its ending in the pattern",
        _ if archive => "archives are read plain or compressed with gzip or zstd; pack it again",
        _ => "only archives (tar) are read compressed; decompress it, or convert a table to Parquet",
    };
    Some(format!("compressed with {compression}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell() {
        let check = |name: &str, expect: Option<(&str, &str)>| assert_eq!(by_name(name), expect, "{name}");
        check("a/b.jsonl.gz", Some(("a/b.jsonl", "gzip")));
        check("b.CSV.ZST", Some(("b.CSV", "zstd")));
        check("b.gz", Some(("b", "gzip")));
        check(".gz", None);
        check("b.jsonl", None);
        assert!(advice("s.tar.gz").unwrap().ends_with("name its ending in the pattern"));
        assert!(advice("s.tar.xz").unwrap().contains("gzip or zstd"));
        assert!(advice("s.csv.xz").unwrap().contains("decompress it"));
    }
}
