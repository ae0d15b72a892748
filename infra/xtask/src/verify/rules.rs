//! `verify rules`: builds the model from a copy of the repository that can leave out rules of the state protocol.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::run::{cargo, command, folder, output, remove, root, run};

/// The removal of each rule. Its head describes the fields.
const RULES: &str = "tests/model/rules.yaml";
/// The module that only the copy has, and the file that declares it.
const SWITCH: &str = "shared/flow/src/rule_switch.rs";
const SWITCH_PARENT: &str = "shared/flow/src/lib.rs";

#[derive(Deserialize)]
struct RuleFile {
    rule_switch: String,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    rule: String,
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
struct Edit {
    file: String,
    find: String,
    replace: String,
}

/// Builds the model from the copy in `target/rules/source` and returns its path.
pub(super) fn build() -> anyhow::Result<PathBuf> {
    let target = folder().join("rules");
    let source = target.join("source");
    copy(&source)?;
    let build = ["build", "-p", "ebb-tests", "--profile", "verify", "--bin", "model", "--features", "verify"];
    run(cargo().args(build).current_dir(&source).env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("verify/model"))
}

/// Writes all files of the repository to a folder, with the edits of all rules.
///
/// A file keeps its modification time, so that a second build is short.
fn copy(to: &Path) -> anyhow::Result<()> {
    let edited = edited()?;
    let rules_changed = fs::metadata(root().join(RULES))?.modified()?;
    remove(to)?;
    // All files in git, and new files that git does not ignore.
    let listed = output(command("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    for path in listed.split_terminator('\0') {
        let from = root().join(path);
        // A deleted file is listed until the deletion is committed.
        let Ok(changed) = fs::metadata(&from).and_then(|file| file.modified()) else { continue };
        match edited.get(path) {
            None => write(&to.join(path), &fs::read(&from)?, changed)?,
            Some(text) => write(&to.join(path), text.as_bytes(), changed.max(rules_changed))?,
        }
    }
    write(&to.join(SWITCH), edited[SWITCH].as_bytes(), rules_changed)
}

fn write(path: &Path, content: &[u8], changed: SystemTime) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, content)?;
    Ok(fs::File::options().write(true).open(path)?.set_modified(changed)?)
}

/// Returns the changed files of the copy by path.
fn edited() -> anyhow::Result<BTreeMap<String, String>> {
    let read = |path: &str| fs::read_to_string(root().join(path)).with_context(|| path.to_owned());
    let rules: RuleFile = serde_saphyr::from_str(&read(RULES)?).context(RULES)?;
    let parent = read(SWITCH_PARENT)? + "\nmod rule_switch;\n";
    let mut files = BTreeMap::from([(SWITCH.to_owned(), rules.rule_switch), (SWITCH_PARENT.to_owned(), parent)]);
    for Rule { rule, edits } in rules.rules {
        for Edit { file, find, replace } in edits {
            let text = match files.remove(&file) {
                Some(text) => text,
                None => read(&file).with_context(|| format!("rule {rule}"))?,
            };
            let count = text.matches(&find).count();
            // A test of the repository says how to change the entry.
            ensure!(count == 1, "rule {rule}: its `find` occurs {count} times in {file}:\n{find}");
            let holds = format!("std::convert::identity(std::thread::current().name() != Some(\"{rule}\"))");
            files.insert(file, text.replace(&find, &replace.replace("HOLDS", &holds)));
        }
    }
    Ok(files)
}
