//! Reading what a script has left at its declared paths.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::callback::{Callback, CallbackStatus};
use ebb_protocol::relay::ScriptOutput;
use ebb_script::outputs::{self, OPEN_FLAGS};
use nix::errno::Errno;

/// The result of a script that has ended with 0: success with its outputs and apart from them the sensitive ones in
/// base64, or why they are not as declared.
pub(crate) fn collect(outputs: &[ScriptOutput]) -> (Callback, BTreeMap<String, String>) {
    let found = match outputs::read_all(outputs, |_, output| open(&output.path)) {
        Ok(found) => found,
        Err(failure) => return (*failure, BTreeMap::new()),
    };
    let mut result = Callback::new(CallbackStatus::Succeeded);
    let mut sensitive = BTreeMap::new();
    for (output, bytes) in found {
        if output.sensitive {
            sensitive.insert(output.name.clone(), STANDARD.encode(bytes));
        } else {
            result.hold(&output.name, bytes);
        }
    }
    (result, sensitive)
}

fn open(path: &str) -> Result<File, Errno> {
    let opened = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS.bits()).open(path);
    // Only a path with a NUL byte has no number, and that was refused before the script started.
    opened.map_err(|error| error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw))
}
