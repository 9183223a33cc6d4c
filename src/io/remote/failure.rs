//! What a service's refusal means: which kind of error it is and what to do. The service's own code stays in the message;
//! URLs with signatures and headers never do.

use super::answer::Answer;
use super::keys::NoKeys;
use crate::error::{Error, Kind};
use object_store::Error as Refusal;
use std::error::Error as StdError;
use std::fmt;

/// What callers go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Exists,
    NoBucket,
    NotImplemented,
    /// Not even why is said, as HEAD has no body.
    Unsaid,
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

impl StdError for Said {}

/// A kind of error, what callers go on from, and what to do.
type Meaning = (Kind, Reason, String);

/// `doing` is a verb ("read"), `what` the object's URL.
pub fn failure(doing: &str, what: &str, refusal: &Refusal) -> Error {
    let ((kind, reason, advice), text) = match (Answer::of(refusal), no_keys(refusal)) {
        (_, Some(no_keys)) => ((Kind::Invalid, Reason::Other, no_keys.advice.clone()), no_keys.to_string()),
        (Some(answer), _) => (of_answer(doing, answer), answer.to_string()),
        (None, None) => {
            let text = without_urls(&words(refusal));
            (of_client(refusal, &text), text)
        }
    };
    let error = Error::new(kind, format!("cannot {doing} {what} ({})", in_words_of(what, advice)));
    let error = if kind == Kind::Invalid { error.refused() } else { error };
    if text.is_empty() { error } else { error.caused_by(Said { reason, text }) }
}

/// The advice, which is for S3, with the names that the service of a URL has.
fn in_words_of(what: &str, advice: String) -> String {
    let names: &[(&str, &str)] = match what.split_once("://") {
        Some(("az", _)) => &[
            ("AWS_ENDPOINT_URL", "AZURE_STORAGE_ENDPOINT"),
            ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
            (" (s3:ListBucket)", ""),
            (" (s3:PutObject)", ""),
            (" (s3:DeleteObject)", ""),
            (" (s3:GetObject)", ""),
            ("bucket", "container"),
        ],
        Some(("gs", _)) => &[
            ("AWS_ENDPOINT_URL", "google_base_url"),
            ("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"),
            ("s3:ListBucket", "storage.objects.list"),
            ("s3:PutObject", "storage.objects.create"),
            ("s3:DeleteObject", "storage.objects.delete"),
            ("s3:GetObject", "storage.objects.get"),
        ],
        _ => &[],
    };
    names.iter().fold(advice, |advice, (from, to)| advice.replace(from, to))
}

