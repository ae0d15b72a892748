//! Copies this program into a folder of another container.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ebb_protocol::entrypoint::PROGRAM_NAME;

/// Copies this program into `folder`, readable and executable for every user. An existing file of the same name is
/// replaced atomically, so that the copy is always complete.
pub(crate) fn install(folder: &Path) -> Result<(), String> {
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
