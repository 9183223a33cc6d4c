//! A bucket's objects below a prefix as storage. Requests run on one small runtime; callers are threads and wait. Each
//! request is tried again as `retry` says and fails as `failure` says, by what `answer` found in the reply; `connect` opens a
//! service with the `keys` that it takes (`others`: GCS and Azure), `part` holds what was fetched of a shard's part, `partial`
//! of another object; `objects` are those of others, for sources.

mod answer;
mod connect;
mod failure;
mod keys;
mod objects;
#[cfg(any(feature = "gcs", feature = "azure"))]
mod others;
mod part;
mod partial;
mod retry;

pub use objects::{Listed, Objects, Pinned, Stream, Version, Wanted};
use part::RemotePart;
use partial::Partial;

use super::access::Access;
use super::address::Service;
use super::temporary::{self, Means, Temporary};
use super::tier::Tier;
use super::{Object, Put, map};
use crate::error::{Error, Kind, Result};
use arrow::buffer::Buffer;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as ObjectPath;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use retry::Retry;
use std::future::Future;
use std::io::{self, Read};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// About what is fetched by one request at most.
const PIECE: u64 = 16 << 20;
/// Ranges with less between them are fetched together: so much takes less time than another request.
const GAP: u64 = 256 << 10;
/// How long a disk that refused a write is left alone.
const REFUSED: Duration = Duration::from_secs(60);
/// Requests for pieces of one object at a time.
const PIECES: usize = 16;
/// How long a service that was never there is waited for.
const UNREACHED: Duration = Duration::from_secs(10);

static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("forebay-io").enable_all().build()
});

fn wait<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    match &*RUNTIME {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => Err(Error::unavailable(format!("no threads are to be had for requests: {error}"))),
    }
}

#[derive(Debug)]
pub(super) struct Remote {
    objects: Arc<dyn ObjectStore>,
    /// For messages and for other programs.
    url: String,
    prefix: String,
    scratch: PathBuf,
    tier: Option<Tier>,
    /// When the local disk last refused what was fetched.
    refused: Mutex<Option<Instant>>,
    retry: Retry,
    /// The store's clock when this process asked it, and when that was.
    clock: OnceLock<(i64, Instant)>,
}

impl Remote {
    pub fn connect(url: String, service: Service, bucket: &str, prefix: String, access: &Access) -> Result<Remote> {
        let objects = connect::open(service, bucket, access)?;
        let access = Access { patience: connect::patience(access)?, ..access.clone() };
        Ok(Self::over(objects, url, prefix, &access))
    }

    /// Over any service, a memory or one that fails on purpose.
    pub fn over(objects: Arc<dyn ObjectStore>, url: String, prefix: String, access: &Access) -> Remote {
        // Who says how long to wait means that, too.
        let unreached =
            if connect::is_patience_given(access) { access.patience } else { UNREACHED.min(access.patience) };
        let retry = Retry::new(access.patience, unreached, access.first_pause);
        let (scratch, tier) = (access.scratch.clone(), Tier::new(access));
        Remote { objects, url, prefix, scratch, tier, refused: Mutex::default(), retry, clock: OnceLock::new() }
    }

    pub fn longest_request(&self) -> Duration {
        self.retry.longest()
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn temporary(&self) -> Result<Temporary> {
        std::fs::create_dir_all(&self.scratch)
            .and_then(|()| Temporary::new(&self.scratch, Means::ALL))
            .map_err(|e| super::failure::failure("make a file in", &self.scratch, e))
    }

    /// Whether the local disk is better left alone for what is fetched.
    fn disk_refuses(&self) -> bool {
        self.refused.lock().expect("no panics while locked").is_some_and(|since| since.elapsed() < REFUSED)
    }

    fn disk_refused(&self) {
        *self.refused.lock().expect("no panics while locked") = Some(Instant::now());
    }

    fn path(&self, name: &str) -> Result<ObjectPath> {
        let full = match (self.prefix.as_str(), name) {
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}/{name}"),
        };
        ObjectPath::parse(&full).map_err(|e| Error::invalid(format!("{full:?} can't name an object")).caused_by(e))
    }

    fn shown(&self, name: &str) -> String {
        format!("{}/{name}", self.url)
    }