fn of_answer(doing: &str, answer: &Answer) -> Meaning {
    let other = |kind: Kind, advice: &str| (kind, Reason::Other, advice.to_owned());
    let invalid = |advice: &str| other(Kind::Invalid, advice);
    let region = || match &answer.region {
        Some(region) => invalid(&format!("the bucket is in the region {region}: set AWS_REGION={region}")),
        None => invalid("the bucket is in another region: set AWS_REGION to the bucket's"),
    };
    match answer.code.as_str() {
        "NoSuchBucket" | "ContainerNotFound" => {
            let advice = "the bucket doesn't exist: make it, or mend the URL";
            return (Kind::NotFound, Reason::NoBucket, advice.to_owned());
        }
        "InvalidBucketName" => return invalid("no bucket can have this name: mend the URL"),
        "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired" | "RequestExpired" => {
            return invalid("the credentials have expired: get new ones and run this again");
        }
        "InvalidToken" => return invalid("the session token is wrong: check AWS_SESSION_TOKEN, or unset it"),
        "InvalidAccessKeyId" => {
            return invalid("the service doesn't know the access key: check AWS_ACCESS_KEY_ID and the endpoint");
        }
        "SignatureDoesNotMatch" => return invalid("the secret key is wrong: check AWS_SECRET_ACCESS_KEY"),
        "AuthenticationFailed" | "InvalidAuthenticationInfo" | "NoAuthenticationInformation" => {
            return invalid(WRONG_KEYS);
        }
        "AuthorizationFailure" if answer.message.contains("Authorization header") => {
            return invalid(WRONG_KEYS);
        }
        "RequestTimeTooSkewed" => return invalid("this machine's clock is wrong: set it"),
        "PermanentRedirect" | "TemporaryRedirect" | "IllegalLocationConstraintException" => return region(),
        "AuthorizationHeaderMalformed" if answer.region.is_some() => return region(),
        "AuthorizationHeaderMalformed" => {
            return invalid("the region or the access key is wrong: check AWS_REGION and AWS_ACCESS_KEY_ID");
        }
        "InvalidObjectState" => return invalid("the object is archived: have the service restore it first"),
        "XMinioStorageFull" | "InsufficientStorage" | "QuotaExceeded" => {
            return other(Kind::Unavailable, "the service has no room left: make some, and run this again");
        }
        "NotImplemented" | "MethodNotAllowed" => return cannot(),
        _ => {}
    }
    if answer.message.contains("HTTPS") && answer.status == 400 {
        return invalid("the endpoint wants https: write https:// in AWS_ENDPOINT_URL");
    }
    if let Some(target) = &answer.redirected {
        return invalid(&format!("the endpoint sends us to {target}: set AWS_ENDPOINT_URL to where the service is"));
    }
    if answer.page && answer.status < 500 {
        return invalid(NO_SERVICE);
    }
    match answer.status {
        301 | 307 | 308 => region(),
        400 if answer.region.is_some() => region(),
        401 => invalid("credentials are needed: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        403 => {
            let reason = if answer.code.is_empty() { Reason::Unsaid } else { Reason::Other };
            (Kind::Invalid, reason, permission(doing).to_owned())
        }
        // A bucket that isn't there has a code.
        404 if answer.code.is_empty() && matches!(doing, "list" | "write") => invalid(NO_SERVICE),
        404 => other(Kind::NotFound, "it is not there"),
        409 | 412 if answer.method == "PUT" => (Kind::Conflict, Reason::Exists, "it exists".to_owned()),
        304 | 409 | 412 => other(Kind::Conflict, CHANGED),
        416 => other(Kind::Corrupt, "the object is shorter than it should be"),
        405 | 501 => cannot(),
        400 if answer.code.is_empty() && answer.method == "HEAD" => {
            let advice = "the service refuses the request: check endpoint, region and options".to_owned();
            (Kind::Invalid, Reason::Unsaid, advice)
        }
        408 | 429 | 500.. => other(Kind::Unavailable, "try again; if it persists, look at the service"),
        _ => invalid("the service refuses the request: check endpoint, region and options"),
    }
}

const WRONG_KEYS: &str =
    "the keys are wrong, or this machine's clock is: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
const CHANGED: &str = "it has changed since it was listed: run `forebay snapshot`";
const NO_SERVICE: &str = "what answers is no storage service: check the endpoint (AWS_ENDPOINT_URL)";

fn cannot() -> Meaning {
    (Kind::Invalid, Reason::NotImplemented, "the service can't do that".to_owned())
}

fn permission(doing: &str) -> &'static str {
    match doing {
        "list" => "the credentials don't allow listing (s3:ListBucket): grant it, or use others",
        "write" => "the credentials don't allow writing (s3:PutObject): grant it, or use others",
        "remove" => "the credentials don't allow removing (s3:DeleteObject): grant it, or use others",
        _ => {
            "the credentials don't allow reading (s3:GetObject) or, where it isn't there, listing (s3:ListBucket): \
             grant both, or use others"
        }
    }
}

