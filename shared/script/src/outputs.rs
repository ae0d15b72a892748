//! Reading the output files of a script that has ended with 0.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::callback::{Callback, CallbackStatus};
use ebb_protocol::limits::OUTPUTS;
use ebb_protocol::relay::ScriptOutput;
use ebb_protocol::script::OutputError;
use nix::errno::Errno;
use nix::fcntl::OFlag;

/// The flags that an output is opened with: without following a link, and without waiting, because a FIFO has no writer
/// any more.
const OPEN_FLAGS: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOFOLLOW).union(OFlag::O_NOCTTY);

/// Reads the declared outputs in their order. Returns success with the outputs and, apart from them, the sensitive ones
/// in base64. Returns a failure if an output is missing, no file, too large, or too large together with those before it.
pub(crate) fn collect(outputs: &[ScriptOutput]) -> (Callback, BTreeMap<String, String>) {
    let mut result = Callback::new(CallbackStatus::Succeeded);
    let mut sensitive = BTreeMap::new();
    let mut total = 0;
    for output in outputs {
        match read(output, &mut total) {
            Err(error) => return (error.failure(output), BTreeMap::new()),
            Ok(bytes) if output.sensitive => drop(sensitive.insert(output.name.clone(), STANDARD.encode(bytes))),
            Ok(bytes) => result.hold(&output.name, bytes),
        }
    }
    (result, sensitive)
}

fn read(output: &ScriptOutput, total: &mut usize) -> Result<Vec<u8>, OutputError> {
    let file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS.bits()).open(&output.path).map_err(unopened)?;
    let bytes = OutputError::or_bytes(file)?;
    *total += bytes.len();
    if *total > OUTPUTS { Err(OutputError::TooManyBytes(*total)) } else { Ok(bytes) }
}

fn unopened(error: io::Error) -> OutputError {
    // Only a path with a NUL byte has no number, and that was refused before the script started.
    match error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw) {
        Errno::ENOENT | Errno::ENOTDIR => OutputError::Missing,
        Errno::ELOOP => OutputError::Invalid("is a symbolic link, not a file".to_owned()),
        Errno::ENXIO => OutputError::Invalid("is a socket, not a file".to_owned()),
        error => OutputError::Invalid(format!("cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use ebb_protocol::callback::ReasonCode;

    use super::*;

    #[test]
    fn outputs_that_are_not_as_declared_fail() {
        let (invalid, large) = (ReasonCode::OutputInvalid, ReasonCode::OutputTooLarge);
        for (text, code, message) in [
            ("true", ReasonCode::OutputMissing, "output \"a\": the script has ended with 0 without writing /"),
            ("mkdir a", invalid, "is a folder, not a file"),
            ("ln -s /etc/passwd a", invalid, "is a symbolic link, not a file"),
            ("mkfifo a", invalid, "is a FIFO, not a file"),
            // Sparse: its size is known without reading it.
            ("truncate -s 10G a", large, "has 10737418240 bytes; an output may have 1048576"),
            ("head -c 10000000 /dev/zero >a", large, "/a has 10000000 bytes; an output may have 1048576"),
            (
                "for f in a b c d e; do head -c 1000000 /dev/zero >$f; done",
                large,
                "the outputs up to \"e\" have 5000000 bytes; all outputs of a unit may have 4194304",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            assert!(Command::new("sh").args(["-c", text]).current_dir(&folder).status().unwrap().success(), "{text}");
            let outputs = ["a", "b", "c", "d", "e"].map(|name| ScriptOutput {
                name: name.to_owned(),
                path: folder.path().join(name).to_str().unwrap().to_owned(),
                sensitive: name == "b",
            });
            let (result, sensitive) = collect(&outputs);
            let reason = result.reason.unwrap();
            assert!(reason.code == code && reason.message.contains(message), "{text}: {reason:?}");
            assert!(result.outputs.is_empty() && result.binary.is_empty() && sensitive.is_empty(), "{text}");
        }
    }
}
