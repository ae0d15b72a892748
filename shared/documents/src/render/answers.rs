//! Evaluates the answers to the requests of a webhook unit: its outputs, and the state for which it waits.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::context::{MissingPolicy, NullPolicy, RenderContext, mistyped};
use super::outputs::outputs_from;
use super::unit::headers;
use super::{
    Answers, LookupResult, OpenSealed, RenderError, RenderResult, RenderValue, RenderedQuestion, RenderedRequest,
    UnitContext, evaluate, url,
};
use crate::cel::convert::json_type;
use crate::cel::{ReferenceSource, RootVariable};
use crate::plan::{Action, GRAPHQL, OutputFrom, UnitPlan, UntilPlan, WebhookAction};
use crate::template::{NEXT, next_url};

/// Returns the answer to a request of a webhook unit as the value of `response` or `poll`. A body that is not JSON is a
/// string.
pub fn response_value(status: u16, headers: BTreeMap<String, String>, body: Json) -> Json {
    json!({"status": status, "headers": headers, "body": body})
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerFailure {
    #[serde(default)]
    pub message: String,
    /// The status that the answer stands for, from 400 to 599.
    pub status: Option<u16>,
    /// A code as in the `reason` of a callback.
    pub code: Option<String>,
    /// The wait in seconds before the next request.
    pub retry_after: Option<u64>,
}

/// The meaning of the answer to a question of `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollState {
    Ready,
    /// `ready` is false.
    Pending,
    /// The value is the reason.
    Failed(String),
}

