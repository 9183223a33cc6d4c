//! Objects that others wrote, in a bucket: listed, looked at, and read as they were when they were listed. Each request for
//! bytes says which version is meant, and the reply's own is compared, as some services ignore that. Nothing here writes.

use super::partial::Partial;
use super::{Reader, Remote, there, wait};
use crate::error::Result;
use crate::io::Access;
use crate::io::address::service_and_bucket;
use crate::io::remote::retry;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, ObjectMeta, ObjectStore};
use std::collections::HashSet;
use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Objects that are looked at, or read whole, at a time.
const AT_ONCE: usize = 64;
/// What is fetched at least where a few bytes are wanted: so much takes no longer.
const LEAST: u64 = 64 << 10;

/// A bucket. Cheap to clone; shared between threads.
#[derive(Debug, Clone)]
pub struct Objects {
    remote: Arc<Remote>,
}

/// What tells that an object is still the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Version {
    /// Strong, in quotes.
    Etag(String),
    /// Of a service without strong etags: when it was written, in seconds since 1970, as no more is told everywhere.
    Modified(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub bytes: u64,
    pub version: Version,
}

impl Listed {
    fn of(name: &str, meta: &ObjectMeta) -> Listed {
        Listed { name: name.to_owned(), bytes: meta.size, version: Version::of(meta) }
    }
}

impl Version {
    pub(super) fn of(meta: &ObjectMeta) -> Version {
        let etag = meta.e_tag.as_deref().filter(|etag| !etag.starts_with("W/")).map(|etag| etag.trim_matches('"'));
        match etag {
            Some(etag) if !etag.is_empty() => Version::Etag(format!("\"{etag}\"")),
            _ => Version::Modified(meta.last_modified.timestamp()),
        }
    }

    /// What a request for this version carries.
    pub(super) fn options(version: Option<&Version>) -> GetOptions {
        let if_match = match version {
            Some(Version::Etag(etag)) => Some(etag.clone()),
            Some(Version::Modified(_)) | None => None,
        };
        GetOptions { if_match, ..GetOptions::default() }
    }
}

/// An object to be read whole.
#[derive(Debug)]
pub struct Wanted<'a> {
    pub name: &'a str,
    /// Another version is a `Conflict`; `None`: any will do.
    pub version: Option<Version>,
    /// One with more bytes isn't fetched.
    pub most: u64,
}

/// An object read whole: what is known of it and, where they are few enough, its bytes.
pub type Whole = (Listed, Option<Bytes>);

impl Objects {
    /// Those of a bucket by its URL, such as `s3://bucket`. Asks nothing yet.
    pub fn open(url: &str, access: &Access) -> Result<Objects> {
        let (service, bucket) = service_and_bucket(url)?;
        let remote = Remote::connect(url.to_owned(), service, bucket, String::new(), access)?;
        Ok(Objects { remote: Arc::new(remote) })
    }

    /// Over any service, such as a memory; `url` is for messages.
    pub fn over(objects: Arc<dyn ObjectStore>, url: &str, access: &Access) -> Objects {
        Objects { remote: Arc::new(Remote::over(objects, url.to_owned(), String::new(), access)) }
    }

    /// `s3://bucket`
    pub fn url(&self) -> &str {
        self.remote.url()
    }

