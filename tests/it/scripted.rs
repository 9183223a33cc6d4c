//! A small HTTP server on loopback that answers as a test says: for what no real service can be brought to answer.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

pub struct Request {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn lists(&self) -> bool {
        self.target.contains("list-type=2")
    }
}

pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// After so many bytes of the body the connection is closed; 0: before anything is said.
    pub cut: Option<usize>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply { status, headers: Vec::new(), body: body.into(), cut: None }
    }

    /// As services of S3 refuse: with a document, HEAD apart.
    pub fn refusal(status: u16, code: &str, message: &str) -> Reply {
        let document = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
             <AWSAccessKeyId>AKIAKEPTSECRET</AWSAccessKeyId><Token-0>token-kept-secret</Token-0>\
             <RequestId>4442587FB7D0A2F9</RequestId><HostId>host</HostId></Error>"
        );
        Reply::new(status, document)
            .with("content-type", "application/xml")
            .with("x-amz-request-id", "4442587FB7D0A2F9")
    }

    pub fn page(status: u16) -> Reply {
        Reply::new(status, "<html><body><h1>It works!</h1></body></html>").with("content-type", "text/html")
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Reply {
        self.headers.push((name, value.into()));
        self
    }

    pub fn cut(mut self, bytes: usize) -> Reply {
        self.cut = Some(bytes);
        self
    }
}

type Answers = dyn Fn(&Request) -> Reply + Send + Sync;

pub struct Scripted {
    pub endpoint: String,
    /// `METHOD target` of each request, in the order of arrival.
    pub seen: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    pub fn start(answers: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (seen, ends) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (log, end, answers) = (seen.clone(), ends.clone(), Arc::new(answers) as Arc<Answers>);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let (log, answers) = (log.clone(), answers.clone());
                let serve = move || {
                    if let Ok(stream) = stream {
                        // Who goes away is no failure here.
                        let _ = serve(stream, &log, answers.as_ref());
                    }
                };
                std::thread::spawn(serve);
            }
        });
        Scripted { endpoint, seen, ends, thread: Some(thread) }
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.endpoint.strip_prefix("http://").unwrap());
        let _ = self.thread.take().unwrap().join();
    }
}

/// One request per connection.
fn serve(stream: TcpStream, log: &Mutex<Vec<String>>, answers: &Answers) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut reader = BufReader::new(&stream);
    let mut line = Vec::new();
    // What speaks TLS has no line to give.
    while line.last() != Some(&b'\n') && line.first() != Some(&0x16) {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        line.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split(' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return (&stream).write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    log.lock().unwrap().push(format!("{method} {target}"));
    let request = Request { method, target, headers, body };
    let reply = answers(&request);
    let mut writer = &stream;
    if reply.cut == Some(0) {
        return Ok(());
    }
    write!(writer, "HTTP/1.1 {} Said\r\nconnection: close\r\n", reply.status)?;
    if !reply.headers.iter().any(|(name, _)| *name == "content-length") {
        write!(writer, "content-length: {}\r\n", reply.body.len())?;
    }
    for (name, value) in &reply.headers {
        write!(writer, "{name}: {value}\r\n")?;
    }
    writer.write_all(b"\r\n")?;
    let sent = if request.method == "HEAD" { 0 } else { reply.cut.unwrap_or(reply.body.len()).min(reply.body.len()) };
    writer.write_all(&reply.body[..sent])?;
    writer.flush()
}

/// A bucket kept in memory, as a service of S3 answers for it; `answers` may say otherwise first.
pub fn bucket(answers: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Scripted {
    let objects = Mutex::new(BTreeMap::<String, Vec<u8>>::new());
    Scripted::start(move |request| answers(request).unwrap_or_else(|| answer(&objects, request)))
}

/// When everything was written: late, so that what this machine's clock says of now is before it.
const TIME: &str = "Mon, 02 Jan 2096 00:00:00 GMT";

fn answer(objects: &Mutex<BTreeMap<String, Vec<u8>>>, request: &Request) -> Reply {
    let mut objects = objects.lock().unwrap();
    let path = request.target.split('?').next().unwrap();
    let name = path.trim_start_matches('/').split_once('/').map_or("", |(_, name)| name).replace("%2F", "/");
    let etag =
        |bytes: &[u8]| format!("\"{:016x}\"", bytes.iter().fold(7u64, |h, b| h.wrapping_mul(31) ^ u64::from(*b)));
    if request.lists() {
        return listing(&objects, &request.target, etag);
    }
    match request.method.as_str() {
        "PUT" => {
            let reply = Reply::new(200, "").with("etag", etag(&request.body)).with("x-goog-generation", "1");
            objects.insert(name, request.body.clone());
            reply
        }
        "DELETE" => {
            objects.remove(&name);
            Reply::new(204, "")
        }
        _ => {
            let Some(bytes) = objects.get(&name) else { return Reply::refusal(404, "NoSuchKey", "No such key.") };
            let whole =
                |status, body: &[u8]| Reply::new(status, body).with("etag", etag(bytes)).with("last-modified", TIME);
            let range = request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
            let Some((from, to)) =
                range.and_then(|(from, to)| Some((from.parse::<usize>().ok()?, to.parse::<usize>().ok()?)))
            else {
                return whole(200, bytes);
            };
            let to = to.min(bytes.len().saturating_sub(1));
            match bytes.get(from..=to) {
                Some(piece) if from < bytes.len() => {
                    whole(206, piece).with("content-range", format!("bytes {from}-{to}/{}", bytes.len()))
                }
                _ => Reply::refusal(416, "InvalidRange", "The requested range is not satisfiable"),
            }
        }
    }
}

fn listing(objects: &BTreeMap<String, Vec<u8>>, target: &str, etag: impl Fn(&[u8]) -> String) -> Reply {
    let parameters = target.split_once('?').map_or("", |(_, query)| query);
    let parameter = |name: &str| parameters.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let prefix = parameter("prefix").unwrap_or("").replace("%2F", "/");
    let (mut contents, mut directories) = (String::new(), BTreeSet::new());
    for (name, bytes) in objects.iter().filter(|(name, _)| name.starts_with(&prefix)) {
        match name[prefix.len()..].split_once('/') {
            Some((directory, _)) if parameter("delimiter").is_some() => drop(directories.insert(directory)),
            _ => {
                contents += &format!(
                    "<Contents><Key>{name}</Key><LastModified>2096-01-02T00:00:00.000Z</LastModified>\
                     <ETag>{}</ETag><Size>{}</Size></Contents>",
                    etag(bytes).replace('"', "&quot;"),
                    bytes.len()
                );
            }
        }
    }
    for directory in directories {
        contents += &format!("<CommonPrefixes><Prefix>{prefix}{directory}/</Prefix></CommonPrefixes>");
    }
    let document = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>");
    Reply::new(200, document).with("content-type", "application/xml")
}
