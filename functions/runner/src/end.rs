//! What the end of a script means.

use ebb_wire::callback::{Callback, ReasonCode};
use ebb_wire::runner::exit::FAILED;
use ebb_wire::runner::{Ended, Spec};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::outputs;
use crate::watch::Why;

/// The script's end with its outputs if it has succeeded; without log and time.
pub(crate) fn judge(spec: &Spec, status: Option<WaitStatus>, why: Why) -> Ended {
    let exit_code = Some(status.map_or(128 + Signal::SIGKILL as i32, code));
    let (result, sensitive) = match (why, status) {
        (Why::Deadline, _) => {
            let message = format!("the script took longer than {} ms", spec.deadline_ms);
            (Callback::failed(ReasonCode::Timeout, &message), Default::default())
        }
        // Even if we were asked to end: it came through before, and what it has made is known, which is better.
        (_, Some(WaitStatus::Exited(_, 0))) => outputs::collect(&spec.outputs),
        // The relay knows whether it has ended the pod, and then asks nobody. Otherwise the node was drained or worse.
        (Why::Asked(signal), _) => {
            let message = format!("the pod was asked to end by {signal}, and {}", describe(status));
            (Callback::failed(ReasonCode::Lost, &message), Default::default())
        }
        (Why::Itself, _) => (Callback::failed(ReasonCode::Exit, &describe(status)), Default::default()),
    };
    Ended { result, sensitive, exit_code }
}

/// Our own exit code: the script's, but never 0 for what has failed.
pub(crate) fn exit_code(ended: &Ended, failed: bool) -> i32 {
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

fn describe(status: Option<WaitStatus>) -> String {
    match status {
        Some(WaitStatus::Exited(_, code)) => format!("the script ended with {code}"),
        Some(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {
            "the script was ended by SIGKILL, as it happens where memory is short".to_owned()
        }
        Some(WaitStatus::Signaled(_, signal, _)) => format!("the script was ended by {signal}"),
        other => format!("the script ended in a strange way: {other:?}"),
    }
}
