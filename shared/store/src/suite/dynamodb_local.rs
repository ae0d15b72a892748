//! Amazon's DynamoDB Local, one server per test program.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The folder in which `cargo xtask verify dynamodb-local` installs the server.
const JARS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/dynamodb-local/lib");
/// A start takes about a second, and longer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Attempts with different ports, because a free port may be taken before the server opens it.
const ATTEMPTS: usize = 5;

/// A running server with tables in memory. It is killed when dropped.
#[derive(Debug)]
pub struct DynamoDbLocal {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl DynamoDbLocal {
    /// Starts a server on a free port and waits until it responds.
    ///
    /// # Errors
    /// Returns an error if the server is not installed, Java is missing, or the server does not start. The error
    /// contains the output of the server, or the command that installs it.
    pub fn start() -> io::Result<Self> {
        let jars = Path::new(JARS);
        if !jars.join("..").join("complete").exists() {
            let advice = "DynamoDB Local is missing: run `cargo xtask verify dynamodb-local`";
            return Err(io::Error::other(advice));
        }
        let mut printed = String::new();
        for _ in 0..ATTEMPTS {
            let folder = tempfile::tempdir()?;
            let log = folder.path().join("log");
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let child = spawn(jars, folder.path(), port, &File::create(&log)?)?;
            let mut server = Self { child, port, _folder: folder };
            if server.responds()? {
                return Ok(server);
            }
            printed = fs::read_to_string(&log)?;
        }
        Err(io::Error::other(format!("DynamoDB Local does not start: {printed}")))
    }

    /// Returns the URL of the server, without a slash at the end.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until the server listens. Returns false if it has ended.
    fn responds(&mut self) -> io::Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < START_TIMEOUT {
            if self.child.try_wait()?.is_some() {
                return Ok(false);
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(true);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(false)
    }
}

impl Drop for DynamoDbLocal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(jars: &Path, folder: &Path, port: u16, log: &File) -> io::Result<Child> {
    let jars = fs::canonicalize(jars)?;
    // The server runs for minutes, so a quick start matters more than peak speed.
    Command::new("java")
        .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1g"])
        .arg(format!("-Djava.library.path={}", jars.display()))
        .arg("-cp")
        .arg(jars.join("*"))
        .arg("com.amazonaws.services.dynamodbv2.local.main.ServerRunner")
        .args(["-inMemory", "-sharedDb", "-disableTelemetry", "-port", &port.to_string()])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .spawn()
}
