//! What the end of a script means.

use ebb_protocol::entrypoint::exit::FAILED;
use ebb_protocol::entrypoint::{EntrypointSpec, ScriptExit};
use ebb_script::ProcessExit;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::outputs;

/// The script's end with its outputs if it has succeeded; without log and time.
pub(crate) fn script_exit(spec: &EntrypointSpec, end: &ProcessExit) -> ScriptExit {
    let exit_code = Some(end.status.map_or(128 + Signal::SIGKILL as i32, code));
    let (result, sensitive) = match end.failure(spec.timeout_ms, "the pod") {
        None => outputs::collect(&spec.outputs),
        Some(failure) => (failure, Default::default()),
    };
    ScriptExit { result, sensitive, exit_code }
}

/// Our own exit code: the script's, but never 0 for what has failed.
pub(crate) fn exit_code(ended: &ScriptExit, failed: bool) -> i32 {
    match ended.exit_code {
        Some(0) | None if failed => FAILED,
        code => code.unwrap_or(FAILED),
    }
}

fn code(status: WaitStatus) -> i32 {
    match status {
        WaitStatus::Exited(_, code) => code,
        WaitStatus::Signaled(_, signal, _) => 128 + signal as i32,
        // Only asked for by tracers.
        _ => FAILED,
    }
}
