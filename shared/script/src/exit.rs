//! The end of a script, and the failure that follows from it.

use ebb_protocol::callback::{Callback, ReasonCode};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

/// The reason why a script has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    Finished,
    /// It took longer than its deadline allows.
    Deadline,
    /// The supervisor was asked to end.
    Signaled(Signal),
    Cancelled,
}

/// The end of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// The status of its process; `None`: not even `SIGKILL` has ended it.
    pub status: Option<WaitStatus>,
    pub cause: StopCause,
}

impl ProcessExit {
    /// Returns the failure of the unit; `None`: the script has ended with 0. A script that ends with 0 after a request
    /// to stop has succeeded: its outputs are known. `timeout_ms` and `supervisor`, such as `the pod`, are for the
    /// message.
    pub fn failure(&self, timeout_ms: u64, supervisor: &str) -> Option<Callback> {
        let (code, message) = match (self.cause, self.status) {
            (StopCause::Deadline, _) => (ReasonCode::Timeout, format!("the script took longer than {timeout_ms} ms")),
            (_, Some(WaitStatus::Exited(_, 0))) => return None,
            // The sender of a cancellation asks for no result. Otherwise the machine is about to stop.
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
        Some(WaitStatus::Exited(_, code)) => format!("the script ended with {code}"),
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
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn failures() {
        let exited = |code| Some(WaitStatus::Exited(Pid::from_raw(7), code));
        let asked = StopCause::Signaled(Signal::SIGTERM);
        for (cause, status, expected) in [
            (StopCause::Finished, exited(0), None),
            (asked, exited(0), None),
            (StopCause::Cancelled, exited(0), None),
            (StopCause::Finished, exited(3), Some((ReasonCode::Exit, "the script ended with 3"))),
            (StopCause::Deadline, exited(0), Some((ReasonCode::Timeout, "the script took longer than 10 ms"))),
            (
                asked,
                None,
                Some((
                    ReasonCode::Lost,
                    "the pod was asked to end by SIGTERM, and the script did not end, not even by SIGKILL",
                )),
            ),
        ] {
            let found = ProcessExit { status, cause }.failure(10, "the pod").and_then(|failure| failure.reason);
            let found = found.map(|reason| (reason.code, reason.message));
            assert_eq!(found, expected.map(|(code, why)| (code, why.to_owned())), "{cause:?} {status:?}");
        }
    }
}
