//! Sizes in bytes as people write them: `100gb`, `64 MiB`, `1.5 tb`. Decimal units count thousands, binary ones (`kib`)
//! 1,024s; used by the pipeline file and the command line alike.

const UNITS: [(&str, u64); 13] = [
    ("b", 1),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("pb", 1_000_000_000_000_000),
    ("eb", 1_000_000_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("pib", 1 << 50),
    ("eib", 1 << 60),
];

/// Bytes of a size: a number, whole or with a point, and a unit in either case; a number alone is bytes. Fractions of a
/// byte are dropped. The error says what was expected and found.
pub fn parse(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let wrong = || format!("expected a size such as 64mb, 64MiB or 67108864, found {text:?}");
    let digits = |part: &str| !part.is_empty() && part.len() <= 20 && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let factor = match UNITS.iter().find(|(name, _)| *name == unit) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() => 1,
        None if unit.len() == 1 && "kmgtpe".contains(&unit) => {
            return Err(format!("{}; {unit:?} could be either of {unit}b (thousands) and {unit}ib (1,024s)", wrong()));
        }
        None => return Err(wrong()),
    };
    let (whole, numerator) = (whole.parse::<u128>(), fraction.parse::<u128>());
    let bytes = match (whole, numerator, 10u128.checked_pow(fraction.len() as u32)) {
        // At most 20 digits times 2^60 stay within 128 bits.
        (Ok(whole), Ok(numerator), Some(scale)) => whole * u128::from(factor) + numerator * u128::from(factor) / scale,
        _ => return Err(wrong()),
    };
    u64::try_from(bytes).map_err(|_| format!("expected a size below 2^64 bytes, found {text:?}"))
}

/// `512 B`, `1.2 GB`, `640 MB`: decimal units, two or three digits.
pub fn print(bytes: u64) -> String {
    let exact = u128::from(bytes);
    for (name, factor) in UNITS.iter().skip(1).take(6).filter(|_| bytes >= 1_000) {
        let factor = u128::from(*factor);
        let (whole, tenths) = ((exact + factor / 2) / factor, (exact * 10 + factor / 2) / factor);
        // What rounds to 1,000 belongs to the next unit.
        if whole < 1_000 {
            let name = name.to_uppercase();
            return match (tenths / 10, tenths % 10) {
                (100.., _) => format!("{whole} {name}"),
                (few, 0) => format!("{few} {name}"),
                (few, tenth) => format!("{few}.{tenth} {name}"),
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let cases = [
            ("0", 0),
            ("67108864", 64 << 20),
            ("64MiB", 64 << 20),
            (" 64 mib ", 64 << 20),
            ("100gb", 100_000_000_000),
            ("1.5 KB", 1500),
            ("0.5kib", 512),
            ("1.2345b", 1),
            ("18446744073709551615", u64::MAX),
            ("18.446744073709551615eb", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "gb", "-1", "1..5gb", ".5gb", "1.gb", "1 gb 2", "64 mega", "1e9", "１gb", "99999999999999999999999"]
        {
            assert!(parse(text).unwrap_err().starts_with("expected a size such as 64mb"), "{text}");
        }
        assert_eq!(
            parse("10G").unwrap_err(),
            "expected a size such as 64mb, 64MiB or 67108864, found \"10G\"; \"g\" could be either of gb (thousands) and gib (1,024s)"
        );
        assert_eq!(parse("16eib").unwrap_err(), "expected a size below 2^64 bytes, found \"16eib\"");
    }

    #[test]
    fn sizes_are_printed() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 KB"),
            (1234, "1.2 KB"),
            (64 << 20, "67.1 MB"),
            (99_960, "100 KB"),
            (640_400_000, "640 MB"),
            (999_499, "999 KB"),
            (999_500, "1 MB"),
            (1_200_000_000, "1.2 GB"),
            (u64::MAX, "18.4 EB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(print(bytes), text, "{bytes}");
        }
    }
}
