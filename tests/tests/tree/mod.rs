//! The files of the repository, as git knows them: committed ones and new ones that are not ignored.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize().expect("the repository is there")
}

/// Paths relative to the root, of files that exist.
pub(crate) fn files() -> &'static [String] {
    static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
        let root = root();
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(&root);
        let output = git.output().expect("git is there");
        assert!(output.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
        let listed = String::from_utf8(output.stdout).expect("paths are UTF-8");
        // A file that was moved and not committed yet is still listed under its old name.
        listed.split_terminator('\0').filter(|file| root.join(file).is_file()).map(str::to_owned).collect()
    });
    &FILES
}

/// All Rust files.
pub(crate) fn sources() -> impl Iterator<Item = &'static str> {
    files().iter().map(String::as_str).filter(|file| file.ends_with(".rs"))
}

/// A file's text.
pub(crate) fn read(file: &str) -> String {
    find(file).expect(file)
}

/// A file's text, if there is such a file.
pub(crate) fn find(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}
