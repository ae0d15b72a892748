//! The rule of retries: a failure has a further attempt by its status, its code and the classes of `retry.on` and
//! `retry.never`.

use ebb_documents::plan::{Action, UnitPlan};
use ebb_engine::{Attempt, attempts_used};
use ebb_protocol::{ReasonCode, words};

use crate::run::AttemptFailure;

impl AttemptFailure {
    /// Returns true if the backend did not respond, so that the request may still arrive or be processed. The
    /// status of a gateway does not count as a response of the server behind it (rule GatewayIsNoAnswer).
    pub(crate) fn is_unanswered(&self) -> bool {
        match (self.reason.code, self.status) {
            _ if self.is_made || self.is_unsent => false,
            (ReasonCode::Connect | ReasonCode::Timeout | ReasonCode::Unreadable, _) => true,
            (ReasonCode::HttpStatus, Some(status)) => {
                matches!(status, 408 | 425 | 499 | 502..=504 | 520..=529)
            }
            _ => false,
        }
    }

    /// Returns true if nothing shows what the request of this attempt of `unit` has made. A repetition with the same key is
    /// harmless, so a server that has failed counts for another request only.
    pub(crate) fn leaves_unknown(&self, unit: &UnitPlan) -> bool {
        let has_failed = matches!((self.reason.code, self.status), (ReasonCode::HttpStatus, Some(500..=599)));
        self.is_unanswered() || ((has_failed || self.may_be_made) && unit.action.is_non_idempotent())
    }

    /// Returns true if `unit` has a further attempt after this failure of `attempt`.
    ///
    /// Attempts count from the last reopening of the unit by an operator or a late success.
    pub fn is_retried(&self, unit: &UnitPlan, attempt: Attempt) -> bool {
        let attempts = unit.retry.attempts.max(1);
        // An undo is harmless.
        let is_final = self.is_made && unit.undoes.is_empty();
        let unknown = unit.action.is_non_idempotent() && self.leaves_unknown(unit);
        // `describe` has reported that the request made nothing, so its repetition is the first one.
        let is_unmade = unit.action.can_describe() && self.reason.code == ReasonCode::Lost;
        // The deletion of an earlier attempt is in progress.
        let waits = matches!(&unit.action, Action::Webhook(webhook) if webhook.until.is_some());
        let is_busy = waits && !unit.undoes.is_empty() && unit.retry.on.is_empty();
        let is_busy = is_busy && matches!(self.status, Some(409 | 423));
        let is_wanted = is_unmade || is_busy || self.is_worth_retrying(&unit.retry.on);
        let is_excluded = unit.retry.never.iter().any(|class| self.is_of(class));
        attempts_used(attempt, attempts) < attempts && !unknown && !is_final && !is_excluded && is_wanted
    }

    fn is_worth_retrying(&self, on: &[String]) -> bool {
        if self.reason.code == ReasonCode::Refused || self.reason.code == ReasonCode::Cancelled {
            return false;
        }
        // The unit may have its credential later.
        if self.reason.code == ReasonCode::NotStartable && self.retry_after.is_some() {
            return true;
        }
        if on.is_empty() {
            return match self.status {
                Some(status) => self.is_limited || matches!(status, 408 | 425 | 429 | 500..=599),
                None => self.reason.code.can_pass(),
            };
        }
        on.iter().any(|class| self.is_of(class))
    }

    fn is_of(&self, class: &str) -> bool {
        match (class, self.reason.code, self.status) {
            ("429", ..) if self.is_limited => true,
            ("5xx", ReasonCode::HttpStatus, Some(500..=599))
            | ("4xx", ReasonCode::HttpStatus, Some(400..=499))
            | ("failed", ReasonCode::Unreadable, _) => true,
            (exact, ReasonCode::HttpStatus, Some(status)) => exact.parse() == Ok(status),
            // The other classes are names of codes, and exit codes.
            (class, code, _) => {
                words::name(&code) == class || self.reason.exit_code().is_some_and(|exit| exit.to_string() == class)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_documents::compile::defaults::RETRY_CLASSES;
    use ebb_documents::plan::RetryPolicy;
    use ebb_protocol::callback::FailureReason;

    use super::*;
    use crate::tests::rows;

    #[test]
    fn every_retry_class_matches_a_failure() {
        use ReasonCode::*;
        let unit = |retry: RetryPolicy| UnitPlan { retry: RetryPolicy { attempts: 2, ..retry }, ..UnitPlan::default() };
        let on = |class: &str| unit(RetryPolicy { on: vec![class.to_owned()], ..RetryPolicy::default() });
        let never = |class: &str| unit(RetryPolicy { never: vec![class.to_owned()], ..RetryPolicy::default() });
        let status =
            |status| AttemptFailure { status: Some(status), ..AttemptFailure::new(ReasonCode::HttpStatus, "") };
        let codes = [Timeout, Connect, Exit, Lost, Failed, ImagePull, Unschedulable, OutOfMemory, Evicted, Quota];
        let failures = codes.map(|code| AttemptFailure::new(code, "")).into_iter();
        let failures: Vec<_> = failures.chain([408, 429, 404, 503].map(status)).collect();
        for class in RETRY_CLASSES.split(' ') {
            let retried = failures.iter().filter(|failure| failure.is_retried(&on(class), Attempt::FIRST));
            let expected = if class == "4xx" { 3 } else { 1 };
            assert_eq!(retried.count(), expected, "{class}");
        }
        assert!(status(404).is_retried(&on("404"), Attempt::FIRST));
        assert!(!status(404).is_retried(&on("405"), Attempt::FIRST));
        // A number is a status, or else the exit code in the message.
        for (code, number, is_limited, class, is_class) in
            rows::<(ReasonCode, u16, bool, String, bool)>("retried_failures")
        {
            let failure = AttemptFailure::new(code, &FailureReason::exit_message(number.into()));
            let status = (code == HttpStatus).then_some(number);
            let failure = AttemptFailure { status, is_limited, ..failure };
            assert_eq!(failure.is_retried(&on(&class), Attempt::FIRST), is_class, "{class}: {failure:?}");
            assert_eq!(failure.is_retried(&never(&class), Attempt::FIRST), !is_class, "{class}: {failure:?}");
        }
    }
}
