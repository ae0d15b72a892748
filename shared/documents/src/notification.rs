//! Decides which subscriptions report a change of a target, and renders their requests.
//!
//! Values of a target and of a failure are hostile: labels come from events of third parties, and a log from a script. In
//! a path they are percent-encoded, and in a message the characters of the markup are replaced.

use std::collections::BTreeMap;

use ebb_engine::TargetChange;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::cel::convert::{self, CelOutput};
use crate::template::{self, ParsedText};
use crate::{At, EvaluationError, Expression, ReceiverDoc, Scope, TargetFacts, canonical, cel, escaping};

/// Maximum characters of the description of a commit status.
const MAX_DESCRIPTION: usize = 140;
const REPOSITORY: &str = "OWNER/NAME";
/// The characters of a commit in a message. GitHub makes a link of them.
const SHOWN_COMMIT: usize = 12;
/// Maximum bytes of the name of a target in the task of its deployments.
const MAX_TASK_NAME: usize = 100;
/// Maximum URLs in a message, and bytes of one.
const MAX_URLS: usize = 10;
const MAX_URL: usize = 2_000;
/// Maximum bytes of a rendered request.
const MAX_REQUEST: usize = 256 << 10;

/// A checked subscription. [`compile::subscription`](crate::compile::subscription) creates it.
#[derive(Clone, Debug, PartialEq)]
pub struct NotificationRule {
    pub name: String,
    pub on: Vec<TargetChange>,
    pub when: Option<Expression>,
    pub to: ReceiverDoc,
}

/// The change of a target that is reported. A missing text is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NotificationFacts {
    /// The id, which repetitions have, too.
    pub id: String,
    /// The phase that the target has entered, or another change.
    pub phase: TargetChange,
    /// RFC 3339.
    pub time: String,
    /// The last run.
    pub run: String,
    /// The unit that failed first.
    pub unit: String,
    /// The reason of its failure.
    pub reason: String,
    /// The end of its log.
    pub log: String,
    /// `deleted`, `expired` or `forced`, if the target is stopping or gone.
    pub ended: String,
    /// The URL of the page of the target in the console.
    pub link: String,
    /// The name of the event that has ended.
    pub event: String,
    /// The owner of the target: `source NAME`, `token NAME`, a role, or `ISSUER SUBJECT`.
    pub owner: String,
    /// The first public output with `show: link`, if it is a URL that a browser can open.
    pub url: String,
    /// The values of a target that is ready: variables, public outputs by resource, and values by workload. None is
    /// sensitive, and none is there if the target has changed meanwhile.
    pub env: BTreeMap<String, Json>,
    pub outputs: BTreeMap<String, BTreeMap<String, Json>>,
    pub workloads: BTreeMap<String, Json>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NotificationRequest {
    /// A CloudEvent with this data.
    Standard { data: Json },
    /// A message for an incoming webhook.
    Slack { body: Json },
    /// A request at the origin of the connection.
    Connection { method: String, path: String, body: Json },
    /// A deployment at the origin of the connection. `path` creates one with `body`, and with `query` it lists those of the
    /// target for all commits. Without one of the commit, an ended one is not created. Each has a list of statuses, which gets
    /// `status`.
    Deployment { path: String, query: String, body: Json, status: Json, is_end: bool },
    /// A comment at the origin of the connection. `path` lists and creates comments, `edit` and an id changes one. The
    /// comment about the same `subject` is changed.
    Comment { path: String, edit: String, subject: String, text: String },
}

impl NotificationRule {
    /// Returns true if the subscription reports a change of the target. A condition that reads a missing key does not hold.
    pub fn reports(&self, change: impl Into<TargetChange>, target: &TargetFacts) -> bool {
        let is_listed = self.on.contains(&change.into());
        let Some(when) = &self.when else { return is_listed };
        is_listed && matches!(run(when, &variables(target, None)), Ok(CelOutput::Json(Json::Bool(true))))
    }

