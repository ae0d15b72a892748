//! `ebb-entrypoint`: runs a script inside a container of any image and reports how it has ended.
//!
//! `ebb-entrypoint install FOLDER` is the init container. It copies the program into a folder of the other container.
//! `ebb-entrypoint run --spec FILE` is the entry point of that container. The image must contain only the interpreter
//! of the script: the program is static, sends plain HTTP to an IP address, and resolves no names. [`ebb_script`] runs
//! the script.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::exit;

use ebb_protocol::entrypoint::PROGRAM_NAME;
use ebb_protocol::entrypoint::exit::USAGE;

mod report;
mod run;
mod termination;

const HELP: &str = "\
Usage: ebb-entrypoint install FOLDER
       ebb-entrypoint run --spec FILE

install copies this program into FOLDER; run starts the script that FILE describes and ends with its exit code.";

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(|word| word.to_str().unwrap_or("?")).collect();
    let code = match words.as_slice() {
        ["install", _] => {
            let installed = install(Path::new(&arguments[1]));
            i32::from(installed.inspect_err(|error| eprintln!("ebb-entrypoint: {error}")).is_err())
        }
        ["run", "--spec", _] => run::run(Path::new(&arguments[2])),
        ["--version"] => {
            println!("ebb-entrypoint {}", env!("CARGO_PKG_VERSION"));
            0
        }
        _ => {
            eprintln!("{HELP}");
            USAGE
        }
    };
    exit(code);
}

/// Copies this program into `folder`, readable and executable for every user. An existing file of the same name is
/// replaced atomically, so that the copy is always complete.
fn install(folder: &Path) -> Result<(), String> {
    let target = folder.join(PROGRAM_NAME);
    // An interrupted copy has the same name, and a restart of the init container replaces it.
    let half = folder.join(format!(".{PROGRAM_NAME}.half"));
    let place = || -> io::Result<()> {
        // The link is valid even if the file of this program was replaced or removed.
        let mut from = File::open("/proc/self/exe")?;
        let mut to = File::create(&half)?;
        io::copy(&mut from, &mut to)?;
        to.set_permissions(Permissions::from_mode(0o755))?;
        to.sync_all()?;
        fs::rename(&half, &target)
    };
    place().map_err(|error| format!("cannot be installed as {}: {error}", target.display()))
}