/// Where no answer came, or one that the client can't use.
fn of_client(refusal: &Refusal, text: &str) -> Meaning {
    let other = |kind: Kind, advice: &str| (kind, Reason::Other, advice.to_owned());
    let has = |signs: &[&str]| signs.iter().any(|sign| text.contains(sign));
    match refusal {
        Refusal::NotFound { .. } => other(Kind::NotFound, "it is not there"),
        Refusal::AlreadyExists { .. } => (Kind::Conflict, Reason::Exists, "it exists".to_owned()),
        Refusal::Precondition { .. } | Refusal::NotModified { .. } => other(Kind::Conflict, CHANGED),
        Refusal::NotImplemented { .. } | Refusal::NotSupported { .. } => cannot(),
        _ if has(UNRANGED) => other(Kind::Invalid, RANGES),
        _ if has(UNUSABLE) => other(Kind::Invalid, NO_SERVICE),
        _ if has(&["InvalidContentType"]) => {
            other(Kind::Invalid, "the endpoint speaks plain http, not https: write http:// in AWS_ENDPOINT_URL")
        }
        _ if has(&["invalid HTTP version"]) => {
            other(Kind::Invalid, "what answers isn't http: write https:// in AWS_ENDPOINT_URL, or check its port")
        }
        _ if has(&["certificate"]) => other(
            Kind::Invalid,
            "the service's certificate isn't trusted here: install its authority's (SSL_CERT_FILE names a file of \
             them), or check the endpoint",
        ),
        _ if has(&["builder error"]) => {
            other(Kind::Invalid, "no such request can be made: check the endpoint (AWS_ENDPOINT_URL) and the options")
        }
        _ if has(&["(Connect)", "dns error"]) => other(
            Kind::Unavailable,
            "the service can't be reached: check the endpoint (AWS_ENDPOINT_URL; http:// or https://) and the network",
        ),
        _ if has(&["(SendRequest)"]) => other(
            Kind::Unavailable,
            "the connection was closed without an answer: try again, or check the endpoint (AWS_ENDPOINT_URL; http:// or \
             https://)",
        ),
        _ => other(Kind::Unavailable, "try again; if it persists, look at the service"),
    }
}

/// What a client says of ranges that aren't what was asked for.
const UNRANGED: &[&str] = &["Requested", "non-partial response", "Content-Range", "CONTENT_RANGE"];
const RANGES: &str = "the service doesn't answer ranged reads as S3 does, so it can't hold a store: use another \
    (`rclone serve s3` is known for this)";
/// What it says of replies that aren't those of a storage service.
const UNUSABLE: &[&str] = &["Header missing", "Got invalid list response"];

/// Whether the same request may succeed a little later.
pub fn may_pass(refusal: &Refusal) -> bool {
    if let Some(answer) = Answer::of(refusal) {
        return answer.may_pass();
    }
    if !matches!(refusal, Refusal::Generic { .. }) || no_keys(refusal).is_some() {
        return false;
    }
    let text = words(refusal);
    let never = ["InvalidContentType", "invalid HTTP version", "certificate", "builder error"];
    ![UNRANGED, UNUSABLE, &never].iter().any(|signs| signs.iter().any(|sign| text.contains(sign)))
}

/// Whether the service was there at all: it answered, if only with a refusal.
pub fn was_reached(refusal: &Refusal) -> bool {
    Answer::of(refusal).is_some() || !matches!(refusal, Refusal::Generic { .. })
}

fn no_keys<'a>(refusal: &'a (dyn StdError + 'static)) -> Option<&'a NoKeys> {
    let mut next = Some(refusal);
    while let Some(error) = next {
        if let Some(no_keys) = error.downcast_ref::<NoKeys>() {
            return Some(no_keys);
        }
        next = error.source();
    }
    None
}

/// Whether this is why a request failed.
pub fn is(error: &Error, reason: Reason) -> bool {
    let mut next = StdError::source(error);
    while let Some(source) = next {
        if let Some(said) = source.downcast_ref::<Said>() {
            return said.reason == reason;
        }
        next = source.source();
    }
    false
}

/// The refusal and its causes, each said once.
pub fn words(refusal: &Refusal) -> String {
    let mut text = refusal.to_string();
    let mut next = StdError::source(refusal);
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

/// Words of a client without URLs, cut to what helps.
pub fn without_urls(text: &str) -> String {
    let words = text.split_whitespace().filter(|word| !word.contains("://"));
    words.collect::<Vec<_>>().join(" ").chars().take(400).collect()
}
