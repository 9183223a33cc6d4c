//! What a URL means: a directory, or a bucket of a service and the names that begin with a prefix.

use crate::error::{Error, Result};
use std::path::PathBuf;

/// Services that hold objects in buckets; Azure calls them containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    S3,
    Gcs,
    Azure,
}

impl Service {
    /// The service of a scheme.
    pub fn of(scheme: &str) -> Option<Service> {
        match scheme {
            "s3" => Some(Service::S3),
            "gs" => Some(Service::Gcs),
            "az" => Some(Service::Azure),
            _ => None,
        }
    }

    /// An error where this build can't reach it.
    fn check(self) -> Result<()> {
        let (scheme, feature, built) = match self {
            Service::S3 => return Ok(()),
            Service::Gcs => ("gs", "gcs", cfg!(feature = "gcs")),
            Service::Azure => ("az", "azure", cfg!(feature = "azure")),
        };
        match built {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "{scheme}:// needs the feature {feature}, which this Forebay was built without: `cargo install --path . \
                 --features {feature}`"
            ))),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Directory(PathBuf),
    Bucket { url: String, service: Service, bucket: String, prefix: String },
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
            Some((scheme, _)) if Service::of(scheme).is_some() => return bucket(url),
            Some((scheme, _)) => {
                return Err(Error::invalid(format!(
                    "nothing is known of {scheme}:// ({url:?}); expected a local directory, file:///path, \
                     s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
                )));
            }
        };
        if path.is_empty() || path.contains('\0') {
            return Err(Error::invalid(format!("{url:?} can't name a store; expected a directory")));
        }
        Ok(Address::Directory(PathBuf::from(path)))
    }
}

/// The URL of the bucket that a URL begins with, such as `s3://bucket`, and what stands behind its slash; `None` for a text
/// without the scheme of a service.
pub fn bucket_and_rest(url: &str) -> Result<Option<(&str, &str)>> {
    Ok(parts(url)?.map(|parts| (&url[..url.len() - parts.behind], parts.rest)))
}

struct Parts<'a> {
    service: Service,
    bucket: &'a str,
    rest: &'a str,
    /// Bytes behind the bucket.
    behind: usize,
}

fn parts(url: &str) -> Result<Option<Parts<'_>>> {
    let Some((scheme, whole)) = url.split_once("://") else { return Ok(None) };
    let Some(service) = Service::of(scheme) else { return Ok(None) };
    service.check()?;
    let (bucket, rest) = whole.split_once('/').unwrap_or((whole, ""));
    if bucket.contains('@') {
        // Not shown: what stands before the @ would be a secret.
        return Err(Error::invalid(match service {
            Service::Azure => {
                "an az:// URL holds an @; expected az://container/prefix, with AZURE_STORAGE_ACCOUNT_NAME and \
                 AZURE_STORAGE_ACCOUNT_KEY beside it"
            }
            Service::Gcs => "a gs:// URL holds credentials; leave them out and set GOOGLE_APPLICATION_CREDENTIALS",
            Service::S3 => {
                "an s3:// URL holds credentials; leave them out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            }
        }));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '$');
    if bucket.is_empty() || !bucket.chars().all(plain) || bucket.contains('$') && service != Service::Azure {
        return Err(Error::invalid(format!("{url:?} names no bucket; expected {scheme}://bucket/prefix")));
    }
    Ok(Some(Parts { service, bucket, rest, behind: whole.len() - bucket.len() }))
}

/// The service and the name of a bucket's URL, such as `s3://bucket`.
pub(super) fn service_and_bucket(url: &str) -> Result<(Service, &str)> {
    match parts(url)? {
        Some(Parts { service, bucket, rest: "", .. }) => Ok((service, bucket)),
        _ => Err(Error::internal(format!("{url:?} is no bucket's URL"))),
    }
}

fn bucket(url: &str) -> Result<Address> {
    let Some(Parts { service, bucket, rest: prefix, .. }) = parts(url)? else {
        return Err(Error::internal(format!("{url:?} is no bucket's URL")));
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
        service,
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
