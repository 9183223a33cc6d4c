//! Tar's headers: members in order, from untrusted bytes. Regular files with ustar, GNU and PAX names and sizes; what would make
//! a member mean something else than its bytes (sparse files, hard links) is refused by name.

use crate::error::{Error, Result};
use std::io::{BufReader, Read, Seek};

const BLOCK: usize = 512;
/// Long names and PAX records are held in memory.
const MOST_EXTENSION_BYTES: u64 = 1 << 20;

/// Bytes in order, of which some may be passed over.
pub(super) trait Input: Read {
    /// Moves on by `bytes`, or to the end.
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        let mut piece = [0; 1 << 14];
        let mut left = bytes;
        while left > 0 {
            let want = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            match self.read(&mut piece[..want]) {
                Ok(0) => break,
                Ok(read) => left -= read as u64,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// A stream that can only be read.
pub(super) struct Stream<R>(pub R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(out)
    }
}
impl<R: Read> Input for Stream<R> {}
impl Input for &[u8] {}
impl<R: Read + Seek> Input for BufReader<R> {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        self.seek_relative(i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

/// A regular file in an archive. Its data is next in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub name: String,
    /// Of its first header, long names included.
    pub start: u64,
    /// Behind its data and padding.
    pub end: u64,
    pub bytes: u64,
}

pub(super) struct Tar<R> {
    input: R,
    archive: String,
    at: u64,
    /// The bytes of the headers of the member returned last.
    pub head: Vec<u8>,
    /// Data and padding of that member that are still to come.
    data: u64,
    padding: u64,
    /// The input's length, where it is known.
    length: Option<u64>,
    /// Whether the input is a piece of an archive, without the mark at its end.
    piece: bool,
}

impl<R: Input> Tar<R> {
    pub fn new(input: R, archive: &str, length: Option<u64>) -> Self {
        Tar { input, archive: archive.to_owned(), at: 0, head: Vec::new(), data: 0, padding: 0, length, piece: false }
    }
    /// Over a whole number of members.
    pub fn piece(input: R, archive: &str) -> Self {
        Tar { piece: true, ..Self::new(input, archive, None) }
    }

    /// The next regular file; what is left of the last one is passed over. `gap` becomes true where members of other kinds
    /// stand before it.
    pub fn next(&mut self, gap: &mut bool) -> Result<Option<Member>> {
        self.skip_data()?;
        self.head.clear();
        let mut start = self.at;
        let (mut long_name, mut pax) = (None, Pax::default());
        loop {
            let header_at = self.at;
            let Some(header) = self.header()? else { return Ok(None) };
            let field = |from: usize, to: usize| header.get(from..to).unwrap_or_default();
            let bytes = number(field(124, 136)).ok_or_else(|| self.bad(header_at, "has a size that is no number"))?;
            let kind = header[156];
            if matches!(kind, b'L' | b'K' | b'x' | b'g') {
                let body = self.extension(header_at, bytes)?;
                match kind {
                    b'L' => long_name = Some(body.split(|&b| b == 0).next().unwrap_or_default().to_vec()),
                    b'x' => {
                        pax = Pax::parse(&body)
                            .ok_or_else(|| self.bad(header_at, "has PAX records that can't be read"))?
                    }
                    _ => {}
                }
                continue;
            }
            let raw = pax.path.take().or(long_name.take()).unwrap_or_else(|| plain_name(&header));
            let name = self.checked_name(&raw, header_at)?;
            let bytes = pax.bytes.take().unwrap_or(bytes);
            let refuse =
                |why: &str| Err(Error::invalid(format!("{}: member {name:?} at byte {header_at} {why}", self.archive)));
            if kind == b'S' || pax.sparse {
                return refuse("is a sparse file; write the archive without --sparse");
            }
            if kind == b'1' {
                return refuse("is a hard link; write the archive with --hard-dereference");
            }
            if self.length.is_some_and(|length| bytes > length.saturating_sub(self.at)) {
                return refuse("ends behind the end of the archive: the archive is truncated");
            }
            // Links, devices and pipes have no data, whatever their size says.
            let data = if matches!(kind, b'2' | b'3' | b'4' | b'5' | b'6') { 0 } else { bytes };
            self.data = data;
            self.padding = data.next_multiple_of(BLOCK as u64) - data;
            let regular = matches!(kind, 0 | b'0' | b'7') && !name.ends_with('/');
            if regular {
                let end = self.at.checked_add(data).and_then(|end| end.checked_add(self.padding));
                let end = end.ok_or_else(|| self.bad(header_at, "has a size that is no number"))?;
                return Ok(Some(Member { name, start, end, bytes }));
            }
            *gap = true;
            self.skip_data()?;
            self.head.clear();
            pax = Pax::default();
            start = self.at;
        }
    }

    /// Appends the data of the member to `out`; whether it may be that large is for the caller to know.
    pub fn data(&mut self, out: &mut Vec<u8>) -> Result<()> {
        // Grows with what is really there, not with what a header claims.
        let read = self.input.by_ref().take(self.data).read_to_end(out).map_err(|e| self.io(e))? as u64;
        self.at += read;
        if read < self.data {
            return Err(self.truncated());
        }
        self.data = 0;
        Ok(())
    }

    /// Hands the data and padding of the member to `each`, piece by piece.
    pub fn pass(&mut self, mut each: impl FnMut(&[u8])) -> Result<()> {
        let mut left = self.data + self.padding;
        let mut piece = vec![0; left.min(1 << 18) as usize];
        while left > 0 {
            let want = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = self.input.read(&mut piece[..want]).map_err(|e| self.io(e))?;
            if read == 0 {
                return Err(self.truncated());
            }
            each(&piece[..read]);
            left -= read as u64;
            self.at += read as u64;
        }
        (self.data, self.padding) = (0, 0);
        Ok(())
    }

    fn skip_data(&mut self) -> Result<()> {
        let left = self.data + self.padding;
        if left > 0 {
            self.input.skip(left).map_err(|e| self.io(e))?;
            self.at += left;
            (self.data, self.padding) = (0, 0);
        }
        Ok(())
    }

    /// The next header block; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let Some(block) = self.block()? else {
            if self.piece {
                return Ok(None);
            }
            return Err(Error::invalid(format!(
                "{}: the archive ends at byte {} without the mark of its end: it is truncated",
                self.archive, self.at
            )));
        };
        if block.iter().all(|&b| b == 0) {
            // The mark is two blocks, and writers fill up with more.
            while let Some(block) = self.block()? {
                if block.iter().any(|&b| b != 0) {
                    let at = self.at - BLOCK as u64;
                    return Err(self.bad(at, "stands behind the end of the archive; are several archives joined?"));
                }
            }
            return Ok(None);
        }
        let told = number(&block[148..156]);
        let sum: u64 =
            block.iter().enumerate().map(|(i, &b)| if (148..156).contains(&i) { 32 } else { u64::from(b) }).sum();
        if told != Some(sum) {
            return Err(self.bad(self.at - BLOCK as u64, "is no tar header"));
        }
        self.head.extend_from_slice(&block);
        Ok(Some(block))
    }

    fn block(&mut self) -> Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.input.read(&mut block[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io(e)),
            }
        }
        self.at += filled as u64;
        match filled {
            0 => Ok(None),
            BLOCK => Ok(Some(block)),
            _ => Err(self.truncated()),
        }
    }

    /// The body of a header that extends the next one.
    fn extension(&mut self, header_at: u64, bytes: u64) -> Result<Vec<u8>> {
        if bytes > MOST_EXTENSION_BYTES {
            return Err(self.bad(header_at, "has a name or PAX records of more than 1 MiB"));
        }
        let mut body = Vec::new();
        for _ in 0..bytes.div_ceil(BLOCK as u64) {
            let block = self.block()?.ok_or_else(|| self.truncated())?;
            body.extend_from_slice(&block);
        }
        self.head.extend_from_slice(&body);
        body.truncate(bytes as usize);
        Ok(body)
    }

    fn checked_name(&self, raw: &[u8], at: u64) -> Result<String> {
        let text = std::str::from_utf8(raw)
            .map_err(|_| self.bad(at, &format!("has a name that is not UTF-8: {:?}", String::from_utf8_lossy(raw))))?;
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(
                self.bad(at, &format!("is named {text:?}, which is absolute or leads outside; names must be relative"))
            );
        }
        let mut name = text;
        while let Some(rest) = name.strip_prefix("./") {
            name = rest;
        }
        Ok(name.to_owned())
    }

    fn bad(&self, at: u64, why: &str) -> Error {
        Error::invalid(format!("{}: the member at byte {at} {why}", self.archive))
    }
    fn truncated(&self) -> Error {
        Error::invalid(format!(
            "{}: the archive is truncated: it ends at byte {} inside a member",
            self.archive, self.at
        ))
    }
    fn io(&self, e: std::io::Error) -> Error {
        match e.kind() {
            // A failure of ours, on its way through a reader.
            _ if e.get_ref().is_some_and(|inner| inner.is::<Error>()) => Error::io(&self.archive, e),
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::InvalidData
            | std::io::ErrorKind::InvalidInput
            | std::io::ErrorKind::Other => {
                Error::invalid(format!("{}: the compressed archive is damaged or truncated", self.archive)).caused_by(e)
            }
            _ => Error::io(format!("cannot read {}", self.archive), e),
        }
    }
}