    /// Returns the request of a notification. A value that is missing is empty.
    ///
    /// # Errors
    /// Returns the reason why the notification cannot be sent: a text that the receiver requires is empty or has another
    /// form. The same target and facts always have the same result, so a repetition is useless. The text contains no values.
    pub fn render(&self, target: &TargetFacts, facts: &NotificationFacts) -> Result<NotificationRequest, String> {
        let text = |text: &str| value(text, target, facts).map(template::joinable);
        let required = |key: &str, template: &str, form: &str| -> Result<String, String> {
            let text = text(template)?;
            match text.is_empty() {
                true => Err(format!(
                    "`{key}` is empty, because `{template}` has no value for this target; expected {form}. Give the target \
                     the label, or exclude the target with `when`"
                )),
                false => Ok(text),
            }
        };
        let written = |given: &Option<At<String>>, default: &dyn Fn() -> String| match given {
            Some(given) => text(&given.value),
            None => Ok(default()),
        };
        // A commit status. Its name has another key at each receiver.
        let status = |key: &str, states: [&'static str; 4], context: &Option<At<String>>| -> Result<Json, String> {
            let state = state_of(facts.phase, states);
            let context = written(context, &|| self.context(target, facts))?;
            Ok(json!({"state": state, key: context, "description": description(facts), "target_url": page(facts)}))
        };
        let request = match &self.to {
            ReceiverDoc::Standard(_) => NotificationRequest::Standard { data: data(target, facts) },
            ReceiverDoc::Slack(_) => NotificationRequest::Slack { body: json!({"text": slack_text(target, facts)}) },
            ReceiverDoc::Webhook(post) => {
                let body = match &post.body {
                    Some(body) => {
                        let value = |text: &str| value(text, target, facts).map(Some);
                        escaping::with_values(&body.value.to_json(), &value)?.unwrap_or_default()
                    }
                    None => data(target, facts),
                };
                let path = path(&post.path.value, target, facts)?;
                NotificationRequest::Connection { method: post.method.as_str().to_owned(), path, body }
            }
            ReceiverDoc::Github(github) => {
                let (owner, name) = repository_of(&required("repository", &github.repository.value, REPOSITORY)?)?;
                let sha = commit(required("sha", &github.sha.value, "a commit")?)?;
                let body = status("context", ["pending", "success", "failure", "error"], &github.context)?;
                let path = format!("/repos/{owner}/{name}/statuses/{sha}");
                NotificationRequest::Connection { method: "POST".to_owned(), path, body }
            }
            ReceiverDoc::Gitlab(gitlab) => {
                let project = cel::url_encoded(&required("project", &gitlab.project.value, "a project")?);
                let sha = commit(required("sha", &gitlab.sha.value, "a commit")?)?;
                let body = status("name", ["running", "success", "failed", "failed"], &gitlab.context)?;
                let path = format!("/api/v4/projects/{project}/statuses/{sha}");
                NotificationRequest::Connection { method: "POST".to_owned(), path, body }
            }
            ReceiverDoc::Deployment(deployment) => {
                let (owner, name) = repository_of(&required("repository", &deployment.repository.value, REPOSITORY)?)?;
                let sha = commit(required("sha", &deployment.sha.value, "a commit")?)?;
                let environment = written(&deployment.environment, &|| target.name.clone())?;
                let is_end = matches!(facts.phase, TargetChange::Stopping | TargetChange::Gone);
                let begun = if is_end { "inactive" } else { "in_progress" };
                // GitHub would also end the deployments of other targets in the environment.
                let mut status = json!({
                    "state": state_of(facts.phase, [begun, "success", "failure", "error"]),
                    "description": description(facts), "log_url": facts.link, "auto_inactive": false,
                });
                if let (TargetChange::Ready, Some((_, url))) = (facts.phase, urls(facts).into_iter().next()) {
                    status["environment_url"] = url.into();
                }
                let task = deployment_task(target);
                NotificationRequest::Deployment {
                    path: format!("/repos/{owner}/{name}/deployments"),
                    query: format!("task={}", cel::url_encoded(&task)),
                    // A check of the commit may itself wait for this deployment.
                    body: json!({
                        "ref": sha, "environment": environment, "task": task, "auto_merge": false,
                        "required_contexts": [], "production_environment": false,
                        // The default one belongs to the target alone.
                        "transient_environment": deployment.environment.is_none(),
                        "description": format!("{}/{}", target.kind, target.name),
                    }),
                    status,
                    is_end,
                }
            }
            ReceiverDoc::Comment(comment) => {
                let (owner, name) = repository_of(&required("repository", &comment.repository.value, REPOSITORY)?)?;
                let number = required("number", &comment.number.value, "the number of a pull request")?;
                if !number.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err("`number` is not a number".to_owned());
                }
                let text = written(&comment.body, &|| comment_text(target, facts))?;
                NotificationRequest::Comment {
                    path: format!("/repos/{owner}/{name}/issues/{number}/comments"),
                    edit: format!("/repos/{owner}/{name}/issues/comments"),
                    subject: format!("{}:{}/{}", self.name, target.kind, target.name),
                    text,
                }
            }
        };
        match serde_json::to_vec(&request) {
            Ok(bytes) if bytes.len() <= MAX_REQUEST => Ok(request),
            _ => Err(format!("the request has more than {MAX_REQUEST} bytes")),
        }
    }
}

