//! Reading what a script has left at its declared paths.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_wire::callback::{Callback, CallbackStatus};
use ebb_wire::limits::OUTPUTS;
use ebb_wire::relay::ScriptOutput;
use ebb_wire::script::OutputTrouble;
use nix::errno::Errno;
use nix::fcntl::OFlag;

/// The result of a script that has ended with 0: success with its outputs and apart from them the sensitive ones in
/// base64, or why they are not as declared.
pub(crate) fn collect(outputs: &[ScriptOutput]) -> (Callback, BTreeMap<String, String>) {
    let mut total = 0;
    let mut result = Callback::new(CallbackStatus::Succeeded);
    let mut sensitive = BTreeMap::new();
    for output in outputs {
        let bytes = read(&output.path).and_then(|bytes| {
            total += bytes.len();
            if total > OUTPUTS { Err(OutputTrouble::TooManyBytes(total)) } else { Ok(bytes) }
        });
        match bytes {
            Err(trouble) => return (trouble.failure(output), BTreeMap::new()),
            Ok(bytes) if output.sensitive => {
                sensitive.insert(output.name.clone(), STANDARD.encode(bytes));
            }
            Ok(bytes) => result.hold(&output.name, bytes),
        }
    }
    (result, sensitive)
}

fn read(path: &str) -> Result<Vec<u8>, OutputTrouble> {
    let invalid = |why: String| OutputTrouble::Invalid(why);
    // Without waiting: a FIFO has no writer any more.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(|error| {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ENOTDIR) => OutputTrouble::Missing,
            Some(Errno::ELOOP) => invalid("is a symbolic link, not a file".to_owned()),
            Some(Errno::ENXIO) => invalid("is a socket, not a file".to_owned()),
            _ => invalid(format!("cannot be read: {error}")),
        }
    })?;
    OutputTrouble::or_bytes(file)
}
