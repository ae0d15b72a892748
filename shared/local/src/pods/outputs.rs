//! Reading what a script has left at its declared paths.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::relay::{ScriptOutput, TaskId};
use ebb_protocol::value::SecretRef;
use ebb_script::outputs::{self, OPEN_FLAGS};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;

use super::secrets;

/// The result of a script that has ended with 0: success with its outputs, or why they are not as declared. Sensitive
/// ones are kept in `state`. `places` are the outputs' files for us, below the script's private `root`.
pub(super) fn collect(
    work: &TaskId,
    outputs: &[ScriptOutput],
    places: &[PathBuf],
    root: &Path,
    state: &Path,
) -> Callback {
    let found = match outputs::read_all(outputs, |position, _| open_below(&places[position], root)) {
        Ok(found) => found,
        Err(failure) => return *failure,
    };
    let mut result = Callback::new(CallbackStatus::Succeeded);
    for (output, bytes) in found {
        if output.sensitive {
            let (name, key) = secrets::of_output(work, &output.name);
            if let Err(error) = secrets::put(state, &name, &key, &bytes) {
                let message = format!("output {:?} cannot be kept: {error}", output.name);
                return Callback::failed(ReasonCode::Lost, &message);
            }
            let place = SecretRef { cluster: None, namespace: None, name, key };
            result.secrets.insert(output.name.clone(), place);
            continue;
        }
        result.hold(&output.name, bytes);
    }
    result
}

/// Opens a file without leaving the private root.
fn open_below(place: &Path, root: &Path) -> Result<File, Errno> {
    let flags = OFlag::O_RDONLY | OPEN_FLAGS;
    let folder = open(root, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let inside = place.strip_prefix(root).unwrap_or(place);
    // Links that the script has made mean what they meant to the script.
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(folder.as_fd(), inside, how) {
        // Kernels before 5.6, and some sandboxes.
        Err(Errno::ENOSYS) => open(place, flags, Mode::empty()).map(File::from),
        opened => opened.map(File::from),
    }
}
