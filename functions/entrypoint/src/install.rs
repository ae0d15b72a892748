//! Copying this program to where another container finds it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ebb_protocol::entrypoint::PROGRAM_NAME;

/// Copies this program into `folder`, readable and executable for everyone, and gives the copy's path. What was there
/// under its name is replaced in one step, so that nobody ever finds half a program.
pub(crate) fn install(folder: &Path) -> Result<PathBuf, String> {
    let target = folder.join(PROGRAM_NAME);
    // Whoever was interrupted has left it under the same name: a restart of the init container cleans up.
    let half = folder.join(format!(".{PROGRAM_NAME}.half"));
    let place = || -> io::Result<()> {
        // The link stays right where the image has no name for this program, and where its file was replaced.
        let mut from = File::open("/proc/self/exe")?;
        let mut to = File::create(&half)?;
        io::copy(&mut from, &mut to)?;
        to.set_permissions(Permissions::from_mode(0o755))?;
        to.sync_all()?;
        fs::rename(&half, &target)
    };
    place().map_err(|error| format!("cannot be installed as {}: {error}", target.display()))?;
    Ok(target)
}
