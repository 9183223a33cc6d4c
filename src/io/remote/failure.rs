//! What a service's refusal means: which kind of error it is and what to do. The service's own code stays in the message;
//! URLs with signatures and headers never do.

use crate::error::{Error, Kind};
use object_store::Error as Refusal;
use std::fmt;

/// What callers go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Exists,
    NoBucket,
    NotImplemented,
    Other,
}

/// The service's words, cut to what helps.
#[derive(Debug)]
struct Said {
    reason: Reason,
    text: String,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Said {}

/// `doing` is a verb ("read"), `what` the object's URL.
pub fn failure(doing: &str, what: &str, refusal: Refusal) -> Error {
    let text = words(&refusal);
    let code = between(&text, "<Code>", "</Code>").unwrap_or_default();
    let (kind, reason, advice) = match (&refusal, code) {
        (_, "NoSuchBucket") => (Kind::NotFound, Reason::NoBucket, "the bucket doesn't exist: make it, or mend the URL"),
        (_, "ExpiredToken" | "TokenRefreshRequired") => {
            (Kind::Invalid, Reason::Other, "the credentials have expired: get new ones and run this again")
        }
        (_, "InvalidAccessKeyId") => (
            Kind::Invalid,
            Reason::Other,
            "the service doesn't know the access key: check AWS_ACCESS_KEY_ID and the endpoint",
        ),
        (_, "SignatureDoesNotMatch") => {
            (Kind::Invalid, Reason::Other, "the secret key is wrong: check AWS_SECRET_ACCESS_KEY")
        }
        (_, "RequestTimeTooSkewed") => (Kind::Invalid, Reason::Other, "this machine's clock is wrong: set it"),
        (_, "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException") => {
            (Kind::Invalid, Reason::Other, "the bucket is in another region: set AWS_REGION to the bucket's")
        }
        (_, "InvalidRange") => (Kind::Corrupt, Reason::Other, "the object is shorter than it should be"),
        (Refusal::NotFound { .. }, _) => (Kind::NotFound, Reason::Other, "it is not there"),
        (Refusal::AlreadyExists { .. }, _) => (Kind::Conflict, Reason::Exists, "it exists"),
        (Refusal::Precondition { .. } | Refusal::NotModified { .. }, _) => {
            (Kind::Conflict, Reason::Other, "it has changed since it was listed: run `forebay snapshot`")
        }
        (Refusal::NotImplemented { .. } | Refusal::NotSupported { .. }, _) | (_, "NotImplemented") => {
            (Kind::Invalid, Reason::NotImplemented, "the service can't do that")
        }
        (Refusal::PermissionDenied { .. }, _) => (
            Kind::Invalid,
            Reason::Other,
            "the credentials don't allow it: grant reading, listing or writing, or use others",
        ),
        (Refusal::Unauthenticated { .. }, _) => {
            (Kind::Invalid, Reason::Other, "credentials are needed: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        }
        (_, _) if text.contains("status code: 501") => {
            (Kind::Invalid, Reason::NotImplemented, "the service can't do that")
        }
        (_, _) if text.contains("redirect without LOCATION") || text.contains("status code: 301") => {
            (Kind::Invalid, Reason::Other, "the bucket is in another region: set AWS_REGION to the bucket's")
        }
        (_, _)
            if text.contains("Requested")
                || text.contains("non-partial response")
                || text.contains("CONTENT_RANGE") =>
        {
            (
                Kind::Invalid,
                Reason::Other,
                "the service doesn't answer ranged reads as S3 does, so it can't hold a store: use another",
            )
        }
        (_, _) if text.contains("status code: 4") => {
            (Kind::Invalid, Reason::Other, "the service refuses the request: check endpoint, region and options")
        }
        (_, _) if ["onnect", "dns error"].iter().any(|sign| text.contains(sign)) => (
            Kind::Unavailable,
            Reason::Other,
            "the service can't be reached: check the endpoint (AWS_ENDPOINT_URL; http:// or https://) and the network",
        ),
        _ => (Kind::Unavailable, Reason::Other, "try again; if it persists, look at the service"),
    };
    Error::new(kind, format!("cannot {doing} {what} ({advice})")).caused_by(Said { reason, text: short(&text, code) })
}

/// Whether this is why a request failed.
pub fn is(error: &Error, reason: Reason) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        if let Some(said) = source.downcast_ref::<Said>() {
            return said.reason == reason;
        }
        next = source.source();
    }
    false
}

/// The refusal and its causes, each said once.
fn words(refusal: &Refusal) -> String {
    let mut text = refusal.to_string();
    let mut next = std::error::Error::source(refusal);
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = cause.source();
    }
    text
}

/// The service's code and message where it gave them; else its words without the request's URL.
fn short(text: &str, code: &str) -> String {
    if !code.is_empty() {
        let message = between(text, "<Message>", "</Message>").unwrap_or_default();
        return format!("{code}: {}", message.chars().take(300).collect::<String>());
    }
    let words = text.split_whitespace().filter(|word| !word.contains("://"));
    words.collect::<Vec<_>>().join(" ").chars().take(400).collect()
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let start = text.find(from)? + from.len();
    let end = text[start..].find(to)?;
    Some(&text[start..start + end])
}
