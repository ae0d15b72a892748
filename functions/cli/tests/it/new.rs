//! The plugins of `ebb plugin new` with a failure at each line of their scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;

const EBB: &str = env!("CARGO_BIN_EXE_ebb");
/// A folder that scripts can access. They have their own `/tmp`, which can hide this repository.
const OUTSIDE: &str = "/var/tmp";

/// Maximum number of concurrent instances. Each has its own server, and a script that does not start in time counts as lost.
const MAX_CONCURRENT: usize = 2;

/// A script that fails, and its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentFault {
    /// The script that creates, in every attempt.
    Create,
    /// The script that deletes, in its first attempt.
    Delete,
}

/// Returns the document of the template, completed by an author: its scripts create and delete a folder in `things`.
fn completed_document(folder: &Path, things: &Path, more: &[&str]) -> String {
    let output = Command::new(EBB).current_dir(folder).args(["plugin", "new", "thing"]).args(more).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(folder.join("thing.yaml")).unwrap();
    let thing = format!("{}/thing-$EBB_KEY", things.display());
    let mut filled = String::new();
    for line in text.lines() {
        let blanks = &line[..line.len() - line.trim_start().len()];
        filled += &match line.trim_start() {
            own if own.starts_with("echo \"creating") => {
                format!("{blanks}mkdir -p \"{thing}\"; echo made >>{}/../made", things.display())
            }
            own if own.starts_with("echo \"deleting") => format!("{blanks}rm -rf \"{thing}\""),
            _ => line.to_owned(),
        };
        filled.push('\n');
    }
    assert_eq!(filled.matches("thing-$EBB_KEY\"").count(), text.matches("thing-$EBB_KEY").count());
    filled
}

/// Returns the line numbers of the script that creates, and of the script that deletes.
fn scripts(text: &str) -> [Vec<usize>; 2] {
    let lines: Vec<&str> = text.lines().collect();
    let blanks = |line: &str| line.len() - line.trim_start().len();
    let begins = (0..lines.len()).filter(|&at| lines[at].trim_end().ends_with("script: |"));
    let scripts = begins.map(|at| {
        (at + 1..lines.len()).take_while(|&line| blanks(lines[line]) > blanks(lines[at])).collect::<Vec<_>>()
    });
    scripts.collect::<Vec<_>>().try_into().unwrap()
}

/// Returns the text with a failing command before a line.
fn with_failure(text: &str, before: usize, like: usize, fault: DocumentFault) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let blanks = " ".repeat(lines[like].len() - lines[like].trim_start().len());
    let fails = match fault {
        DocumentFault::Create => "exit 1",
        DocumentFault::Delete => "[ \"$EBB_ATTEMPT\" != 1 ] || exit 1",
    };
    let mut text = lines[..before].join("\n");
    text += &format!("\n{blanks}{fails}\n");
    text + &lines[before..].join("\n") + "\n"
}

fn run(folder: &Path, plugin: &str) -> Output {
    fs::write(folder.join("plugin.yaml"), plugin).unwrap();
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: one\nresources: {thing: {plugin: thing}}\n";
    fs::write(folder.join("sandbox.yaml"), sandbox).unwrap();
    let mut command = Command::new(EBB);
    command.current_dir(folder).args(["run", "sandbox.yaml", "--plugin", "plugin.yaml", "--rm"]);
    command.args(["-o", "json", "--state", "state"]).stdin(Stdio::null()).output().unwrap()
}

/// Runs one instance with a failure before a line, and checks that it is gone with its resources.
fn run_instance(workdir: PathBuf, more: &[&str], script: usize, line: usize) {
    let things = workdir.join("things");
    fs::create_dir_all(&things).unwrap();
    let text = completed_document(&workdir, &things, more);
    let lines = &scripts(&text)[script];
    // The first line names the interpreter. The last position is after the last line.
    let before = lines[0] + 1 + line;
    let fault = if script == 0 { DocumentFault::Create } else { DocumentFault::Delete };
    let out = run(&workdir, &with_failure(&text, before, lines[0], fault));
    let case = format!("{more:?} {fault:?} line {line}: {}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.success(), fault == DocumentFault::Delete, "{case}");
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{case}"));
    assert_eq!(json["phase"], "gone", "{case}");
    let makes = text.lines().position(|line| line.contains("echo made")).unwrap();
    assert_eq!(workdir.join("made").exists(), fault == DocumentFault::Delete || before > makes, "{case}");
    // The script failed in its first attempt and succeeded in the next one.
    let is_retried = |line: &str| line.contains("postStop") && line.contains("succeeded") && line.contains("attempt ");
    assert!(fault == DocumentFault::Create || case.lines().any(is_retried), "the deletion did not fail: {case}");
    let remaining: Vec<_> = fs::read_dir(&things).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(remaining.is_empty(), "{remaining:?}\n{case}");
}

fn run_with_a_failure_at_each_line(more: &'static [&'static str]) {
    let folder = tempfile::Builder::new().prefix("ebb-test-").tempdir_in(OUTSIDE).unwrap();
    let workdir = folder.path();
    let lines = scripts(&completed_document(workdir, &workdir.join("things"), more)).map(|script| script.len());
    assert!(lines.iter().all(|lines| *lines >= 2), "{lines:?}");
    let cases = (0..2).flat_map(|script| (0..lines[script]).map(move |line| (script, line)));
    let cases: Vec<(usize, usize)> = cases.collect();
    for some in cases.chunks(MAX_CONCURRENT) {
        let runs = some.iter().map(|&(script, line)| {
            let workdir = workdir.join(format!("{script}-{line}"));
            fs::create_dir_all(&workdir).unwrap();
            thread::spawn(move || run_instance(workdir, more, script, line))
        });
        let runs: Vec<_> = runs.collect();
        let failed = runs.into_iter().filter_map(|run_instance| run_instance.join().err()).count();
        assert_eq!(failed, 0, "instances that did not end as expected");
    }
}

#[test]
fn instances_of_the_template_end_after_a_failure_at_each_line() {
    run_with_a_failure_at_each_line(&[]);
}

#[test]
fn instances_of_the_signadot_template_end_after_a_failure_at_each_line() {
    run_with_a_failure_at_each_line(&["--signadot"]);
}