impl<'a> UnitContext<'a> {
    fn unit(self) -> RenderResult<&'a UnitPlan> {
        self.plan.unit(self.at).ok_or(RenderError::NoUnit(self.at))
    }

    fn webhook(self) -> RenderResult<&'a WebhookAction> {
        let Action::Webhook(webhook) = &self.unit()?.action else { return Err(RenderError::NoUnit(self.at)) };
        Ok(webhook)
    }

    fn until(self) -> RenderResult<&'a UntilPlan> {
        self.webhook()?.until.as_ref().ok_or(RenderError::NoUnit(self.at))
    }

    fn context(self, unit: &'a UnitPlan, answers: Answers<'a>) -> RenderContext<'a> {
        RenderContext { answers: Some((answers, unit.inputs.as_slice())), ..RenderContext::of_unit(self, unit) }
    }

    /// Returns the declared outputs.
    ///
    /// # Errors
    /// Returns [`RenderError::NoOutput`] for the first missing output, in the order of names, or another error for an
    /// output that is too large or too costly.
    pub fn outputs(self, answers: Answers<'_>) -> RenderResult<BTreeMap<String, RenderValue>> {
        let unit = self.unit()?;
        outputs_from(unit, |expression, place| self.context(unit, answers).expression(expression, place))
    }

    /// Returns the outputs that follow from the answers. The others cannot be evaluated, such as one that needs `poll`.
    ///
    /// # Errors
    /// Returns [`RenderError::NoUnit`] if the plan does not contain the unit.
    pub fn known_outputs(self, answers: Answers<'_>) -> RenderResult<BTreeMap<String, RenderValue>> {
        let mut unit = self.unit()?.clone();
        let mut outputs = BTreeMap::new();
        for (name, output) in std::mem::take(&mut unit.outputs) {
            let OutputFrom::Expression(text) = &output.from else { continue };
            let expression = evaluate::expression(text, &name)?;
            let poll = ReferenceSource::Root(RootVariable::Poll);
            let is_open = answers.poll.is_none() && expression.references.iter().any(|found| found.source == poll);
            unit.outputs = BTreeMap::from([(name, output)]);
            let made = outputs_from(&unit, |text, place| self.context(&unit, answers).expression(text, place));
            // A later answer can have the value of an optional output.
            let is_known = |value: &RenderValue| !is_open || *value != RenderValue::Json(Json::Null);
            outputs.extend(made.unwrap_or_default().into_iter().filter(|(_, value)| is_known(value)));
        }
        Ok(outputs)
    }

    /// Returns the question of `until`, and its URL for people, without values of the response.
    ///
    /// # Errors
    /// Returns an error if a value of the URL is missing, or its host is outside of the declared domain.
    pub fn question(self, response: &Json) -> RenderResult<(RenderedQuestion, String)> {
        let (webhook, until) = (self.webhook()?, self.until()?);
        let origin = webhook.connection.as_ref().map(|connection| connection.origin.as_str());
        let origin = origin.filter(|_| until.within.is_none());
        let context = self.context(self.unit()?, Answers { response, poll: None });
        let context = RenderContext { nulls: NullPolicy::Omitted, ..context };
        let url = url::of_answer(context, origin, (&until.url, &webhook.url))?;
        until.within.as_ref().map_or(Ok(()), |domain| url::check_within(&url, domain))?;
        let body = until.body.as_ref().map(|body| context.tree(body, "body")).transpose()?;
        Ok((RenderedQuestion { url, body: body.flatten() }, url::shown(context, origin, &until.url)?))
    }

    /// Returns the question before a request that is repeated, if there is one.
    ///
    /// # Errors
    /// Returns an error if a value of the URL is missing.
    pub fn repeat_question(self, open: &OpenSealed<'_>) -> RenderResult<Option<RenderedRequest>> {
        let (unit, webhook) = (self.unit()?, self.webhook()?);
        let Some(template) = webhook.repeat.as_ref().and_then(|repeat| repeat.url.as_ref()) else { return Ok(None) };
        let origin = webhook.connection.as_ref().map(|connection| connection.origin.as_str());
        let context = RenderContext::of_unit(self, unit);
        let lenience = MissingPolicy::LeaveOut;
        let context = RenderContext { nulls: NullPolicy::Omitted, lenience, open: Some(open), ..context };
        let url = url::render(context, origin, template)?;
        let headers = headers(context, webhook)?;
        let method = "GET".to_owned();
        Ok(Some(RenderedRequest { method, url, shown: None, line_feed: None, headers, body: None, describe: None }))
    }

    /// Returns true if the request of the unit is sent again after these answers.
    ///
    /// # Errors
    /// Returns an error if `while` cannot be evaluated with the answers.
    pub fn is_repeated(self, answers: Answers<'_>) -> RenderResult<bool> {
        match &self.webhook()?.repeat {
            Some(repeat) => self.condition(&repeat.condition, "`while`", answers),
            None => Ok(false),
        }
    }

    /// Returns the failure that `failed` of the webhook finds in an answer. `None` without one.
    ///
    /// # Errors
    /// Returns an error if the expression cannot be evaluated with the answer, or gives a value of another form.
    pub fn failure(self, response: &Json) -> RenderResult<Option<AnswerFailure>> {
        let Some(failed) = &self.webhook()?.failed else { return Ok(None) };
        let of_message =
            |message: &str| Some(AnswerFailure { message: message.to_owned(), ..AnswerFailure::default() });
        let found = match failed.as_str() {
            GRAPHQL => graphql_error(response)?,
            text => self.value(text, "`failed`", Answers { response, poll: None })?,
        };
        Ok(match found {
            Json::String(message) if !message.is_empty() => of_message(&message),
            Json::Bool(true) => of_message("`failed` is true"),
            Json::String(_) | Json::Bool(false) | Json::Null => None,
            Json::Object(fields) if fields.is_empty() => None,
            Json::Object(fields) => {
                let wanted = "an object with `message`, `status` (400 to 599), `code` and `retryAfter` (seconds)";
                let failure: Option<AnswerFailure> = serde_json::from_value(fields.into()).ok();
                let is_status =
                    |failure: &AnswerFailure| failure.status.is_none_or(|status| (400..600).contains(&status));
                Some(failure.filter(is_status).ok_or_else(|| mistyped("`failed`", wanted, "another one"))?)
            }
            other => return Err(mistyped("`failed`", "a text, true or false, or an object", json_type(&other))),
        })
    }

    /// Returns the URL of the page after an answer of `url`, by `next` of the webhook. `None` after the last one.
    ///
    /// # Errors
    /// Returns an error if `next` cannot be evaluated with the answer, or gives no URL and no parameters.
    pub fn next_page(self, url: &str, response: &Json) -> RenderResult<Option<String>> {
        let Some(next) = &self.webhook()?.next else { return Ok(None) };
        let context = self.context(self.unit()?, Answers { response, poll: None });
        let context = RenderContext { is_strict: true, lenience: MissingPolicy::LeaveOut, ..context };
        let mut made = context.tree(next, "`next`")?.unwrap_or_default();
        if let (Some(declared), Json::Object(parameters)) = (next.as_object(), &mut made) {
            for name in declared.keys() {
                parameters.entry(name.clone()).or_insert(Json::Null);
            }
        }
        next_url(url, made).map_err(|got| mistyped("`next`", NEXT, got))
    }

    /// Returns the state that the answer to the question reports.
    ///
    /// # Errors
    /// Returns an error if an expression cannot be evaluated with the answer. The state is unknown then.
    pub fn state(self, answers: Answers<'_>) -> RenderResult<PollState> {
        let until = self.until()?;
        if let Some(failed) = &until.failed {
            match self.value(failed, "`failed`", answers)? {
                Json::String(reason) if !reason.is_empty() => return Ok(PollState::Failed(reason)),
                Json::Bool(true) => return Ok(PollState::Failed("`failed` is true".to_owned())),
                Json::String(_) | Json::Bool(false) | Json::Null => {}
                other => return Err(mistyped("`failed`", "a text, or true or false", json_type(&other))),
            }
        }
        let Some(ready) = &until.ready else { return Ok(PollState::Pending) };
        Ok(if self.condition(ready, "`ready`", answers)? { PollState::Ready } else { PollState::Pending })
    }

    /// Returns true if an answer shows the thing: by `found` of `describe`, or by `absent` of a verification, which is true
    /// for its opposite.
    ///
    /// # Errors
    /// Returns an error if the condition is missing, or if it cannot be evaluated with the answer.
    pub fn is_shown(self, response: &Json) -> RenderResult<bool> {
        let (webhook, answers) = (self.webhook()?, Answers { response, poll: None });
        match (webhook.describe.as_ref().and_then(|describe| describe.found.as_ref()), &webhook.absent) {
            (Some(found), _) => self.condition(found, "`found`", answers),
            (None, Some(absent)) => Ok(!self.condition(absent, "`absent`", answers)?),
            (None, None) => Err(RenderError::NoUnit(self.at)),
        }
    }

    fn condition(self, text: &str, place: &str, answers: Answers<'_>) -> RenderResult<bool> {
        match self.value(text, place, answers)? {
            Json::Bool(holds) => Ok(holds),
            other => Err(mistyped(place, "true or false", json_type(&other))),
        }
    }

    fn value(self, text: &str, place: &str, answers: Answers<'_>) -> RenderResult<Json> {
        let unit = self.unit()?;
        let expression = evaluate::expression(text, place)?;
        let context = RenderContext { is_strict: true, ..self.context(unit, answers) };
        Ok(match context.expression(&expression, place)? {
            LookupResult::Value(RenderValue::Json(json)) => json,
            LookupResult::Nothing | LookupResult::Placeholder(_) => Json::Null,
            LookupResult::Value(_) => return Err(mistyped(place, "a text, or true or false", "bytes or a Secret")),
        })
    }
}

