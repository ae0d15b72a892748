//! Reading the output files of a script that has ended with 0.

use std::fs::File;

use ebb_protocol::callback::Callback;
use ebb_protocol::limits::OUTPUTS;
use ebb_protocol::relay::ScriptOutput;
use ebb_protocol::script::OutputError;
use nix::errno::Errno;
use nix::fcntl::OFlag;

/// The flags that an output is opened with: without following a link, and without waiting, because a FIFO has no writer
/// any more.
pub const OPEN_FLAGS: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOFOLLOW).union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);

/// Reads the declared outputs in their order. `open` gives the file of an output, opened with [`OPEN_FLAGS`]; it gets
/// the output's position.
///
/// # Errors
/// The failure of the unit: an output that is missing, no file, too large, or too large together with those before it.
pub fn read_all(
    outputs: &[ScriptOutput],
    mut open: impl FnMut(usize, &ScriptOutput) -> Result<File, Errno>,
) -> Result<Vec<(&ScriptOutput, Vec<u8>)>, Box<Callback>> {
    let mut total = 0;
    let mut found = Vec::with_capacity(outputs.len());
    for (position, output) in outputs.iter().enumerate() {
        let read = open(position, output).map_err(trouble).and_then(OutputError::or_bytes);
        let bytes = read.map_err(|trouble| Box::new(trouble.failure(output)))?;
        total += bytes.len();
        if total > OUTPUTS {
            return Err(Box::new(OutputError::TooManyBytes(total).failure(output)));
        }
        found.push((output, bytes));
    }
    Ok(found)
}

fn trouble(error: Errno) -> OutputError {
    match error {
        Errno::ENOENT | Errno::ENOTDIR => OutputError::Missing,
        Errno::ELOOP => OutputError::Invalid("is a symbolic link, not a file".to_owned()),
        Errno::ENXIO => OutputError::Invalid("is a socket, not a file".to_owned()),
        error => OutputError::Invalid(format!("cannot be read: {error}")),
    }
}