impl NotificationRule {
    /// Returns the name of a commit status. It differs for each target, because the targets of several sources can have
    /// one commit.
    fn context(&self, target: &TargetFacts, facts: &NotificationFacts) -> String {
        let source = facts.owner.strip_prefix("source ").unwrap_or(&self.name);
        format!("ebb/{source}/{}", target.name)
    }
}

/// Returns the state of a target that changes, is ready, has failed or is stuck, by its names at the receiver.
fn state_of(phase: TargetChange, [changes, ready, failed, stuck]: [&'static str; 4]) -> &'static str {
    match phase {
        TargetChange::Ready => ready,
        TargetChange::Failed => failed,
        TargetChange::Stuck => stuck,
        _ => changes,
    }
}

/// Returns the task of the deployments of a target, which finds them in every environment. The preset `github-deployments`
/// ignores them.
fn deployment_task(target: &TargetFacts) -> String {
    let name = format!("{}/{}", target.kind, target.name);
    format!("ebb:{}", if name.len() <= MAX_TASK_NAME { name } else { canonical::digest(&name) })
}

/// Returns the URL behind a commit status.
fn page(facts: &NotificationFacts) -> &str {
    if facts.url.is_empty() { &facts.link } else { &facts.url }
}

/// Returns a text as the URL of a web page. One with a user or a password is a credential.
pub fn web_url(text: &str) -> Option<String> {
    let url = url::Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let is_shown = url.username().is_empty() && url.password().is_none() && text.len() <= MAX_URL;
    is_shown.then(|| url.into())
}

/// Returns the names and URLs among the values of a target, at most ten. The one with `show: link` is the first.
fn urls(facts: &NotificationFacts) -> Vec<(String, String)> {
    let env = facts.env.iter().map(|(name, value)| (name.clone(), value));
    let outputs = facts.outputs.iter().flat_map(|(resource, outputs)| {
        outputs.iter().map(move |(output, value)| (format!("{resource}.{output}"), value))
    });
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, value) in env.chain(outputs) {
        let Some(url) = value.as_str().and_then(web_url) else { continue };
        if found.iter().all(|(_, known)| *known != url) {
            found.push((name, url));
        }
    }
    found.sort_by_key(|(_, url)| *url != facts.url);
    found.truncate(MAX_URLS);
    found
}

fn commit(sha: String) -> Result<String, String> {
    if sha.bytes().all(|byte| byte.is_ascii_hexdigit()) { Ok(sha) } else { Err("`sha` is not a commit".to_owned()) }
}

fn data(target: &TargetFacts, facts: &NotificationFacts) -> Json {
    let mut data = json!(facts);
    if let Some(data) = data.as_object_mut() {
        data.remove("id");
        data.retain(|_, value| *value != json!("") && *value != json!({}));
        data.insert("target".to_owned(), json!(target));
    }
    data
}

fn variables(target: &TargetFacts, facts: Option<&NotificationFacts>) -> BTreeMap<&'static str, Json> {
    let mut shown = json!(target);
    if let Some(shown) = shown.as_object_mut() {
        for (key, missing) in [("namespace", json!("")), ("cluster", json!("")), ("labels", json!({}))] {
            shown.entry(key).or_insert(missing);
        }
    }
    let mut variables = BTreeMap::from([("target", shown)]);
    variables.extend(facts.map(|facts| ("notification", json!(facts))));
    variables
}

