//! Lengths of time as people write them on the command line: `1d`, `12h`, `90 min`, `30s`.

use std::time::Duration;

const UNITS: [(&[&str], u64); 5] =
    [(&["s", "sec"], 1), (&["m", "min"], 60), (&["h"], 3_600), (&["d"], 86_400), (&["w"], 604_800)];

/// A whole number and a unit; `0` needs none. The error says what was expected and found.
pub fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let wrong = || format!("expected a length of time such as 1d, 12h, 30min or 45s, found {text:?}");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match UNITS.iter().find(|(names, _)| names.contains(&unit.as_str())) {
        Some((_, factor)) => *factor,
        None if unit.is_empty() && number == 0 => 1,
        None => return Err(wrong()),
    };
    let seconds = number.checked_mul(factor).filter(|seconds| i64::try_from(*seconds).is_ok());
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lengths_of_time_are_read() {
        for (text, seconds) in [
            ("0", 0),
            ("45s", 45),
            ("30min", 1_800),
            ("90 m", 5_400),
            ("12H", 43_200),
            ("1d", 86_400),
            ("2w", 1_209_600),
        ] {
            assert_eq!(parse(text).unwrap().as_secs(), seconds, "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in ["", "d", "1", "1.5h", "-1d", "1y", "1d2h", "99999999999999999999d", "9223372036854775807w"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("expected a length of time such as 1d") && error.contains(text), "{error}");
        }
    }
}
