//! What a service answers over HTTP. Each refusal becomes an `Answer`, whatever the service: `retry` and `failure` look at
//! that, and not at the words of a client. URLs and headers that hold signatures or credentials are never kept.

use async_trait::async_trait;
use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use std::fmt;
use std::time::Duration;
use tower_http::follow_redirect::RequestUri;

/// What is read of a refusal's body.
const MOST_BYTES: usize = 64 << 10;
/// What is shown of its message.
const MOST_CHARS: usize = 300;

#[derive(Debug, Clone, Default)]
pub struct Answer {
    pub status: u16,
    /// `PUT`, say.
    pub method: String,
    /// The service's own; empty where it gave none, as to HEAD.
    pub code: String,
    pub message: String,
    /// The bucket's, where it is another than the request's.
    pub region: Option<String>,
    pub retry_after: Option<Duration>,
    /// Scheme and host that the endpoint sent us to.
    pub redirected: Option<String>,
    /// A web page, of what is no storage service.
    pub page: bool,
}

impl Answer {
    /// Whether the same request may succeed a little later.
    pub fn may_pass(&self) -> bool {
        let asks_for_time = matches!(
            self.code.as_str(),
            "RequestTimeout"
                | "SlowDown"
                | "SlowDownRead"
                | "SlowDownWrite"
                | "Throttling"
                | "ThrottlingException"
                | "TooManyRequests"
                | "ServiceUnavailable"
                | "InternalError"
                | "OperationAborted"
                | "ConditionalRequestConflict"
                | "ServerBusy"
                | "OperationTimedOut"
        );
        asks_for_time || matches!(self.status, 408 | 429 | 500 | 502 | 503 | 504)
    }

    /// Whether the service wants fewer requests.
    pub fn wants_less(&self) -> bool {
        matches!(self.status, 429 | 503)
            || ["SlowDown", "Throttling", "TooMany"].iter().any(|c| self.code.starts_with(c))
    }

    /// One that came as the cause of an error.
    pub fn of<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a Answer> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(answer) = error.downcast_ref::<Answer>() {
                return Some(answer);
            }
            next = error.source();
        }
        None
    }

    /// As the cause of a client's error.
    pub fn into_refusal(self) -> HttpError {
        HttpError::new(HttpErrorKind::Unknown, self)
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code.as_str(), self.message.as_str()) {
            ("", _) if self.page => write!(f, "status {} and a web page", self.status),
            ("", "") => write!(f, "status {}", self.status),
            ("", message) => write!(f, "status {}: {message}", self.status),
            (code, "") => write!(f, "{code}, status {}", self.status),
            (code, message) => write!(f, "{code}: {message}"),
        }
    }
}

impl std::error::Error for Answer {}

/// Makes clients whose refusals are `Answer`s.
#[derive(Debug)]
pub struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client(ReqwestConnector {}.connect(options)?)))
    }
}

#[derive(Debug)]
struct Client(HttpClient);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, asked) = (request.method().to_string(), request.uri().clone());
        let response = self.0.execute(request).await?;
        let status = response.status();
        let page = is_page(&response);
        // A condition that isn't met is no failure of a request, but no success either.
        if status.is_success() && !page {
            return Ok(response);
        }
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let seconds = header("retry-after").and_then(|text| text.trim().parse::<u32>().ok());
        let reached = response.extensions().get::<RequestUri>().map(|reached| &reached.0);
        let redirected = reached.filter(|uri| (uri.scheme(), uri.authority()) != (asked.scheme(), asked.authority()));
        let target = redirected.map(ToString::to_string).or_else(|| header("location"));
        let mut answer = Answer {
            status: status.as_u16(),
            method,
            region: header("x-amz-bucket-region"),
            retry_after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
            redirected: target.as_deref().and_then(origin),
            page,
            ..Answer::default()
        };
        let coded = header("x-ms-error-code");
        let body = beginning(response.into_body()).await;
        answer.code = between(&body, "<Code>", "</Code>").map(str::to_owned).or(coded).unwrap_or_default();
        let message = match between(&body, "<Message>", "</Message>") {
            Some(message) => message,
            None if answer.code.is_empty() && !page => body.trim(),
            None => "",
        };
        let message = message.lines().next().unwrap_or_default();
        answer.message = message.chars().filter(|c| !c.is_control()).take(MOST_CHARS).collect();
        answer.region = answer.region.or_else(|| between(&body, "<Region>", "</Region>").map(str::to_owned));
        Err(answer.into_refusal())
    }
}

/// Whether this is the answer of something else than a storage service; an object may be a page, too.
fn is_page(response: &HttpResponse) -> bool {
    let headers = response.headers();
    let html = headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    let serves = |name: &str| ["x-amz-", "x-ms-", "x-goog-"].iter().any(|start| name.starts_with(start));
    let object = response.status().is_success() && headers.contains_key("etag");
    html && !object && !headers.keys().any(|name| serves(name.as_str()))
}

/// What comes of a body before it is too much or fails.
async fn beginning(body: HttpResponseBody) -> String {
    let mut stream = body.bytes_stream();
    let mut bytes = Vec::new();
    while let Some(Ok(more)) = stream.next().await {
        bytes.extend_from_slice(&more[..more.len().min(MOST_BYTES - bytes.len())]);
        if bytes.len() == MOST_BYTES {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `https://host:port` of a URL, without what could be a secret.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?;
    Some(format!("{scheme}://{host}"))
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let start = text.find(from)? + from.len();
    let end = text[start..].find(to)?;
    Some(&text[start..start + end])
}