fn run(expression: &Expression, variables: &BTreeMap<&'static str, Json>) -> Result<CelOutput, EvaluationError> {
    let variables = variables.iter().map(|(name, value)| (*name, convert::from_json(value))).collect();
    cel::evaluate(expression, &variables)
}

/// Returns the value of a template. An expression alone keeps its type, and is empty without a value.
fn value(template: &str, target: &TargetFacts, facts: &NotificationFacts) -> Result<Json, String> {
    let parsed = ParsedText::new(template, Scope::Notification)?;
    if let Some(expression) = parsed.whole() {
        return Ok(match evaluate(expression, target, facts)? {
            Json::Null => Json::from(""),
            value => value,
        });
    }
    parsed.joined(|expression| evaluate(expression, target, facts).map(template::joinable)).map(Json::from)
}

/// Returns a path. A value cannot add a segment or a parameter.
fn path(template: &str, target: &TargetFacts, facts: &NotificationFacts) -> Result<String, String> {
    let path = ParsedText::new(template, Scope::Notification)?.joined(|expression| {
        let value = template::joinable(evaluate(expression, target, facts)?);
        match value.is_empty() {
            true => Err(format!("`${{{}}}` of the path has no value", expression.text)),
            false => Ok(cel::url_encoded(&value)),
        }
    })?;
    if template::is_normal_path(&path) { Ok(path) } else { Err("the values change the path".to_owned()) }
}

