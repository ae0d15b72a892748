//! The plugins of `ebb plugin new` with a failure at each line of their scripts.

use std::fs;

use futures::future::join_all;

use crate::workdir::Workdir;

/// Maximum number of concurrent instances. Each has its own server, and a script that does not start in time counts as lost.
const MAX_CONCURRENT: usize = 2;

/// The failing commands in the script that creates, and in the first attempt of the script that deletes.
const FAILURES: [&str; 2] = ["exit 1", "[ \"$EBB_ATTEMPT\" != 1 ] || exit 1"];

/// Returns the document of the template, completed by an author: its scripts create and delete a folder in `things`.
async fn completed_document(workdir: &Workdir, more: &[&str]) -> String {
    workdir.ebb(&[&["plugin", "new", "thing"][..], more].concat()).await.done();
    let text = fs::read_to_string(workdir.path().join("thing.yaml")).unwrap();
    let things = workdir.path().join("things");
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
fn with_failure(text: &str, before: usize, like: usize, fails: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let blanks = " ".repeat(lines[like].len() - lines[like].trim_start().len());
    let mut text = lines[..before].join("\n");
    text += &format!("\n{blanks}{fails}\n");
    text + &lines[before..].join("\n") + "\n"
}

/// Runs one instance with a failure before a line, and checks that it is gone with its resources.
async fn run_instance(more: &[&str], script: usize, line: usize) {
    let workdir = Workdir::new();
    let things = workdir.path().join("things");
    fs::create_dir_all(&things).unwrap();
    let text = completed_document(&workdir, more).await;
    let lines = &scripts(&text)[script];
    // The first line names the interpreter. The last position is after the last line.
    let before = lines[0] + 1 + line;
    let is_deletion = script == 1;
    workdir.write("plugin.yaml", &with_failure(&text, before, lines[0], FAILURES[script]));
    workdir.write_sandbox("one", "resources: {thing: {plugin: thing}}\n");
    let run = workdir.ebb(&["run", "one.yaml", "--plugin", "plugin.yaml", "--rm", "-o", "json"]).await;
    let case = format!("{more:?} script {script} line {line}: {}", run.stderr);
    assert_eq!(run.code == Some(0), is_deletion, "{case}");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{case}"));
    assert_eq!(json["phase"], "gone", "{case}");
    let makes = text.lines().position(|line| line.contains("echo made")).unwrap();
    let is_made = workdir.path().join("made").exists();
    assert_eq!(is_made, is_deletion || before > makes, "{case}");
    // The script failed in its first attempt and succeeded in the next one.
    let is_retried = |line: &str| line.contains("postStop") && line.contains("succeeded") && line.contains("attempt ");
    assert!(!is_deletion || case.lines().any(is_retried), "the deletion did not fail: {case}");
    let remaining: Vec<_> = fs::read_dir(&things).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(remaining.is_empty(), "{remaining:?}\n{case}");
}

async fn run_with_a_failure_at_each_line(more: &[&str]) {
    let text = completed_document(&Workdir::new(), more).await;
    let lines = scripts(&text).map(|script| script.len());
    assert!(lines.iter().all(|lines| *lines >= 2), "{lines:?}");
    let cases = (0..2).flat_map(|script| (0..lines[script]).map(move |line| (script, line)));
    let cases: Vec<(usize, usize)> = cases.collect();
    for some in cases.chunks(MAX_CONCURRENT) {
        join_all(some.iter().map(|&(script, line)| run_instance(more, script, line))).await;
    }
}

#[tokio::test]
async fn instances_of_the_template_end_after_a_failure_at_each_line() {
    run_with_a_failure_at_each_line(&[]).await;
}

#[tokio::test]
async fn instances_of_the_signadot_template_end_after_a_failure_at_each_line() {
    run_with_a_failure_at_each_line(&["--signadot"]).await;
}
