//! The end of a script, and the failure that results from it.

use ebb_protocol::entrypoint::exit::FAILED;
use ebb_protocol::{Callback, EntrypointSpec, FailureReason, Millis, ReasonCode, ScriptExit};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use crate::outputs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    Finished,
    Deadline,
    /// The supervisor has received a termination signal.
    Signaled(Signal),
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessExit {
    /// The status of its process. `None` means that even `SIGKILL` has not ended it.
    pub(crate) status: Option<WaitStatus>,
    pub(crate) cause: StopCause,
}

impl ProcessExit {
    /// Returns the end of the script, with its outputs if it has succeeded, with its sensitive outputs as far as they
    /// exist, and without log and time. `supervisor` is as in [`Surroundings`](crate::Surroundings).
    pub(crate) fn script_exit(&self, spec: &EntrypointSpec, supervisor: &str) -> ScriptExit {
        let (result, sensitive) = match self.failure(spec.timeout_ms, supervisor) {
            None => outputs::collect(&spec.outputs),
            Some(failure) => (failure, outputs::sensitive(&spec.outputs)),
        };
        ScriptExit { result, sensitive, exit_code: Some(self.code()) }
    }

    /// Returns the exit code of the script, or 128 plus the number of the signal that ended it.
    fn code(&self) -> i32 {
        match self.status {
            None => 128 + Signal::SIGKILL as i32,
            Some(WaitStatus::Exited(_, code)) => code,
            Some(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
            // The other states occur only for tracers.
            Some(_) => FAILED,
        }
    }

    /// Returns the failure of the unit, or `None` if the script has ended with 0. A script that ends with 0 after a
    /// request to stop has succeeded, because its outputs are known.
    fn failure(&self, timeout_ms: u64, supervisor: &str) -> Option<Callback> {
        let (code, message) = match (self.cause, self.status) {
            (StopCause::Deadline, _) => {
                (ReasonCode::Timeout, format!("the script took longer than {}", Millis(timeout_ms)))
            }
            (_, Some(WaitStatus::Exited(_, 0))) => return None,
            // After a cancellation, the result is not requested. Otherwise the machine is about to stop.
            (StopCause::Signaled(signal), status) => {
                let how = describe(status);
                (ReasonCode::Lost, format!("{supervisor} was asked to end by {signal}, and {how}"))
            }
            (StopCause::Finished | StopCause::Cancelled, status) => (ReasonCode::Exit, describe(status)),
        };
        Some(Callback::failed(code, &message))
    }
}

fn describe(status: Option<WaitStatus>) -> String {
    match status {
        Some(WaitStatus::Exited(_, code)) => FailureReason::exit_message(code),
        Some(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => {
            "the script was ended by SIGKILL, as it happens where memory is short".to_owned()
        }
        Some(WaitStatus::Signaled(_, signal, _)) => format!("the script was ended by {signal}"),
        Some(other) => format!("the script ended in an unexpected way: {other:?}"),
        None => "the script did not end, not even by SIGKILL".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_does_not_end_is_lost() {
        let exit = ProcessExit { status: None, cause: StopCause::Signaled(Signal::SIGTERM) };
        let reason = exit.failure(10, "the pod").and_then(|failure| failure.reason).unwrap();
        let message = "the pod was asked to end by SIGTERM, and the script did not end, not even by SIGKILL";
        assert_eq!((reason.code, &*reason.message), (ReasonCode::Lost, message));
        let exit = ProcessExit {
            status: Some(WaitStatus::Exited(nix::unistd::Pid::from_raw(1), 78)),
            cause: StopCause::Finished,
        };
        let reason = exit.failure(10, "the pod").and_then(|failure| failure.reason).unwrap();
        assert_eq!((reason.exit_code(), &*reason.message), (Some(78), "the script ended with 78"));
    }
}