    /// The name below the prefix; `None` for what isn't there.
    fn name<'a>(&self, path: &'a ObjectPath) -> Option<&'a str> {
        let rest = path.as_ref().strip_prefix(self.prefix.as_str())?;
        if self.prefix.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }

    async fn request<T, F>(&self, doing: &str, name: &str, bytes: u64, call: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        self.retry.run(bytes, call).await.map_err(|e| failure::failure(doing, &self.shown(name), &e))
    }

    pub fn put(&self, bytes: Bytes, name: &str, replace: bool) -> Result<Put> {
        let path = self.path(name)?;
        wait(async {
            let mode = if replace { PutMode::Overwrite } else { PutMode::Create };
            let length = bytes.len() as u64;
            let payload = PutPayload::from_bytes(bytes);
            let send = |mode: PutMode| {
                let options = PutOptions { mode, ..PutOptions::default() };
                self.objects.put_opts(&path, payload.clone(), options)
            };
            let refused = |e: &Error| failure::is(e, failure::Reason::NotImplemented);
            let put = match self.request("write", name, length, || send(mode.clone())).await {
                // Without conditional put two writers at the same instant both succeed, which the store's protocol bears.
                Err(error) if !replace && refused(&error) => match self.length(name, &path).await? {
                    Some(bytes) => return Ok(Put::Exists { bytes }),
                    None => self.request("write", name, length, || send(PutMode::Overwrite)).await,
                },
                put => put,
            };
            match put {
                Ok(_) => Ok(Put::Created),
                Err(error) if !replace && failure::is(&error, failure::Reason::Exists) => {
                    match self.length(name, &path).await? {
                        Some(bytes) => Ok(Put::Exists { bytes }),
                        None => Err(Error::unavailable(format!(
                            "{} is being written or was removed at this moment: try again",
                            self.shown(name)
                        ))),
                    }
                }
                Err(error) => Err(error),
            }
        })
    }

    /// What is there already isn't sent again.
    pub fn publish(&self, temporary: &Temporary, bytes: u64, name: &str, replace: bool) -> Result<Put> {
        if !replace && let Some(bytes) = self.bytes(name)? {
            return Ok(Put::Exists { bytes });
        }
        let failed = |e| super::failure::failure("read", temporary.path(), e);
        let length = usize::try_from(bytes).map_err(|_| failed(io::ErrorKind::FileTooLarge.into()))?;
        let mapped = map::map(temporary.file(), length).map_err(failed)?;
        self.put(Bytes::from_owner(mapped), name, replace)
    }

    pub fn get(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(name)?;
        wait(async {
            let fetched = self.request("read", name, limit.min(PIECE), || async {
                let found = self.objects.get(&path).await?;
                if found.meta.size > limit {
                    return Ok(Err(found.meta.size));
                }
                let expected = found.meta.size;
                Ok(Ok(retry::body(found, expected).await?.concat()))
            });
            match there(fetched.await)? {
                None => Ok(None),
                Some(Ok(bytes)) => Ok(Some(bytes)),
                Some(Err(found)) => {
                    Err(Error::corrupt(format!("{} has {found} bytes; expected at most {limit}", self.shown(name))))
                }
            }
        })
    }

    pub fn stat(&self, name: &str) -> Result<Option<Object>> {
        let path = self.path(name)?;
        let found = wait(async { there(self.head(name, &path).await) })?;
        Ok(found.map(|meta| object(name.to_owned(), &meta)))
    }

    fn bytes(&self, name: &str) -> Result<Option<u64>> {
        let path = self.path(name)?;
        wait(self.length(name, &path))
    }

    async fn length(&self, name: &str, path: &ObjectPath) -> Result<Option<u64>> {
        Ok(there(self.head(name, path).await)?.map(|meta| meta.size))
    }

    /// What HEAD says. Its refusals have no body: where one leaves open why, a byte is asked for.
    async fn head(&self, name: &str, path: &ObjectPath) -> Result<ObjectMeta> {
        match self.request("look at", name, 0, || self.objects.head(path)).await {
            Err(unsaid) if failure::is(&unsaid, failure::Reason::Unsaid) => {
                let range = Some(GetRange::Bounded(0..1));
                let get = || self.objects.get_opts(path, GetOptions { range: range.clone(), ..GetOptions::default() });
                match self.request("look at", name, 1, get).await {
                    Ok(found) => Ok(found.meta),
                    Err(said) if said.kind() == Kind::Corrupt => Err(unsaid),
                    Err(said) => Err(said),
                }
            }
            found => found,
        }
    }

    /// These ranges of an object of `bytes` bytes, and of a version where one is meant, each by requests of about `PIECE` at
    /// most, side by side: bytes as they came, with their offsets.
    async fn ranges(
        &self,
        name: &str,
        bytes: u64,
        version: Option<&Version>,
        ranges: &[Range<u64>],
    ) -> Result<Vec<(u64, Bytes)>> {
        let path = &self.path(name)?;
        let pieces = ranges.iter().flat_map(|range| {
            let Range { start, end } = range.clone();
            // Equal ones: a chunk is a little more than a piece.
            let count = ((end - start + PIECE / 2) / PIECE).max(1);
            let piece = (end - start).div_ceil(count).max(1);
            (0..count).map(move |index| (start + index * piece).min(end)..(start + (index + 1) * piece).min(end))
        });
        let fetch = |piece: Range<u64>| async move {
            let length = piece.end - piece.start;
            let fetched = self.request("read", name, length, || async {
                let range = Some(GetRange::Bounded(piece.clone()));
                let found = self.objects.get_opts(path, GetOptions { range, ..Version::options(version) }).await?;
                if found.meta.size != bytes || version.is_some_and(|version| Version::of(&found.meta) != *version) {
                    return Ok(Err(found.meta.size));
                }
                Ok(Ok(retry::body(found, length).await?))
            });
            let found = match fetched.await {
                Err(error) if version.is_some() && is_gone(&error) => return Err(self.gone(name)),
                found => found?,
            };
            match found {
                Ok(body) => Ok(placed(piece.start, body)),
                Err(_) if version.is_some() => Err(self.changed(name)),
                Err(found) => Err(Error::corrupt(format!("{} has {found} bytes; expected {bytes}", self.shown(name)))),
            }
        };
        let bodies: Vec<Vec<(u64, Bytes)>> =
            stream::iter(pieces.map(fetch)).buffer_unordered(PIECES).try_collect().await?;
        Ok(bodies.into_iter().flatten().collect())
    }

    /// An object is another than the one that is meant.
    fn changed(&self, name: &str) -> Error {
        Error::conflict(format!("{} has changed since it was listed: run `forebay snapshot`", self.shown(name)))
    }

    fn gone(&self, name: &str) -> Error {
        Error::conflict(format!("{} is gone since it was listed: run `forebay snapshot`", self.shown(name)))
    }

    pub fn reader(self: &Arc<Self>, name: &str) -> Result<Option<impl Read + use<>>> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        let (remote, name) = (self.clone(), name.to_owned());
        Ok(Some(Reader { remote, name, version: None, bytes, next: 0, step: PIECE, piece: Bytes::new() }))
    }

    /// A whole object, fetched to local space.
    pub fn map(self: &Arc<Self>, name: &str, bytes: u64) -> Result<Buffer> {
        match self.bytes(name)? {
            Some(found) if found == bytes => {}
            Some(found) => {
                return Err(Error::corrupt(format!("{} has {found} bytes; expected {bytes}", self.shown(name))));
            }
            None => return Err(Error::not_found(format!("{} is not there", self.shown(name)))),
        }
        let partial = Partial::new(self.clone(), name.to_owned(), bytes, None)?;
        partial.fetch_range(0..bytes)?;
        Ok(partial.buffer().clone())
    }

    /// A shard's part, of which nothing was fetched yet.
    pub fn part(self: &Arc<Self>, name: &str, bytes: u64) -> RemotePart {
        RemotePart::new(self.clone(), name.to_owned(), bytes)
    }

    /// Objects below the directory `prefix`, sorted by name.
    pub fn list(&self, prefix: &str) -> Result<Vec<Object>> {
        let listed = self.listed(prefix)?;
        let mut objects: Vec<Object> = listed
            .iter()
            .filter_map(|meta| {
                let name = self.name(&meta.location)?.to_owned();
                let kept = !name.split('/').any(|part| part.starts_with(temporary::PREFIX));
                kept.then(|| object(name, meta))
            })
            .collect();
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        objects.dedup_by(|a, b| a.name == b.name);
        Ok(objects)
    }

    /// What the service lists below a directory. A failure goes on behind the last one that was listed.
    fn listed(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let directory = self.path(prefix)?;
        let within = (!directory.as_ref().is_empty()).then_some(&directory);
        let listed = std::sync::Mutex::new(Vec::<ObjectMeta>::new());
        wait(self.request("list", prefix, 0, || async {
            let last = listed.lock().expect("no panics while locked").last().map(|meta| meta.location.clone());
            let mut stream = match &last {
                Some(last) => self.objects.list_with_offset(within, last),
                None => self.objects.list(within),
            };
            while let Some(meta) = stream.next().await {
                listed.lock().expect("no panics while locked").push(meta?);
            }
            Ok(())
        }))?;
        Ok(listed.into_inner().expect("no panics while locked"))
    }

    /// What stands directly below `prefix`, sorted: directories, or objects.
    pub fn children(&self, prefix: &str, directories: bool) -> Result<Vec<String>> {
        let directory = self.path(prefix)?;
        let within = (!directory.as_ref().is_empty()).then_some(&directory);
        let found = wait(self.request("list", prefix, 0, || self.objects.list_with_delimiter(within)))?;
        let paths: Vec<ObjectPath> = match directories {
            true => found.common_prefixes,
            false => found.objects.into_iter().map(|meta| meta.location).collect(),
        };
        let last = |path: &ObjectPath| self.name(path)?.rsplit('/').next().map(str::to_owned);
        let mut names: Vec<String> = paths.iter().filter_map(last).collect();
        names.retain(|name| !name.is_empty() && !name.starts_with(temporary::PREFIX));
        names.sort_unstable();
        Ok(names)
    }

    pub fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        wait(async { there(self.request("remove", name, 0, || self.objects.delete(&path)).await) }).map(drop)
    }

    /// Asked once per process: by the time stamp of an object written for it. Whoever writes asks first, and so learns here
    /// of a service whose ranged reads are none.
    pub fn now_ms(&self) -> Result<i64> {
        if let Some((then, asked)) = self.clock.get() {
            return Ok(then + i64::try_from(asked.elapsed().as_millis()).unwrap_or(i64::MAX));
        }
        let name = temporary::fresh();
        let path = self.path(&name)?;
        let body = PutPayload::from_static(b"0123");
        wait(self.request("write", &name, 0, || self.objects.put(&path, body.clone())))?;
        let found = wait(self.request("read", &name, 0, || async {
            let options = GetOptions { range: Some(GetRange::Bounded(1..3)), ..GetOptions::default() };
            let found = self.objects.get_opts(&path, options).await?;
            let now = found.meta.last_modified.timestamp_millis();
            retry::same(&found.bytes().await?, b"12")?;
            Ok(now)
        }));
        let deleted = self.delete(&name);
        let now = found?;
        deleted?;
        let _ = self.clock.set((now, Instant::now()));
        Ok(now)
    }

    /// Objects that only told the time, left by a killed process.
    pub fn sweep(&self, age: Duration) -> Result<u64> {
        let latest = self.now_ms()?.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let directory = self.path("")?;
        let within = (!directory.as_ref().is_empty()).then_some(&directory);
        let found = wait(self.request("list", "", 0, || self.objects.list_with_delimiter(within)))?;
        let mut swept = 0;
        for meta in found.objects {
            let Some(name) = self.name(&meta.location) else { continue };
            if name.starts_with(temporary::PREFIX) && meta.last_modified.timestamp_millis() <= latest {
                self.delete(name)?;
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// What to ask for to have these ranges.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let near = next.start <= last.end.saturating_add(GAP);
        if near {
            last.end = last.end.max(next.end);
        }
        near
    });
    ranges
}

