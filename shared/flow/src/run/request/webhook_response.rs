//! Reads the responses to the requests of a webhook unit.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use ebb_documents::plan::{GRAPHQL, UntilPlan, WebhookAction};
use ebb_documents::render::{self, AnswerFailure, Answers, RenderError, RenderValue};
use ebb_documents::{KnownOutputs, TargetFacts, UnitContext};
use ebb_egress::{CallError, HttpResponse, MAX_RETRY_AFTER};
use ebb_protocol::{FailureReason, Outputs, ReasonCode, SecretText, TokenKind, limits};
use serde_json::json;

use crate::run::{AttemptContext, AttemptFailure, callback_result, masking};
use crate::{SentRequest, response_body};

/// A webhook unit with the values that its expressions read beside the answers to its requests.
pub(crate) struct UnitAnswers<'a> {
    pub(crate) attempt: AttemptContext<'a>,
    pub(crate) facts: TargetFacts,
    pub(crate) known: KnownOutputs,
    /// The texts of the sensitive values in the request.
    pub(crate) opened: Vec<SecretText>,
    /// The time of this dispatch that a question before the request has taken.
    pub(crate) spent: Duration,
}

impl UnitAnswers<'_> {
    pub(crate) fn context(&self) -> UnitContext<'_> {
        let plan = &self.attempt.run.loaded.plan;
        UnitContext { plan, at: self.attempt.unit_ref(), facts: &self.facts, known: &self.known }
    }

    /// Returns the state for which the unit waits after a response.
    pub(crate) fn until(&self) -> Option<&UntilPlan> {
        self.attempt.unit.action.webhook()?.until.as_ref()
    }

    /// Returns true if the webhook says how the next page of a list is found, or with `by_answer` if an answer decides.
    pub(crate) fn has_next(&self, by_answer: bool) -> bool {
        let next = self.attempt.unit.action.webhook().and_then(|webhook| webhook.next.as_ref());
        next.is_some_and(|next| !by_answer || *next != "")
    }

    /// Returns an answer as `failed` of the webhook judges it, and its reason if it is a failure with a status. An answer with a
    /// status of a failure keeps it, unless the condition names another one or a code.
    ///
    /// # Errors
    /// Returns the failure of an answer that is one without a status, or that cannot be judged.
    pub(crate) fn judged<'r>(
        &self,
        sent: &SentRequest<'_>,
        answer: &'r HttpResponse,
    ) -> Result<(Cow<'r, HttpResponse>, Option<String>), AttemptFailure> {
        let is_success = (200..300).contains(&answer.status);
        // What an undo or an inventory reads from a page for people shows nothing.
        let unit = self.attempt.unit;
        let is_judged = sent.is_changing() || unit.lists || !unit.undoes.is_empty();
        if is_success && is_judged && sent.is_page(answer) {
            return Err(self.unreadable(sent, answer, ReasonCode::OutputInvalid, None));
        }
        let plain = || Ok((Cow::Borrowed(answer), None));
        // An empty response, such as 204, has no errors. It is no answer of GraphQL.
        let is_graphql = self.has_condition(|webhook| webhook.failed.as_deref() == Some(GRAPHQL));
        let is_empty = answer.body.is_empty() && !(is_graphql && answer.status == 200);
        if is_empty || !self.has_condition(|webhook| webhook.failed.is_some()) {
            return plain();
        }
        let found = match value(answer) {
            Ok(value) => {
                let failure = self.context().failure(&value);
                // The answer can be that to a question, which outputs read as `poll`.
                let all = Answers { response: &value, poll: Some(&value) };
                let masked = |it: AnswerFailure| AnswerFailure { message: self.masked(&it.message, all), ..it };
                failure
                    .map(|failure| failure.map(masked))
                    .map_err(|error| self.unreadable(sent, answer, ReasonCode::OutputInvalid, Some(&error)))
            }
            Err(failure) => Err(failure),
        };
        let failure = match found {
            Ok(Some(failure)) => failure,
            Err(failure) if is_success => return Err(failure),
            Ok(None) | Err(_) => return plain(),
        };
        let AnswerFailure { message, status, code, retry_after } = failure;
        let message = sent.scrub(&message);
        let retry_after = retry_after.map(|seconds| seconds.min(MAX_RETRY_AFTER.as_secs()));
        // A status of a failure stays, unless the condition gives another one, or a code for a refusal.
        let is_refusal = (400..500).contains(&answer.status) && !matches!(answer.status, 408 | 425 | 429 | 499);
        let stays = !(is_success || is_refusal && code.is_some());
        let Some(status) = status.or(stays.then_some(answer.status)) else {
            let reason = serde_json::from_value(json!({"code": code, "message": message}));
            let reason = reason.unwrap_or(FailureReason { code: ReasonCode::Failed, message });
            let outputs = self.known_outputs(answer).into();
            let failure = callback_result::failure(&reason, TokenKind::Webhook);
            return Err(AttemptFailure { retry_after, outputs, may_be_made: is_success, ..failure });
        };
        let mut judged = HttpResponse { status, ..answer.clone() };
        // The first header of a name counts.
        let wait = retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
        judged.headers.splice(0..0, wait);
        Ok((Cow::Owned(judged), Some(message)))
    }

    /// Returns the failure of an answer from which something cannot be evaluated, with `code`. One that is not JSON, or has
    /// another form than an expression reads, has its own code. A page for people comes from a server in between, so that
    /// the outcome is unknown.
    pub(crate) fn unreadable(
        &self,
        sent: &SentRequest<'_>,
        answer: &HttpResponse,
        code: ReasonCode,
        error: Option<&RenderError>,
    ) -> AttemptFailure {
        // A condition of a setup (`while`) fails with `failed`, and its request can be repeated.
        let is_result = code == ReasonCode::OutputInvalid || !self.attempt.unit.undoes.is_empty();
        let is_made = is_result && !sent.is_page(answer);
        let outputs = self.known_outputs(answer).into();
        let foreign = sent.foreign_format(self.attempt.unit, answer);
        let is_foreign = foreign.is_some() || matches!(error, Some(RenderError::Misread { .. }));
        let code = if is_foreign { ReasonCode::Unreadable } else { code };
        let why = foreign.or(error.map(ToString::to_string)).unwrap_or_default();
        AttemptFailure { is_made: is_made && is_foreign, outputs, ..AttemptFailure::new(code, &why) }
    }

    /// Returns the outputs that a response has, although it does not have all of them. An undo reads them.
    pub(crate) fn known_outputs(&self, response: &HttpResponse) -> Outputs {
        if !self.attempt.unit.undoes.is_empty() {
            return Outputs::default();
        }
        let value = value(response).ok();
        let known = |value| self.context().known_outputs(Answers { response: &value, poll: None }).ok();
        let mut outputs = value.and_then(known).unwrap_or_default();
        outputs.retain(|_, value| *value != RenderValue::Json(serde_json::Value::Null));
        self.values(outputs)
    }

    fn has_condition(&self, is_set: fn(&WebhookAction) -> bool) -> bool {
        self.attempt.unit.action.webhook().is_some_and(is_set)
    }

    /// Returns true if the response has what the question of `until` reads. *Not found* names no operation to ask for.
    pub(crate) fn can_ask(&self, response: &HttpResponse) -> bool {
        self.no_question(response).is_none()
    }

    /// Returns the reason if the response lacks what the question of `until` reads.
    pub(crate) fn no_question(&self, response: &HttpResponse) -> Option<String> {
        match value(response) {
            Ok(response) => self.context().question(&response).err().map(|error| error.to_string()),
            Err(failure) => Some(failure.reason.message),
        }
    }

    /// Returns the declared outputs from a successful response.
    ///
    /// # Errors
    /// Returns the failure of the unit if the response lacks a declared output.
    pub(crate) fn outputs(&self, sent: &SentRequest<'_>, response: &HttpResponse) -> Result<Outputs, AttemptFailure> {
        if self.attempt.unit.outputs.is_empty() {
            return Ok(Outputs::default());
        }
        let value = value(response)?;
        let outputs = self.context().outputs(Answers { response: &value, poll: None });
        let invalid = |error: RenderError| self.unreadable(sent, response, ReasonCode::OutputInvalid, Some(&error));
        Ok(self.values(outputs.map_err(invalid)?))
    }

    /// Returns a text of an answer without the sensitive outputs that follow from `answers`.
    pub(crate) fn masked(&self, text: &str, answers: Answers<'_>) -> String {
        let unit = self.attempt.unit;
        if !unit.outputs.values().any(|output| output.sensitive) {
            return text.to_owned();
        }
        let known = self.context().known_outputs(answers).unwrap_or_default();
        masking::without_sensitive(unit, &masking::unit_values(unit, known, &[]), text)
    }

    /// Returns outputs as values, in which the sensitive values of the request and of other outputs are masked.
    pub(crate) fn values(&self, outputs: BTreeMap<String, RenderValue>) -> Outputs {
        masking::unit_values(self.attempt.unit, outputs, &self.opened)
    }

    /// Returns true if a response 2xx shows the resource. Without a condition, each one does.
    ///
    /// # Errors
    /// Returns the failure of the unit if the condition cannot be evaluated.
    pub(crate) fn is_shown(&self, sent: &SentRequest<'_>, response: &HttpResponse) -> Result<bool, AttemptFailure> {
        let has_found = |webhook: &WebhookAction| webhook.describe.as_ref().is_some_and(|it| it.found.is_some());
        if !self.has_condition(has_found) && !self.has_condition(|webhook| webhook.absent.is_some()) {
            return Ok(true);
        }
        let is_shown = self.context().is_shown(&value(response)?);
        is_shown.map_err(|error| self.unreadable(sent, response, ReasonCode::Failed, Some(&error)))
    }
}

/// Returns a response as the value of `response` or `poll`.
///
/// # Errors
/// Returns the failure of the unit if the response has too many values.
pub(crate) fn value(response: &HttpResponse) -> Result<serde_json::Value, AttemptFailure> {
    let body = response_body::parse(&response.body, limits::JSON_VALUES).map_err(|problem| {
        AttemptFailure::new(ReasonCode::OutputTooLarge, &format!("the response of the server has {problem}"))
    })?;
    let headers = response.headers.iter().cloned().collect();
    Ok(render::response_value(response.status, headers, body))
}

pub(crate) fn call_failure(error: &CallError) -> AttemptFailure {
    let code = match error {
        CallError::Refused(_) => ReasonCode::Refused,
        CallError::NoConnection(_) | CallError::Connect(_) => ReasonCode::Connect,
        CallError::Timeout(_) => ReasonCode::Timeout,
        CallError::TooLarge(_) => ReasonCode::OutputTooLarge,
        CallError::Unread(_, cause) => return call_failure(cause),
    };
    let is_unsent = matches!(error, CallError::Refused(_) | CallError::NoConnection(_));
    AttemptFailure { is_unsent, ..AttemptFailure::new(code, &error.to_string()) }
}