/// Octal text, or a binary number of at most 63 bits.
fn number(field: &[u8]) -> Option<u64> {
    let (first, rest) = field.split_first()?;
    if first & 0x80 != 0 {
        let mut value = u64::from(first & 0x7f);
        for byte in rest {
            value = value.checked_mul(256)?.checked_add(u64::from(*byte))?;
        }
        return Some(value).filter(|v| *v <= i64::MAX as u64);
    }
    let text = std::str::from_utf8(field.split(|&b| b == 0).next()?).ok()?.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok().filter(|v| *v <= i64::MAX as u64) }
}

fn plain_name(header: &[u8; BLOCK]) -> Vec<u8> {
    let until_zero = |field: &[u8]| field.split(|&b| b == 0).next().unwrap_or_default().to_vec();
    let name = until_zero(&header[..100]);
    let prefix = until_zero(&header[345..500]);
    // GNU's magic differs by a space; behind it, these bytes are times.
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() { [prefix, name].join(&b'/') } else { name }
}

/// The records of a PAX header that matter.
#[derive(Default)]
struct Pax {
    path: Option<Vec<u8>>,
    bytes: Option<u64>,
    sparse: bool,
}

impl Pax {
    fn parse(mut body: &[u8]) -> Option<Pax> {
        let mut pax = Pax::default();
        while !body.is_empty() {
            let space = body.iter().position(|&b| b == b' ')?;
            let length: usize = std::str::from_utf8(&body[..space]).ok()?.parse().ok()?;
            let record = body.get(space + 1..length)?.strip_suffix(b"\n")?;
            body = &body[length..];
            let equals = record.iter().position(|&b| b == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => pax.path = Some(value.to_vec()),
                b"size" => {
                    let bytes = std::str::from_utf8(value).ok()?.parse::<u64>().ok()?;
                    pax.bytes = Some(bytes).filter(|v| *v <= i64::MAX as u64);
                    pax.bytes?;
                }
                key if key.starts_with(b"GNU.sparse") => pax.sparse = true,
                _ => {}
            }
        }
        Some(pax)
    }
}
