//! The one error type: what kind of failure it is (which decides what a caller can do), a message that names the
//! thing, and the cause kept apart. Nothing here prints or exits; `cli` walks the chain once.
//!
//! A message says what was expected, what was found and the next thing to try; it never repeats its source.

use std::error::Error as StdError;
use std::fmt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The input is wrong: mend it.
    Invalid,
    /// A named thing is not there.
    NotFound,
    /// Something changed underneath, or two things disagree: look again and retry.
    Conflict,
    /// A service, disk or network failed for now: retry.
    Unavailable,
    /// Stored bytes are not what they were: repair or recompute.
    Corrupt,
    /// A bug in Forebay.
    Internal,
}

impl Kind {
    /// The one table: (process exit code, gRPC status code, Python exception).
    pub const fn table(self) -> (u8, u8, &'static str) {
        match self {
            Kind::Invalid => (1, 3, "InvalidError"),
            Kind::NotFound => (1, 5, "NotFoundError"),
            Kind::Conflict => (1, 9, "ConflictError"),
            Kind::Unavailable => (3, 14, "UnavailableError"),
            Kind::Corrupt => (4, 15, "CorruptError"),
            Kind::Internal => (70, 13, "InternalError"),
        }
    }

    pub const fn exit_code(self) -> u8 {
        self.table().0
    }

    /// Lower-case name, used in `--json` errors.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::NotFound => "not_found",
            Kind::Conflict => "conflict",
            Kind::Unavailable => "unavailable",
            Kind::Corrupt => "corrupt",
            Kind::Internal => "internal",
        }
    }
}

type Source = Box<dyn StdError + Send + Sync + 'static>;

pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Source>,
    refused: bool,
}

impl Error {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), source: None, refused: false }
    }
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, message)
    }
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message)
    }
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Attaches the cause.
    pub fn caused_by(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says that a service refused the request, whatever the request was about.
    pub fn refused(mut self) -> Self {
        self.refused = true;
        self
    }

    /// Whether that is so: nothing is known then of what was asked for.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Wraps this error in a message that says what was being done; the kind stays.
    pub fn during(self, message: impl Into<String>) -> Self {
        Error { kind: self.kind, message: message.into(), refused: self.refused, source: Some(Box::new(self)) }
    }

    /// An I/O failure on a named thing: missing is `NotFound`, all else `Unavailable`. One of ours that came through a reader
    /// and says what is wrong with the data is itself again.
    pub fn io(what: impl fmt::Display, error: std::io::Error) -> Self {
        let ours = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
        let of_data = ours.is_some_and(|ours| matches!(ours.kind, Kind::Conflict | Kind::Corrupt | Kind::NotFound));
        let error = match of_data {
            true => match error.downcast::<Error>() {
                Ok(ours) => return ours,
                Err(error) => error,
            },
            false => error,
        };
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            _ => Kind::Unavailable,
        };
        Self::new(kind, what.to_string()).caused_by(error)
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether a disk, a quota or a limit of files without room is the cause: trying again is in vain until there is some.
    pub fn is_disk_full(&self) -> bool {
        let mut next = Some(self as &(dyn StdError + 'static));
        while let Some(error) = next {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
                return matches!(io.kind(), StorageFull | QuotaExceeded | FileTooLarge);
            }
            next = error.source();
        }
        false
    }

    /// The message followed by each cause, on one line.
    pub fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut next = StdError::source(self);
        while let Some(error) = next {
            text.push_str(": ");
            text.push_str(&error.to_string());
            next = error.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.chain())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|s| &**s as _)
    }
}

/// Arrow failing on batches that we built ourselves is a bug; failing on outside bytes is mapped where it is read.
impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Error::internal("an Arrow operation failed").caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_never_repeats_the_source() {
        let error =
            Error::io("cannot read a.jpg", std::io::Error::from(std::io::ErrorKind::NotFound)).during("stage resize");
        assert_eq!(error.to_string(), "stage resize");
        assert_eq!(error.kind(), Kind::NotFound);
        assert_eq!(error.chain(), "stage resize: cannot read a.jpg: entity not found");
    }

    #[test]
    fn a_full_disk_is_known_by_its_cause() {
        let of = |kind: std::io::ErrorKind| Error::io("cannot write", kind.into()).during("shard 3").is_disk_full();
        assert!(of(std::io::ErrorKind::StorageFull) && of(std::io::ErrorKind::QuotaExceeded));
        assert!(!of(std::io::ErrorKind::TimedOut) && !Error::unavailable("the disk is full").is_disk_full());
    }
}
