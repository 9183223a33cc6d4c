//! Real S3 servers for the tests: the one that all share, which `scripts/test` or the user names, else one that
//! `scripts/s3-server` starts and that ends with this process, however that ends; and particular ones. At the end,
//! tests of the servers themselves.

use crate::consumers::python;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/s3-server");

pub struct Server {
    /// `minio`, `seaweedfs`, `juicefs`, `rclone`, or `azurite`, which speaks Azure's protocol; `given` where the user names an endpoint alone.
    pub name: String,
    pub endpoint: String,
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
    pub bucket: String,
    /// What was started here: it serves until the other end of its standard input is closed, by us or by our end.
    run: Option<Child>,
}

impl Server {
    /// The server of all tests that need just one.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Server::given().unwrap_or_else(|| Server::start("auto")))
    }

    /// The server of `FOREBAY_TEST_S3_ENDPOINT` and the `AWS_*` variables.
    fn given() -> Option<Server> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let needed = |name: &str| {
            variable(name).unwrap_or_else(|| panic!("FOREBAY_TEST_... names a server: set {name} for it, too"))
        };
        if let Some(bucket) = variable("FOREBAY_TEST_AZURE_CONTAINER") {
            return Some(Server {
                name: "azurite".into(),
                endpoint: needed("AZURE_STORAGE_ENDPOINT"),
                access_key: needed("AZURE_STORAGE_ACCOUNT_NAME"),
                secret_key: needed("AZURE_STORAGE_ACCOUNT_KEY"),
                region: String::new(),
                bucket,
                run: None,
            });
        }
        Some(Server {
            endpoint: variable("FOREBAY_TEST_S3_ENDPOINT")?,
            name: variable("FOREBAY_TEST_S3_SERVER").unwrap_or("given".into()),
            access_key: needed("AWS_ACCESS_KEY_ID"),
            secret_key: needed("AWS_SECRET_ACCESS_KEY"),
            region: variable("AWS_REGION").unwrap_or("us-east-1".into()),
            bucket: variable("FOREBAY_TEST_S3_BUCKET").unwrap_or("forebay-test".into()),
            run: None,
        })
    }

    /// Starts a server that is there until it is dropped: `seaweedfs`, `juicefs`, `rclone`, `minio` or `auto`.
    pub fn start(name: &str) -> Server {
        let mut run = Command::new(SCRIPT)
            .args(["run", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{SCRIPT}: {e}"));
        let mut line = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: BTreeMap<String, String> = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{SCRIPT} run {name} started no server; what it said is above"));
        let field = |name: &str| told[name].clone();
        let account = if name == "azurite" { format!("/{}", field("access_key")) } else { String::new() };
        Server {
            name: field("server"),
            endpoint: field("endpoint") + &account,
            access_key: field("access_key"),
            secret_key: field("secret_key"),
            region: field("region"),
            bucket: field("bucket"),
            run: Some(run),
        }
    }

    /// What a command needs in its environment to reach this server.
    pub fn environment(&self) -> [(&'static str, &str); 5] {
        if self.is_azure() {
            return [
                ("AZURE_STORAGE_ENDPOINT", &self.endpoint),
                ("AZURE_STORAGE_ACCOUNT_NAME", &self.access_key),
                ("AZURE_STORAGE_ACCOUNT_KEY", &self.secret_key),
                // Meant for others, and in nobody's way.
                ("AWS_REGION", "us-east-1"),
                ("AWS_ALLOW_HTTP", "true"),
            ];
        }
        [
            ("AWS_ENDPOINT_URL", &self.endpoint),
            ("AWS_ACCESS_KEY_ID", &self.access_key),
            ("AWS_SECRET_ACCESS_KEY", &self.secret_key),
            ("AWS_REGION", &self.region),
            ("AWS_ALLOW_HTTP", "true"),
        ]
    }

    pub fn is_azure(&self) -> bool {
        self.name == "azurite"
    }

    /// A prefix that nothing else uses, also where a server is kept from run to run: `s3://bucket/name-...`.
    pub fn prefix(&self, name: &str) -> String {
        let scheme = if self.is_azure() { "az" } else { "s3" };
        format!("{scheme}://{}/{name}-{:016x}", self.bucket, RandomState::new().build_hasher().finish())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(run) = &mut self.run {
            drop(run.stdin.take());
            run.wait().unwrap();
        }
    }
}

fn replies(server: &Server) -> Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/s3_replies.py");
    let output = Command::new(python())
        .args([script, &server.prefix("replies")])
        .envs(server.environment())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", server.name);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What a server is used for here depends on this: SeaweedFS and MinIO for the whole, JuiceFS as a store without
/// conditional put, rclone as one whose ranges a client can't use.
fn expected(name: &str) -> Value {
    let (created, range) = match name {
        "juicefs" => ([200, 200], (206, "ec")),
        "rclone" => ([200, 200], (200, "ec")),
        _ => ([200, 412], (206, "ir")),
    };
    json!({ "created": created, "range": range, "deleted": 204, "then": 404 })
}

#[test]
fn the_shared_s3_server_answers() {
    let server = Server::shared();
    assert_eq!(replies(server), expected(&server.name), "{}", server.name);
    assert!(std::ptr::eq(server, Server::shared()));
    let prefixes = [server.prefix("a"), server.prefix("a")];
    assert!(prefixes.iter().all(|p| p.starts_with(&format!("s3://{}/a-", server.bucket))), "{prefixes:?}");
    assert_ne!(prefixes[0], prefixes[1]);
}

#[test]
fn particular_servers_answer_each_in_its_way() {
    for name in ["juicefs", "rclone"] {
        let server = Server::start(name);
        assert_eq!(server.name, name);
        assert_eq!(replies(&server), expected(name), "{name}");
        let endpoint = server.endpoint.clone();
        drop(server);
        assert!(refuses(&endpoint), "{name} still listens");
    }
}

/// Nothing listens there any more.
fn refuses(endpoint: &str) -> bool {
    let address = endpoint.strip_prefix("http://").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    TcpStream::connect(address).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

/// The processes that a process has started, by all of its threads.
fn children(process: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let children = std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap();
        found.extend(children.split_whitespace().map(|number| number.parse::<u32>().unwrap()));
    }
    found
}

/// Whether a process is there and hasn't ended: it closes what it has open before it ends.
fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const HOLD: &str = "FOREBAY_TEST_HOLD_SERVER";

/// Not a test but the process that the next one kills: it holds a server, says so, and waits for its end.
#[test]
#[ignore = "started by a_killed_process_leaves_no_server"]
fn hold_a_server() {
    let Ok(name) = std::env::var(HOLD) else { return };
    let server = Server::start(&name);
    println!("\nholding {} {}", server.run.as_ref().unwrap().id(), server.endpoint);
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_leaves_no_server() {
    for name in ["seaweedfs", "juicefs", "rclone"] {
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["servers::hold_a_server", "--exact", "--ignored", "--nocapture"])
            .env(HOLD, name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told = lines.into_iter().find_map(|l| l.strip_prefix("holding ").map(str::to_owned)).expect(name);
        let (run, endpoint) = told.split_once(' ').unwrap();
        let run = run.parse().unwrap();
        let servers = children(run);
        assert_eq!(servers.len(), 1, "{name}");
        let directory = std::fs::read_link(format!("/proc/{}/cwd", servers[0])).unwrap();
        assert!(directory.join("server.json").is_file() && !refuses(endpoint), "{name}");

        holder.kill().unwrap();
        holder.wait().unwrap();
        wait_until(name, || !runs(run) && !runs(servers[0]));
        assert!(refuses(endpoint) && !directory.exists(), "{name}: {}", directory.display());
    }
}

/// Not even the script has to live for a server to end; what it kept stays there then.
#[test]
fn a_server_ends_when_the_script_is_killed() {
    let mut server = Server::start("rclone");
    let run = server.run.as_mut().unwrap();
    let servers = children(run.id());
    let directory = std::fs::read_link(format!("/proc/{}/cwd", servers[0])).unwrap();
    run.kill().unwrap();
    wait_until("rclone", || !runs(servers[0]));
    assert!(refuses(&server.endpoint));
    std::fs::remove_dir_all(directory).unwrap();
}

fn script(arguments: &[&str], directory: &Path) -> Output {
    Command::new(SCRIPT).args(arguments).arg(directory).output().unwrap()
}

fn succeed(arguments: &[&str], directory: &Path) -> String {
    let output = script(arguments, directory);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refused(output: Output) -> String {
    assert_eq!((output.status.code(), output.stdout), (Some(1), vec![]));
    String::from_utf8(output.stderr).unwrap()
}

/// SeaweedFS has sockets outside its directory.
fn sockets() -> Vec<PathBuf> {
    let names = std::fs::read_dir("/tmp").unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.to_string_lossy().contains("seaweedfs-")).collect()
}

#[test]
fn what_is_started_is_stopped_and_leaves_nothing() {
    let keep = tempfile::tempdir().unwrap();
    let (made, given) = (keep.path().join("made"), keep.path().join("given"));
    std::fs::create_dir(&given).unwrap();
    for (name, directory) in [("seaweedfs", &made), ("juicefs", &given), ("rclone", &made)] {
        let line = succeed(&["start", name], directory);
        let variables: BTreeMap<&str, &str> = line
            .strip_prefix("export ")
            .unwrap()
            .split_whitespace()
            .map(|word| word.split_once('=').unwrap())
            .collect();
        assert_eq!((variables["AWS_REGION"], variables["AWS_ALLOW_HTTP"]), ("us-east-1", "true"));
        let endpoint = variables["AWS_ENDPOINT_URL"];
        let state: Value = serde_json::from_slice(&std::fs::read(directory.join("server.json")).unwrap()).unwrap();
        let process = state["pid"].as_u64().unwrap() as u32;
        let outside: Vec<PathBuf> = serde_json::from_value(state["outside"].clone()).unwrap();
        assert!(runs(process) && !refuses(endpoint), "{name}");
        assert!(outside.iter().all(|path| sockets().contains(path)), "{outside:?}");
        assert_eq!(outside.len(), if name == "seaweedfs" { 4 } else { 0 });

        // What is there already is left alone.
        let again = refused(script(&["start", name], directory));
        assert!(again.contains("isn't empty"), "{again}");
        assert!(runs(process), "{name}");

        succeed(&["stop"], directory);
        assert!(!runs(process) && refuses(endpoint), "{name}");
        assert!(outside.iter().all(|path| !path.exists()), "{outside:?}");
        let not_there = refused(script(&["stop"], directory));
        assert!(not_there.contains("is no directory that a server was started in"), "{not_there}");
    }
    let left: Vec<PathBuf> = std::fs::read_dir(keep.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.as_slice(), std::slice::from_ref(&given));
    assert_eq!(std::fs::read_dir(given).unwrap().count(), 0);
}

#[test]
fn a_server_that_cannot_be_started_says_what_to_do() {
    let keep = tempfile::tempdir().unwrap();
    let directory = keep.path().join("s3");
    let start = |name: &str, variable: &str, value: &str| {
        let mut command = Command::new(python());
        command.args([SCRIPT, "start", name]).arg(&directory).env_remove("MINIO_BIN").env(variable, value);
        refused(command.output().unwrap())
    };
    let missing = start("minio", "PATH", "/nowhere");
    assert!(missing.contains("minio needs the program minio, which isn't there"), "{missing}");
    assert!(missing.contains("MINIO_BIN=/path/to/minio"), "{missing}");
    for name in ["minio", "auto"] {
        let wrong = start(name, "MINIO_BIN", "/nowhere/minio");
        assert!(wrong.contains("MINIO_BIN is /nowhere/minio, which is no program"), "{wrong}");
    }
    let ended = start("rclone", "RCLONE_BIN", "/bin/false");
    assert!(ended.contains("rclone ended 5 times before it answered"), "{ended}");
    assert!(!directory.exists());
}
