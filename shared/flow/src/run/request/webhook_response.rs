//! Reads the responses to the requests of a webhook unit.

use std::collections::BTreeMap;

use ebb_documents::plan::{Action, UntilPlan, WebhookAction};
use ebb_documents::render::{self, Answers, KnownOutputs, RenderValue, TargetFacts, UnitContext};
use ebb_egress::{CallError, HttpResponse};
use ebb_protocol::callback::ReasonCode;
use ebb_protocol::limits;
use ebb_protocol::named_secrets::SecretText;
use ebb_protocol::value::Outputs;

use crate::response_body;
use crate::run::sent_request::SentRequest;
use crate::run::{AttemptContext, AttemptFailure, masking};

/// A webhook unit with the values that its expressions read beside the answers to its requests.
pub(crate) struct UnitAnswers<'a> {
    pub(crate) attempt: AttemptContext<'a>,
    pub(crate) facts: TargetFacts,
    pub(crate) known: KnownOutputs,
    /// The texts of the sensitive values in the request.
    pub(crate) opened: Vec<SecretText>,
}

impl UnitAnswers<'_> {
    pub(crate) fn context(&self) -> UnitContext<'_> {
        let plan = &self.attempt.run.loaded.plan;
        UnitContext { plan, at: self.attempt.unit_ref(), facts: &self.facts, known: &self.known }
    }

    /// Returns the state for which the unit waits after a response.
    pub(crate) fn until(&self) -> Option<&UntilPlan> {
        match &self.attempt.unit.action {
            Action::Webhook(webhook) => webhook.until.as_ref(),
            _ => None,
        }
    }

    /// Returns true if the response has what the question of `until` reads. *Not found* names no operation to ask for.
    pub(crate) fn can_ask(&self, response: &HttpResponse) -> bool {
        value(response).is_ok_and(|response| self.context().question(&response).is_ok())
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
        let outputs = outputs.map_err(|error| {
            let foreign = sent.foreign_format(self.attempt.unit, response);
            AttemptFailure::new(ReasonCode::OutputInvalid, &foreign.unwrap_or_else(|| error.to_string()))
        })?;
        Ok(self.values(outputs))
    }

    /// Returns outputs as values, in which the sensitive values of the request are masked.
    pub(crate) fn values(&self, outputs: BTreeMap<String, RenderValue>) -> Outputs {
        masking::unit_values(self.attempt.unit, outputs, &self.opened)
    }

    /// Returns true if a response 2xx shows the resource. Without a condition, each one does.
    ///
    /// # Errors
    /// Returns the failure of the unit if the condition cannot be evaluated.
    pub(crate) fn is_shown(&self, response: &HttpResponse) -> Result<bool, AttemptFailure> {
        let has_condition = |webhook: &WebhookAction| webhook.describe_found.is_some() || webhook.absent.is_some();
        if !matches!(&self.attempt.unit.action, Action::Webhook(webhook) if has_condition(webhook)) {
            return Ok(true);
        }
        let is_shown = self.context().is_shown(&value(response)?);
        is_shown.map_err(|error| AttemptFailure::new(ReasonCode::Failed, &error.to_string()))
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
        CallError::Connect(_) => ReasonCode::Connect,
        CallError::Timeout(_) => ReasonCode::Timeout,
        CallError::TooLarge(_) => ReasonCode::OutputTooLarge,
    };
    AttemptFailure::new(code, &error.to_string())
}
