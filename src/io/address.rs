//! What a URL means: a directory, or a bucket and the names that begin with a prefix.

use crate::error::{Error, Result};
use std::path::PathBuf;

const S3: &str = "s3://";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Directory(PathBuf),
    Bucket { url: String, bucket: String, prefix: String },
}

/// The scheme of a URL; `None` for a path.
fn scheme(url: &str) -> Option<(&str, &str)> {
    url.split_once("://").filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    })
}

impl Address {
    pub fn parse(url: &str) -> Result<Address> {
        let path = match scheme(url) {
            None => url.to_owned(),
            Some(("file", rest)) => {
                let path = rest.strip_prefix("localhost").unwrap_or(rest);
                path.starts_with('/').then(|| percent_decoded(path)).flatten().ok_or_else(|| {
                    Error::invalid(format!("{url:?} is no file URL; expected file:///absolute/path, or the path alone"))
                })?
            }
            Some(("s3", _)) => return bucket(url),
            Some((scheme, _)) => {
                return Err(Error::invalid(format!(
                    "a store under {scheme}:// ({url:?}) is not built; expected a local directory, file:///path or s3://bucket/prefix"
                )));
            }
        };
        if path.is_empty() || path.contains('\0') {
            return Err(Error::invalid(format!("{url:?} can't name a store; expected a directory")));
        }
        Ok(Address::Directory(PathBuf::from(path)))
    }
}

/// The bucket of an `s3://` URL and what stands behind its slash; `None` for a text without this scheme.
pub fn bucket_and_rest(url: &str) -> Result<Option<(&str, &str)>> {
    let Some(rest) = url.strip_prefix(S3) else { return Ok(None) };
    let (bucket, rest) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.contains('@') {
        // Not shown: what stands before the @ would be a secret.
        return Err(Error::invalid(
            "an s3:// URL holds credentials; leave them out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if bucket.is_empty() || !bucket.chars().all(plain) {
        return Err(Error::invalid(format!("{url:?} names no bucket; expected s3://bucket/prefix")));
    }
    Ok(Some((bucket, rest)))
}

fn bucket(url: &str) -> Result<Address> {
    let Some((bucket, prefix)) = bucket_and_rest(url)? else {
        return Err(Error::internal(format!("{url:?} is no s3:// URL")));
    };
    let prefix = prefix.trim_end_matches('/');
    let odd = |part: &str| part.is_empty() || part == "." || part == ".." || part.contains(['\0', '\n', '\r']);
    if !prefix.is_empty() && prefix.split('/').any(odd) {
        return Err(Error::invalid(format!(
            "{url:?} can't name a store: a part of its prefix is empty, `.`, `..` or has a line break"
        )));
    }
    Ok(Address::Bucket {
        url: url.trim_end_matches('/').to_owned(),
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
    })
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let hex = part.get(..2).filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}
