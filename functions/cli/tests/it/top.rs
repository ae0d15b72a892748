//! `ebb top` in a terminal: what it leaves there, and its end when the terminal closes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::until;
use crate::workdir::Workdir;

/// A started `ebb top`, and the other side of its terminal.
struct TopTerminal {
    child: Child,
    terminal: PtyMaster,
    output: Vec<u8>,
}

impl TopTerminal {
    /// Starts the program and waits for its first picture.
    fn start(workdir: &Workdir) -> Self {
        // Children of other tests must not keep the terminal open.
        let terminal = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let mut options = File::options();
        options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
        let name = ptsname_r(&terminal).unwrap();
        let side = || options.open(&name).unwrap();
        assert!(Command::new("stty").args(["rows", "12", "cols", "80"]).stdin(side()).status().unwrap().success());
        let mut command = Command::new(crate::program::ebb());
        command.arg("top").current_dir(workdir.path()).env("TERM", "xterm");
        command.env_remove("EBB_URL").env_remove("EBB_TOKEN");
        // The group of a job in a shell, which a stop signal can stop.
        command.process_group(0);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        // Only the program has the other side from here on.
        drop(command);
        let mut top = Self { child, terminal, output: Vec::new() };
        while !top.text().contains("q quit") {
            assert!(top.read(), "{:?}", top.text());
        }
        top
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Reads a part of the output. Returns false if the program has ended.
    fn read(&mut self) -> bool {
        let mut part = [0; 4096];
        // Without a program, the terminal has an error.
        let count = self.terminal.read(&mut part).unwrap_or(0);
        self.output.extend_from_slice(&part[..count]);
        count > 0
    }
}

#[tokio::test]
async fn the_terminal_is_restored() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    for (key, code) in [("q", 0), ("\u{3}", 130)] {
        let mut top = TopTerminal::start(&workdir);
        top.terminal.write_all(key.as_bytes()).unwrap();
        while top.read() {}
        assert_eq!(top.child.wait().unwrap().code(), Some(code), "{key:?}");
        // The cursor is shown, and the former screen is back.
        assert!(top.text().ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{:?}", top.text());
    }
    dev.stop().await;
}

#[tokio::test]
async fn a_stopped_program_leaves_the_terminal_to_the_shell() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    let mut top = TopTerminal::start(&workdir);
    top.terminal.write_all(b"\x1a").unwrap();
    while !top.text().ends_with("\u{1b}[?25h\u{1b}[?1049l") {
        assert!(top.read(), "{:?}", top.text());
    }
    let pid = Pid::from_raw(i32::try_from(top.child.id()).unwrap());
    until("the stop of the program", async || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains("State:\tT").then_some(())
    })
    .await;
    top.output.clear();
    kill(pid, Signal::SIGCONT).unwrap();
    while !top.text().contains("q quit") {
        assert!(top.read(), "{:?}", top.text());
    }
    assert!(top.text().starts_with("\u{1b}[?1049h"), "{:?}", top.text());
    top.terminal.write_all(b"q").unwrap();
    while top.read() {}
    assert_eq!(top.child.wait().unwrap().code(), Some(0));
    dev.stop().await;
}

#[tokio::test]
async fn a_closed_terminal_is_no_crash() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    let TopTerminal { mut child, terminal, .. } = TopTerminal::start(&workdir);
    drop(terminal);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    dev.stop().await;
}
