//! A PostgreSQL server for a test.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::program::free_addresses;
use crate::workdir::{shared_folder, until};

/// The superuser, who needs no password.
pub(crate) const USER: &str = "ebb";
const HOST: &str = "127.0.0.1";
pub(crate) const SANDBOX: &str = "billing-pr-7";
/// The ID of an unprivileged user and its group. PostgreSQL does not run as root.
const UNPRIVILEGED: u32 = 65534;
/// Number of ports to try. Another process can take a free port before the server binds it.
const MAX_PORTS: usize = 5;

/// A running server. It stops when this is dropped.
pub(crate) struct PostgresServer {
    child: Child,
    pub(crate) port: u16,
    _folder: TempDir,
}

impl PostgresServer {
    /// Starts a server that trusts every client of this machine.
    pub(crate) async fn start() -> Self {
        let programs = programs();
        let folder = shared_folder();
        if is_root() {
            std::os::unix::fs::chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).unwrap();
        }
        let data = folder.path().join("data");
        let mut initdb = unprivileged(&programs.join("initdb"));
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", USER]);
        let result = initdb.arg("--pgdata").arg(&data).output().unwrap();
        assert!(result.status.success(), "initdb failed: {result:?}");
        let log = folder.path().join("log");
        for _ in 0..MAX_PORTS {
            let [port] = free_addresses().map(|address| address.port());
            let mut child = postgres(&programs, &data, folder.path(), port, &log);
            let has_ended = until("PostgreSQL", async || match child.try_wait().unwrap() {
                Some(_) => Some(true),
                None => fs::read_to_string(&log)
                    .is_ok_and(|log| log.contains("ready to accept connections"))
                    .then_some(false),
            });
            if !has_ended.await {
                return Self { child, port, _folder: folder };
            }
        }
        panic!("PostgreSQL does not start: {}", fs::read_to_string(&log).unwrap_or_default());
    }

    /// Executes a query. Returns a line for each row, with columns separated by `|`.
    pub(crate) fn query(&self, database: &str, query: &str) -> Vec<String> {
        let mut psql = Command::new("psql");
        let port = self.port.to_string();
        psql.args(["-X", "-A", "-t", "-h", HOST, "-p", &port, "-U", USER, "-d", database, "-c", query]);
        let result = psql.output().unwrap();
        assert!(result.status.success(), "{result:?}");
        String::from_utf8(result.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    pub(crate) fn databases(&self) -> Vec<String> {
        self.query("postgres", "SELECT datname FROM pg_database WHERE datname LIKE 'ebb%' ORDER BY 1")
    }

    /// Checks that this is the only database, and that it has the tables and the seed rows.
    pub(crate) fn assert_seeded(&self, database: &str) {
        assert_eq!(self.databases(), [database]);
        let customers = self.query(database, "SELECT id, name FROM customers ORDER BY id");
        assert_eq!(customers, ["1|Ada", "2|Grace", "3|Edsger"]);
        let invoices = self.query(database, "SELECT id, customer, cents FROM invoices ORDER BY id");
        assert_eq!(invoices, ["1|1|1250", "2|2|300"]);
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, kill};
        use nix::unistd::Pid;
        // SIGINT requests a fast shutdown, which ends the child processes, too.
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT);
        let _ = self.child.wait();
    }
}

/// Returns the folder of the server's programs. Debian has a folder for each version outside of `PATH`.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let debian = versions.map(|version| version.path().join("bin"));
    let in_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut folders: Vec<_> = debian.chain(in_path.into_iter().flatten()).collect();
    folders.retain(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file());
    folders.into_iter().next().expect("PostgreSQL is missing: `cargo xtask verify scripts` installs it")
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

fn postgres(programs: &Path, data: &Path, sockets: &Path, port: u16, log: &Path) -> Child {
    let log = fs::File::create(log).unwrap();
    let mut postgres = unprivileged(&programs.join("postgres"));
    postgres.arg("-D").arg(data).arg("-k").arg(sockets).args(["-h", HOST, "-p", &port.to_string()]);
    // The test does not need durable data.
    postgres.args(["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=20"]);
    postgres.stdout(Stdio::null()).stderr(log).spawn().unwrap()
}