    /// Objects below the directory `prefix` (empty: all), sorted by name, without what stands for a directory alone.
    pub fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let metas = self.remote.listed(prefix)?;
        let mut found: Vec<Listed> =
            metas.iter().filter_map(|meta| Some(Listed::of(self.remote.name(&meta.location)?, meta))).collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        let above = |name: &str| name.match_indices('/').map(|(at, _)| name[..at].to_owned()).collect::<Vec<_>>();
        let directories: HashSet<String> = found.iter().flat_map(|object| above(&object.name)).collect();
        found.retain(|object| object.bytes > 0 || !directories.contains(&object.name) && object.name != prefix);
        Ok(found)
    }

    /// What is there under these names, side by side.
    pub fn look(&self, names: &[&str]) -> Result<Vec<Option<Listed>>> {
        let looks = names.iter().map(|name| async move {
            let path = self.remote.path(name)?;
            Ok(there(self.remote.head(name, &path).await)?.map(|meta| Listed::of(name, &meta)))
        });
        wait(stream::iter(looks).buffered(AT_ONCE).try_collect())
    }

    /// Whole objects, side by side, in order; `None` for what isn't there. Bytes are left out where they are too many.
    pub fn read(&self, wanted: &[Wanted]) -> Result<Vec<Option<Whole>>> {
        let reads = wanted.iter().map(|wanted| async move {
            let path = self.remote.path(wanted.name)?;
            let fetched = self.remote.request("read", wanted.name, wanted.most, || async {
                let options = Version::options(wanted.version.as_ref());
                let found = self.remote.objects.get_opts(&path, options).await?;
                let object = Listed::of(wanted.name, &found.meta);
                if object.bytes > wanted.most {
                    return Ok((object, None));
                }
                let mut pieces = retry::body(found, object.bytes).await?;
                let bytes = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
                Ok((object, Some(bytes)))
            });
            let found = there(fetched.await)?;
            match (&found, &wanted.version) {
                (Some((object, _)), Some(version)) if object.version != *version => {
                    Err(self.remote.changed(wanted.name))
                }
                _ => Ok(found),
            }
        });
        wait(stream::iter(reads).buffered(AT_ONCE).try_collect())
    }

    /// An object to be read in parts, as it was listed.
    pub fn pin(&self, object: Listed) -> Pinned {
        Pinned { remote: self.remote.clone(), object: Arc::new(object), kept: Arc::default() }
    }
}

/// One version of an object: what else is there by now is a `Conflict` when it is read.
#[derive(Debug, Clone)]
pub struct Pinned {
    remote: Arc<Remote>,
    object: Arc<Listed>,
    /// What was fetched to be read at once.
    kept: Arc<OnceLock<Partial>>,
}

impl Pinned {
    /// Brings ranges, near ones by one request, side by side; `read_at` finds them then.
    pub fn fetch(&self, ranges: &[Range<u64>]) -> Result<()> {
        self.kept()?.fetch_ranges(ranges)
    }

    /// Some bytes from `at` on, at most as many as `out` holds; none behind the end. What isn't there is fetched and kept.
    pub fn read_at(&self, out: &mut [u8], at: u64) -> Result<usize> {
        let kept = self.kept()?;
        let wanted = self.object.bytes.min(at.saturating_add(out.len() as u64));
        if wanted <= at {
            return Ok(0);
        }
        let mut end = kept.held_from(at);
        if end == at {
            kept.fetch_range(at..self.object.bytes.min(wanted.max(at.saturating_add(LEAST))))?;
            end = wanted;
        }
        let there = at as usize..end.min(wanted) as usize;
        let count = there.len();
        out[..count].copy_from_slice(&kept.buffer()[there]);
        Ok(count)
    }

    /// The whole object in local space, mapped.
    pub fn whole(&self) -> Result<Bytes> {
        let kept = self.kept()?;
        kept.fetch_range(0..self.object.bytes)?;
        Ok(Bytes::from_owner(kept.buffer().clone()))
    }

    /// From `at` on, piece by piece, nothing kept; what is skipped isn't fetched where that saves something.
    pub fn stream(&self, at: u64) -> Stream {
        let object = self.object.as_ref().clone();
        Stream(Reader {
            remote: self.remote.clone(),
            name: object.name,
            version: Some(object.version),
            bytes: object.bytes,
            next: at,
            step: LEAST,
            piece: Bytes::new(),
        })
    }

    fn kept(&self) -> Result<&Partial> {
        if let Some(kept) = self.kept.get() {
            return Ok(kept);
        }
        let object = &self.object;
        let partial =
            Partial::new(self.remote.clone(), object.name.clone(), object.bytes, Some(object.version.clone()))?;
        Ok(self.kept.get_or_init(|| partial))
    }
}

/// An object from some place on. Its failures are our errors inside those of `std::io`.
#[derive(Debug)]
pub struct Stream(Reader);

impl Stream {
    /// Moves on by `bytes`, or to the end.
    pub fn skip(&mut self, bytes: u64) {
        let reader = &mut self.0;
        let inside = usize::try_from(bytes).unwrap_or(usize::MAX).min(reader.piece.len());
        let _ = reader.piece.split_to(inside);
        let beyond = bytes - inside as u64;
        if beyond > reader.step {
            reader.step = LEAST;
        }
        reader.next = reader.next.saturating_add(beyond).min(reader.bytes);
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(out)
    }
}
