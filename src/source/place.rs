//! Where a source's files lie: on disk or in a bucket. A bucket's objects have paths as if it were a disk of its own: the
//! object `photos/1.jpg` is `/photos/1.jpg`.

use crate::error::{Error, Result};
use crate::io::{Objects, bucket_and_rest};
use std::path::Path;

/// Opens the bucket of a URL such as `s3://bucket`.
pub type Buckets<'a> = &'a dyn Fn(&str) -> Result<Objects>;

#[derive(Debug, Clone)]
pub(super) enum Place {
    Disk,
    Bucket(Objects),
}

impl Place {
    /// Where these lie, and the path of each there; all lie on disk, or all in one bucket.
    pub fn of(texts: &[&str], buckets: Buckets) -> Result<(Place, Vec<String>)> {
        let mut found: Option<&str> = None;
        let mut paths = Vec::with_capacity(texts.len());
        for (index, text) in texts.iter().enumerate() {
            let (bucket, path) = match bucket_and_rest(text)? {
                Some((bucket, rest)) => (Some(bucket), format!("/{rest}")),
                None => (None, local(text)?.to_owned()),
            };
            if index > 0 && bucket != found {
                return Err(Error::invalid(format!(
                    "{:?} and {text:?} lie in two places; a source is on disk or in one bucket, its root: with it",
                    texts[0]
                )));
            }
            found = bucket;
            paths.push(path);
        }
        let place = found.map_or(Ok(Place::Disk), |bucket| buckets(bucket).map(Place::Bucket))?;
        Ok((place, paths))
    }

    /// For messages.
    pub fn shown(&self, path: &Path) -> String {
        match self {
            Place::Disk => path.display().to_string(),
            Place::Bucket(objects) => format!("{}{}", objects.url(), path.display()),
        }
    }

    /// Whether a pattern names something just as it is written. In a bucket wildcards are always meant: nothing is asked.
    pub fn names_something(&self, path: &Path) -> bool {
        matches!(self, Place::Disk) && path.exists()
    }

    /// Whether a path without wildcards is a directory; in a bucket, whether no object has this name.
    pub fn is_directory(&self, path: &Path) -> Result<bool> {
        match self {
            Place::Disk => Ok(path.is_dir()),
            Place::Bucket(_) if path == Path::new("/") => Ok(true),
            Place::Bucket(objects) => Ok(objects.look(&[name(path)?])?.iter().all(Option::is_none)),
        }
    }
}

/// The name of the object at a path; empty for the bucket itself.
pub(super) fn name(path: &Path) -> Result<&str> {
    let text = path.to_str().ok_or_else(|| Error::invalid(format!("{path:?} is not UTF-8")))?;
    Ok(text.trim_start_matches('/'))
}

/// The path of a text; URLs of other schemes are refused by name.
pub(super) fn local(text: &str) -> Result<&str> {
    if let Some(path) = text.strip_prefix("file://") {
        return Ok(path);
    }
    match text.split_once("://") {
        Some((scheme, _)) => Err(Error::invalid(format!(
            "{text:?}: nothing is known of {scheme}://; expected a local path or a URL such as s3://bucket/prefix"
        ))),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Access;

    #[test]
    fn a_source_lies_in_one_place() {
        let buckets = |bucket: &str| Objects::open(bucket, &Access::default());
        let check = |texts: &[&str]| Place::of(texts, &buckets).map(|(_, paths)| paths);
        assert_eq!(check(&["s3://b/x/*", "s3://b"]).unwrap(), ["/x/*", "/"]);
        assert_eq!(check(&["x", "file:///y"]).unwrap(), ["x", "/y"]);
        assert_eq!(check(&[]).unwrap(), [""; 0]);
        for (texts, word) in
            [(["s3://b/x", "y"], "two places"), (["s3://b/x", "s3://c/x"], "two places"), (["gs://b/x", "y"], "gs://")]
        {
            let error = check(&texts).unwrap_err();
            assert!(error.message().contains(word), "{error}");
        }
    }
}