/// Returns the text of the first error of an answer of GraphQL, or `null`. A success has `data` (GraphQL, 7.1).
fn graphql_error(response: &Json) -> RenderResult<Json> {
    let body = &response["body"];
    if !body.is_object() {
        let what = format!("the answer is {}, not a mapping with `data`", json_type(body));
        return Err(RenderError::Misread { place: "`failed`".to_owned(), what });
    }
    let error = match &body["errors"] {
        Json::Array(errors) => errors.first(),
        errors if [json!(null), json!(false), json!(""), json!({})].contains(errors) => None,
        errors => Some(errors),
    };
    Ok(match error {
        Some(error) => {
            let text = error["message"].as_str().or(error.as_str()).filter(|text| !text.trim().is_empty());
            text.unwrap_or("an error without a message").into()
        }
        None if body["data"].is_null() && matches!(response["status"].as_u64(), Some(200..=299)) => {
            "the answer has no `data`".into()
        }
        None => Json::Null,
    })
}

/// Returns true if an expression over the answers of a unit reads more than the answers and the target.
pub fn reads_values(unit: &UnitPlan) -> bool {
    let Action::Webhook(webhook) = &unit.action else { return false };
    let outputs = unit.outputs.values().filter_map(|output| match &output.from {
        OutputFrom::Expression(text) => Some(text),
        OutputFrom::File(_) | OutputFrom::Secret { .. } => None,
    });
    let until = webhook.until.iter().flat_map(|until| until.ready.iter().chain(&until.failed));
    let found = webhook.describe.iter().filter_map(|describe| describe.found.as_ref());
    let mut texts = outputs.chain(found).chain(&webhook.absent).chain(&webhook.failed).chain(until);
    let is_known = |source: &ReferenceSource| {
        use ReferenceSource::{OwnResource, Root, Target};
        matches!(source, Root(_) | Target(_) | OwnResource(_))
    };
    let reads_more = |text: &String| {
        let parsed = evaluate::expression(text, "");
        parsed.is_ok_and(|expression| !expression.references.iter().all(|reference| is_known(&reference.source)))
    };
    // The URL of a question reads values as often as that of the request.
    webhook.until.is_some() || webhook.repeat.is_some() || webhook.next.is_some() || texts.any(reads_more)
}
