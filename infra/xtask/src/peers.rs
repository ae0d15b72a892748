//! Installs the engines that `cargo xtask bench peers` compares with Ebb, in the versions of `tests/peers`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::cluster::{go_build, required_version};
use crate::python::PythonTools;
use crate::run::{command, root, works};
use crate::tools::{self, packages};

/// Installs an engine in a folder.
type EngineInstallation = fn(&Path) -> anyhow::Result<()>;

/// The engines by their names on the command line.
const ENGINES: [(&str, EngineInstallation); 3] = [("restate", restate), ("dbos", dbos), ("temporal", temporal)];

/// Installs the engines that `arguments` of the measurement select, each in a folder of `target/peers`. Returns further
/// arguments: that folder, and the engines that cannot be installed.
pub(crate) fn installed(arguments: &[OsString]) -> anyhow::Result<Vec<OsString>> {
    let words: Vec<String> = arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().flat_map(|word| word.split([',', '='])).collect();
    let all = !words.contains(&"--only");
    let tools = root().join("target/peers");
    fs::create_dir_all(&tools)?;
    let mut options: Vec<OsString> = vec!["--tools".into(), tools.clone().into()];
    for (name, install) in ENGINES {
        if !(all || words.contains(&name)) {
            continue;
        }
        if let Err(error) = install(&tools.join(name)) {
            options.push("--missing".into());
            options.push(format!("{name}={error:#}").into());
        }
    }
    Ok(options)
}

/// Returns a file of `tests/peers`.
fn source(path: &str) -> PathBuf {
    root().join("tests/peers").join(path)
}

/// Installs the server and the worker's library from npm.
fn restate(folder: &Path) -> anyhow::Result<()> {
    tools::node(&source("restate"), folder)
}

/// Installs the library from PyPI, and PostgreSQL.
fn dbos(folder: &Path) -> anyhow::Result<()> {
    // Without PostgreSQL, the measurement prints that it is missing.
    packages(&["postgresql"]).unwrap_or_else(|error| eprintln!("{error:#}"));
    PythonTools::Dbos.install()?;
    fs::copy(source("dbos/worker.py"), folder.join("worker.py"))?;
    Ok(())
}

/// Builds the development server and the worker. The first build takes some minutes.
fn temporal(folder: &Path) -> anyhow::Result<()> {
    ensure!(works(command("go").arg("version")), "Go is missing: install Go 1.26");
    let (sources, programs) = (source("temporal"), ["github.com/temporalio/cli/cmd/temporal", "."]);
    fs::create_dir_all(folder)?;
    let version = required_version(&sources, "github.com/temporalio/cli")?;
    let flags = format!("-s -w -X github.com/temporalio/cli/temporalcli.Version={version}");
    go_build(&sources, &programs, &flags, folder)
}