/// Pieces that follow one another, with their offsets.
fn placed(mut offset: u64, pieces: Vec<Bytes>) -> Vec<(u64, Bytes)> {
    let place = |piece: Bytes| {
        let at = offset;
        offset += piece.len() as u64;
        (at, piece)
    };
    pieces.into_iter().map(place).collect()
}

fn object(name: String, meta: &ObjectMeta) -> Object {
    Object { name, bytes: meta.size, modified_ms: meta.last_modified.timestamp_millis() }
}

/// Whether an object isn't there; a bucket that isn't is another matter.
fn is_gone(error: &Error) -> bool {
    error.kind() == Kind::NotFound && !failure::is(error, failure::Reason::NoBucket)
}

/// What isn't there is no failure.
fn there<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An object read in order, a piece at a time.
#[derive(Debug)]
struct Reader {
    remote: Arc<Remote>,
    name: String,
    version: Option<Version>,
    bytes: u64,
    next: u64,
    /// The next piece's length, at most: it grows as one piece follows another.
    step: u64,
    piece: Bytes,
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && self.next < self.bytes {
            let range = self.next..self.bytes.min(self.next + self.step);
            let version = self.version.as_ref();
            let fetched = wait(self.remote.ranges(&self.name, self.bytes, version, std::slice::from_ref(&range)));
            let mut pieces: Vec<Bytes> =
                fetched.map_err(io::Error::other)?.into_iter().map(|(_, bytes)| bytes).collect();
            self.piece = if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() };
            self.next = range.end;
            self.step = PIECE.min(self.step * 2);
        }
        let count = out.len().min(self.piece.len());
        out[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
