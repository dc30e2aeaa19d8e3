//! NATS JetStream: a server of its own on this machine, its stream in files.
//!
//! One publisher on a current-thread runtime, which goes on while a window of messages waits for
//! acknowledgements; the other processor is the server's. It runs for one turn, with nothing but the
//! addresses and what is compared in its configuration.
#![expect(unsafe_code, reason = "prctl")]

use std::collections::VecDeque;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::stream::{Config, StorageType};

use crate::disk;
use crate::durable::PAYLOAD;
use crate::side::Synced;

const SERVER: &str = "nats-server";
const SUBJECT: &str = "stored";

/// Server and client, if there is a server that can sync like this; else what is missing. The
/// directory is emptied.
pub(crate) fn found(dir: &Path, sync: Synced) -> Result<String, String> {
    let output = Command::new(SERVER).arg("--version").output();
    let output = output.map_err(|_| format!("{SERVER} is not installed"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().replace(": v", " ");
    disk::empty(dir);
    let checked = Command::new(SERVER).arg("-t").arg("-c").arg(configure(dir, sync)).output();
    if !checked.is_ok_and(|checked| checked.status.success()) {
        return Err(format!("{version} knows no `sync_interval: always`, which came with 2.10"));
    }
    Ok(format!("{version}, async-nats {}", client_version()))
}

/// The time from the first message to the last acknowledgement, with up to `window` of them
/// outstanding. The directory is emptied.
pub(crate) fn publish(dir: &Path, sync: Synced, window: usize, messages: u64) -> Duration {
    disk::empty(dir);
    let server = Server::start(&configure(dir, sync));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime is built");
    let elapsed = runtime.block_on(async {
        let client = async_nats::connect(&server.address).await.expect("the server is there");
        let stream = Config {
            name: SUBJECT.to_owned(),
            subjects: vec![SUBJECT.to_owned()],
            storage: StorageType::File,
            ..Config::default()
        };
        let context = jetstream::new(client.clone());
        context.create_stream(stream).await.expect("a stream is made");
        stored(&context, 1, 1).await;
        let began = Instant::now();
        stored(&context, window, messages).await;
        let elapsed = began.elapsed();
        let mut stream = context.get_stream(SUBJECT).await.expect("the stream is there");
        let count = stream.info().await.expect("it tells").state.messages;
        assert_eq!(count, messages + 1, "not what was published");
        client.drain().await.expect("the connection ends");
        elapsed
    });
    server.stop();
    elapsed
}

/// Publishes so many messages; returns when all are acknowledged.
async fn stored(context: &jetstream::Context, window: usize, messages: u64) {
    let payload = (&[7; PAYLOAD][..]).into();
    let mut waiting = VecDeque::<PublishAckFuture>::with_capacity(window);
    for _ in 0..messages {
        if waiting.len() == window
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.await.expect("it is acknowledged");
        }
        let sent = context.publish(SUBJECT, Clone::clone(&payload)).await;
        waiting.push_back(sent.expect("it is sent"));
    }
    for rest in waiting {
        rest.await.expect("it is acknowledged");
    }
}

/// Writes the configuration.
fn configure(dir: &Path, sync: Synced) -> PathBuf {
    let interval = match sync {
        Synced::Each => "sync_interval: always",
        Synced::Never => "",
    };
    let files = dir.join("jetstream");
    // Port -1 is any that is free.
    let text =
        format!("listen: \"127.0.0.1:-1\"\njetstream {{ store_dir: {files:?}\n{interval} }}\n");
    let path = dir.join("nats.conf");
    fs::write(&path, text).expect("the configuration is written");
    path
}

/// The version of the client that this was built with.
fn client_version() -> &'static str {
    let packages = include_str!("../../Cargo.lock");
    let (_, behind) =
        packages.split_once("name = \"async-nats\"\nversion = \"").unwrap_or_default();
    behind.split('"').next().unwrap_or_default()
}

/// The server, running.
struct Server {
    child: Child,
    address: String,
    /// Open for as long as the server may write to it.
    log: BufReader<ChildStderr>,
}

impl Server {
    /// When this returns, it takes connections.
    fn start(configuration: &Path) -> Self {
        let mut command = Command::new(SERVER);
        command.arg("-c").arg(configuration).stdout(Stdio::null()).stderr(Stdio::piped());
        let with_us = || match end_with_parent() {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: nothing but a system call between fork and exec.
        unsafe { command.pre_exec(with_us) };
        let mut child = command.spawn().expect("the server starts");
        let mut log = BufReader::new(child.stderr.take().expect("it was asked for"));
        let (mut line, mut address) = (String::new(), None);
        while !line.contains("Server is ready") {
            line.clear();
            let read = log.read_line(&mut line).expect("the server's log is read");
            assert_ne!(read, 0, "{SERVER} has ended");
            if let Some((_, told)) = line.split_once("client connections on ") {
                address = Some(told.trim().to_owned());
            }
        }
        Self { child, address: address.expect("it has told its address"), log }
    }

    /// Has it end as its documents say.
    fn stop(mut self) {
        let signal = format!("quit={}", self.child.id());
        let told = Command::new(SERVER).args(["--signal", &signal]).status();
        assert!(told.is_ok_and(|told| told.success()), "{SERVER} is told to end");
        io::copy(&mut self.log, &mut io::sink()).expect("the server's log is read");
        self.child.wait().expect("the server ends");
    }
}

/// The server ends when the thread that started it does, however that ends.
fn end_with_parent() -> libc::c_int {
    // SAFETY: about the calling process alone.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) }
}
