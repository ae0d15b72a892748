//! `ebb top` in a terminal: what it leaves there, and its end when the terminal closes.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::{POLL_INTERVAL, WAIT_TIMEOUT, until};
use crate::workdir::Workdir;

const ROWS: usize = 24;
const COLUMNS: usize = 80;

/// A started `ebb top`, and the other side of its terminal.
pub(crate) struct TopTerminal {
    child: Child,
    terminal: PtyMaster,
    output: Vec<u8>,
}

impl TopTerminal {
    /// Starts the program and waits for its first picture.
    pub(crate) fn start(workdir: &Workdir) -> Self {
        // Children of other tests must not keep the terminal open.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let terminal = posix_openpt(flags).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let mut options = File::options();
        options.read(true).write(true).custom_flags(OFlag::O_NOCTTY.bits());
        let name = ptsname_r(&terminal).unwrap();
        let side = || options.open(&name).unwrap();
        let size = ["rows".to_owned(), ROWS.to_string(), "cols".to_owned(), COLUMNS.to_string()];
        assert!(Command::new("stty").args(size).stdin(side()).status().unwrap().success());
        let mut command = crate::program::command();
        command.arg("top").current_dir(workdir.path()).env("TERM", "xterm");
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
        let begun = Instant::now();
        let mut part = [0; 4096];
        let count = loop {
            match self.terminal.read(&mut part) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(begun.elapsed() < WAIT_TIMEOUT, "no output follows:\n{}", self.screen());
                    std::thread::sleep(POLL_INTERVAL);
                }
                // Without a program, the terminal has an error.
                read => break read.unwrap_or(0),
            }
        };
        self.output.extend_from_slice(&part[..count]);
        count > 0
    }

    /// Returns the lines of the screen. The program positions the cursor, clears the screen, and writes characters.
    fn screen(&self) -> String {
        let empty = || vec![vec![' '; COLUMNS]; ROWS];
        let (mut cells, mut row, mut column) = (empty(), 0, 0);
        for sequence in self.text().split("\u{1b}[").skip(1) {
            let Some(end) = sequence.find(|c: char| c.is_ascii_alphabetic()) else { continue };
            let (parameters, written) = sequence.split_at(end);
            match &written[..1] {
                "H" => {
                    let mut numbers = parameters.split(';').map(|number| number.parse().unwrap_or(1_usize) - 1);
                    (row, column) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                }
                "J" => cells = empty(),
                _ => {}
            }
            for character in written[1..].chars() {
                if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = character;
                }
                column += 1;
            }
        }
        let lines = cells.iter().map(|row| row.iter().collect::<String>());
        lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    /// Types keys, and waits until the screen has all texts, which can be wrapped.
    pub(crate) fn press(&mut self, keys: &str, texts: &[&str]) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
        let has_all = |screen: &str| {
            let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
            texts.iter().all(|text| words.contains(text))
        };
        while !has_all(&self.screen()) {
            assert!(self.read(), "`ebb top` has ended without {texts:?} after {keys:?}:\n{}", self.screen());
        }
    }

    /// Types a key that ends the program with a code.
    pub(crate) fn end(&mut self, key: &str, code: i32) {
        self.terminal.write_all(key.as_bytes()).unwrap();
        while self.read() {}
        assert_eq!(self.child.wait().unwrap().code(), Some(code), "{key:?}");
    }
}

#[tokio::test]
async fn the_terminal_is_restored() {
    let (workdir, dev) = Workdir::running().await;
    for (key, code) in [("q", 0), ("\u{3}", 130)] {
        let mut top = TopTerminal::start(&workdir);
        top.end(key, code);
        // Pasted texts are not marked any more, the cursor is shown, and the former screen is back.
        assert!(top.text().ends_with("\u{1b}[?2004l\u{1b}[?25h\u{1b}[?1049l"), "{:?}", top.text());
    }
    dev.stop().await;
}

#[tokio::test]
async fn a_stopped_program_leaves_the_terminal_to_the_shell() {
    let (workdir, dev) = Workdir::running().await;
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
    top.end("q", 0);
    dev.stop().await;
}

/// The terminal marks the begin and the end of a pasted text.
#[tokio::test]
async fn a_pasted_text_is_typed_and_presses_no_keys() {
    let (workdir, dev) = Workdir::running().await;
    let mut top = TopTerminal::start(&workdir);
    assert!(top.text().contains("\u{1b}[?2004h"), "{:?}", top.text());
    // As a key, `q` would end the program.
    top.press("\u{1b}[200~q\u{1b}[201~/", &["filter: _"]);
    top.press("\u{1b}[200~pr-1\rq\u{1b}[201~", &["filter: pr-1 q_"]);
    top.press("\r", &["no targets filter: pr-1 q"]);
    top.end("q", 0);
    dev.stop().await;
}

#[tokio::test]
async fn a_closed_terminal_is_no_crash() {
    let (workdir, dev) = Workdir::running().await;
    let TopTerminal { mut child, terminal, .. } = TopTerminal::start(&workdir);
    drop(terminal);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    dev.stop().await;
}
