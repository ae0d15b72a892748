//! Reads the output files of a script that has ended with 0.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_protocol::limits::{OUTPUT, OUTPUTS};
use ebb_protocol::{Callback, CallbackStatus, ReasonCode, ScriptOutput};
use nix::errno::Errno;
use nix::fcntl::OFlag;

/// The flags for opening an output. Links are not followed. The call does not block, because a FIFO no longer has a
/// writer.
const OPEN_FLAGS: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOFOLLOW).union(OFlag::O_NOCTTY);

/// Reads the declared outputs in their order. Returns success with the outputs and, separately, the sensitive ones in
/// base64. Returns a failure if an output is missing, is not a file, or is too large, alone or together with those
/// before it. The sensitive outputs of a failure serve to mask the log.
pub(crate) fn collect(outputs: &[ScriptOutput]) -> (Callback, BTreeMap<String, String>) {
    let mut result = Callback::new(CallbackStatus::Succeeded);
    let mut sensitive = BTreeMap::new();
    let mut total = 0;
    for output in outputs {
        match read(output, &mut total) {
            Err((code, why)) => return (Callback::failed(code, &why), self::sensitive(outputs)),
            Ok(bytes) if output.sensitive => drop(sensitive.insert(output.name.clone(), STANDARD.encode(bytes))),
            Ok(bytes) => result.hold(&output.name, bytes),
        }
    }
    (result, sensitive)
}

/// Returns the sensitive outputs that can be read, in base64.
pub(crate) fn sensitive(outputs: &[ScriptOutput]) -> BTreeMap<String, String> {
    let mut total = 0;
    let read = |output: &ScriptOutput| Some((output.name.clone(), STANDARD.encode(read(output, &mut total).ok()?)));
    outputs.iter().filter(|output| output.sensitive).filter_map(read).collect()
}

/// Reads an output. `total` has the bytes of those before it.
///
/// # Errors
/// Returns the reason of the failure of the unit.
fn read(output: &ScriptOutput, total: &mut usize) -> Result<Vec<u8>, (ReasonCode, String)> {
    let ScriptOutput { name, path, .. } = output;
    let invalid = |why: &str| (ReasonCode::OutputInvalid, format!("output {name:?}: {path} {why}"));
    let unreadable = |error: io::Error| invalid(&format!("cannot be read: {error}"));
    let too_large = |size: u64| {
        (ReasonCode::OutputTooLarge, format!("output {name:?}: {path} has {size} bytes; the limit is {OUTPUT}"))
    };
    let opened = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS.bits()).open(path);
    // Only a path with a NUL byte gives an error without a number. Such a path was rejected before the script started.
    let file = opened.map_err(|error| match error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw) {
        Errno::ENOENT | Errno::ENOTDIR => {
            (ReasonCode::OutputMissing, format!("output {name:?}: the script ended with 0 and did not write {path}"))
        }
        Errno::ELOOP => invalid("is a symbolic link, not a file"),
        Errno::ENXIO => invalid("is a socket, not a file"),
        error => invalid(&format!("cannot be read: {error}")),
    })?;
    let about = file.metadata().map_err(unreadable)?;
    match about.file_type() {
        kind if kind.is_file() => {}
        kind if kind.is_dir() => return Err(invalid("is a folder, not a file")),
        kind if kind.is_fifo() => return Err(invalid("is a FIFO, not a file")),
        _ => return Err(invalid("is a device, not a file")),
    }
    if about.len() > OUTPUT as u64 {
        return Err(too_large(about.len()));
    }
    let mut bytes = Vec::new();
    // The file may grow during the read.
    file.take(OUTPUT as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > OUTPUT {
        return Err(too_large(bytes.len() as u64));
    }
    *total += bytes.len();
    if *total > OUTPUTS {
        let why = format!("the outputs up to {name:?} have {total} bytes; the limit of all outputs is {OUTPUTS}");
        return Err((ReasonCode::OutputTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// A function that creates files in a folder, the expected reason, and a part of the message.
    type Row = (fn(&Path), ReasonCode, &'static str);

    fn sized(path: &Path, bytes: u64) {
        File::create(path).unwrap().set_len(bytes).unwrap();
    }

    // The test creates the files without commands, because another test of this process reaps all children.
    #[test]
    fn invalid_outputs_fail() {
        let (invalid, large) = (ReasonCode::OutputInvalid, ReasonCode::OutputTooLarge);
        let rows: [Row; 6] = [
            (|_| (), ReasonCode::OutputMissing, "output \"a\": the script ended with 0 and did not write /"),
            (|folder| fs::create_dir(folder.join("a")).unwrap(), invalid, "is a folder, not a file"),
            (|folder| symlink("/etc/passwd", folder.join("a")).unwrap(), invalid, "is a symbolic link, not a file"),
            (|folder| mkfifo(&folder.join("a"), Mode::S_IRWXU).unwrap(), invalid, "is a FIFO, not a file"),
            // The file is sparse. Its size is known without a read.
            (|folder| sized(&folder.join("a"), 10 << 30), large, "/a has 10737418240 bytes; the limit is 1048576"),
            (
                |folder| ["a", "b", "c", "d", "e"].iter().for_each(|name| sized(&folder.join(name), 1_000_000)),
                large,
                "the outputs up to \"e\" have 5000000 bytes; the limit of all outputs is 4194304",
            ),
        ];
        for (create, code, message) in rows {
            let folder = tempfile::tempdir().unwrap();
            create(folder.path());
            let outputs = ["a", "b", "c", "d", "e"].map(|name| ScriptOutput {
                name: name.to_owned(),
                path: folder.path().join(name).to_str().unwrap().to_owned(),
                sensitive: name == "b",
            });
            let (result, sensitive) = collect(&outputs);
            let reason = result.reason.unwrap();
            assert!(reason.code == code && reason.message.contains(message), "{reason:?}");
            assert!(result.outputs.is_empty() && result.binary.is_empty(), "{message}");
            // A sensitive output that exists masks the log.
            assert_eq!(sensitive.contains_key("b"), folder.path().join("b").exists(), "{message}");
        }
    }
}