fn evaluate(expression: &Expression, target: &TargetFacts, facts: &NotificationFacts) -> Result<Json, String> {
    let failed = |problem: String| format!("`${{{}}}`: {problem}", expression.text.trim());
    match run(expression, &variables(target, Some(facts))) {
        Ok(CelOutput::Json(value)) => Ok(value),
        Ok(CelOutput::Nothing) | Err(EvaluationError::MissingValue(_)) => Ok(Json::Null),
        Ok(CelOutput::Bytes(_)) => Err(failed("expected text, got bytes that are not UTF-8".to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Returns the owner and the name of a repository, percent-encoded.
fn repository_of(text: &str) -> Result<(String, String), String> {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('/');
    match text.split_once('/') {
        Some((owner, name)) if is_part(owner) && is_part(name) => Ok((cel::url_encoded(owner), cel::url_encoded(name))),
        _ => Err(format!("`repository` is not {REPOSITORY}")),
    }
}

/// Returns the cause of a failure or end in words.
fn cause(facts: &NotificationFacts) -> String {
    match (facts.unit.as_str(), facts.ended.as_str()) {
        ("", "") => String::new(),
        ("", "deleted") => "it was deleted".to_owned(),
        ("", "expired") => "its ttl has ended".to_owned(),
        ("", _) => "an operator has ended its teardown".to_owned(),
        (unit, _) => format!("{unit}: {}", facts.reason),
    }
}

/// Returns the change as the verb and the object of a sentence about the target.
fn words(facts: &NotificationFacts) -> (&'static str, String) {
    let (verb, words) = facts.phase.words();
    (verb, format!("{words} {}", facts.event).trim_end().to_owned())
}

fn description(facts: &NotificationFacts) -> String {
    let cause = cause(facts);
    let text =
        if cause.is_empty() { facts.phase.name().to_owned() } else { format!("{}: {cause}", facts.phase.name()) };
    match text.char_indices().nth(MAX_DESCRIPTION) {
        None => text,
        Some(_) => text.chars().take(MAX_DESCRIPTION - 1).chain(['…']).collect(),
    }
}

/// Returns the beginning of the commit of a target, by the label that the presets of sources set.
fn commit_of(target: &TargetFacts) -> String {
    let sha = target.labels.get("sha").filter(|sha| !sha.is_empty()).and_then(|sha| commit(sha.clone()).ok());
    sha.map(|sha| format!(" (commit {})", sha.get(..SHOWN_COMMIT).unwrap_or(&sha))).unwrap_or_default()
}

/// Returns the message for Slack. `&`, `<` and `>` would begin a link or a mention.
fn slack_text(target: &TargetFacts, facts: &NotificationFacts) -> String {
    let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace("```", "'''");
    let (verb, phase) = words(facts);
    let mut text = format!("*{}/{}* {verb} {phase}{}", safe(&target.kind), safe(&target.name), commit_of(target));
    let cause = cause(facts);
    if !cause.is_empty() {
        text.push_str(&format!("\n{}", safe(&cause)));
    }
    if !facts.log.is_empty() {
        text.push_str(&format!("\n```{}```", safe(&facts.log)));
    }
    for (name, url) in urls(facts) {
        text.push_str(&format!("\n{}: {}", safe(&name), safe(&url)));
    }
    text + &format!("\n{}", safe(&facts.link))
}

/// Returns the comment. An indented text is shown as it is.
fn comment_text(target: &TargetFacts, facts: &NotificationFacts) -> String {
    let quoted = |text: &str| text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n");
    let (verb, phase) = words(facts);
    let (kind, name, commit) = (&target.kind, &target.name, commit_of(target));
    let mut text = format!("`{kind}/{name}` {verb} **{phase}**{commit}. [Details]({})", facts.link);
    // Between angle brackets, a URL is a link as it is.
    for (at, (name, url)) in urls(facts).into_iter().enumerate() {
        text.push_str(&format!("{}- `{name}`: <{url}>", if at == 0 { "\n\n" } else { "\n" }));
    }
    let cause = cause(facts);
    for part in [cause.as_str(), facts.log.as_str()].into_iter().filter(|part| !part.is_empty()) {
        text.push_str(&format!("\n\n{}", quoted(part)));
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use ebb_engine::TargetPhase;

    use super::*;
    use crate::tests::rows;
    use crate::{DocumentVars, NoFiles, compile, load};

    fn rule(to: &str, rest: &str) -> NotificationRule {
        let head = "apiVersion: ebb.dev/v1\nkind: Subscription\nname: s\non: [ready, failed]\n";
        let text = format!("{head}{rest}to: {to}\n");
        compile::subscription(&load::subscription("s.yaml", &text, &NoFiles, &DocumentVars::none()).unwrap()).unwrap()
    }

    fn target(labels: BTreeMap<String, String>) -> TargetFacts {
        TargetFacts { kind: "sandbox".into(), name: "pr-1".into(), labels, ..TargetFacts::default() }
    }

    pub(crate) fn failed(log: &str) -> NotificationFacts {
        NotificationFacts {
            id: "i".into(),
            phase: TargetChange::Failed,
            unit: "db/create".into(),
            reason: "exit code 1".into(),
            log: log.into(),
            link: "https://ebb.example/console/targets/sandbox/pr-1".into(),
            owner: "source previews".into(),
            ..NotificationFacts::default()
        }
    }

    #[test]
    fn a_condition_selects_targets() {
        let rule = rule("{slack: {secret: S}}", "when: ${target.labels.team == 'payments'}\n");
        type Row = (BTreeMap<String, String>, TargetPhase, bool);
        for (labels, phase, expected) in rows::<Row>("a_condition_selects_targets") {
            assert_eq!(rule.reports(phase, &target(labels)), expected, "{phase:?}");
        }
    }

    #[test]
    fn values_of_a_failed_target() {
        type Row = (String, BTreeMap<String, String>, String, Json);
        for (to, labels, log, expected) in rows::<Row>("values_of_a_failed_target") {
            let made = rule(&to, "").render(&target(labels), &failed(&log));
            assert_eq!(json!(made), expected, "{to}");
        }
    }

    #[test]
    fn values_of_a_ready_target() {
        for (to, given, expected) in rows::<(String, Json, Json)>("values_of_a_ready_target") {
            let value = |name: &str| given[name].clone();
            let ready = NotificationFacts {
                phase: TargetChange::Ready,
                owner: value("owner").as_str().unwrap_or("source previews").to_owned(),
                url: value("url").as_str().unwrap_or_default().to_owned(),
                env: serde_json::from_value(value("env")).unwrap_or_default(),
                outputs: serde_json::from_value(value("outputs")).unwrap_or_default(),
                workloads: serde_json::from_value(value("workloads")).unwrap_or_default(),
                ..NotificationFacts { unit: String::new(), reason: String::new(), ..failed("") }
            };
            assert_eq!(json!(rule(&to, "").render(&target(BTreeMap::new()), &ready)), expected, "{to}");
        }
    }
}
