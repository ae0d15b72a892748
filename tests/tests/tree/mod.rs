//! Lists the files of the repository that git tracks. A new file counts after `git add`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// Returns the root folder of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().expect("the repository exists")
}

/// Returns the paths of all files, relative to the root. A file that git does not track is not part of the project: a reader
/// has put it there to try something.
pub(crate) fn files() -> &'static [String] {
    static FILES: LazyLock<Vec<String>> = LazyLock::new(listed);
    &FILES
}

fn listed() -> Vec<String> {
    let root = root();
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
    let output = output.expect("git runs");
    assert!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
    // git lists a file that was moved without a commit under its old name, too.
    listed.split_terminator('\0').filter(|file| root.join(file).is_file()).map(str::to_owned).collect()
}

/// Returns the paths of all Rust files.
pub(crate) fn sources() -> impl Iterator<Item = &'static str> {
    files().iter().map(String::as_str).filter(|file| file.ends_with(".rs"))
}

/// Returns the text of a file that must exist.
pub(crate) fn read(file: &str) -> String {
    find(file).expect(file)
}

/// Returns the text of a file, if it exists.
pub(crate) fn find(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}
