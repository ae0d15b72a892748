//! Tools about targets: lists, one target, its diagnosis, its logs and its retry.

use ebb_protocol::lifecycle::USUAL_KINDS;
use ebb_protocol::words::{self, commands};
use ebb_protocol::{
    HistoryDetail, HistoryPage, OrphanList, RetryResponse, RetryTarget, RunDetail, TargetDetail, TargetDiagnosis,
    TargetInfo, TargetPage, TargetPhase, TargetSelector, TargetWait, UnitDetail, UnitState,
};
use http::Method;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::mcp::arguments::tool_arguments;
use crate::mcp::{Answer, ApiCalls, MAX_ANSWER, ToolError, invalid, pick, yaml};

/// Maximum pages of a list, of 100 targets each, that one call reads.
const MAX_PAGES: usize = 10;
/// Maximum units that an error names.
pub(crate) const MAX_NAMED: usize = 20;

/// Returns the kind of a target that names none.
pub(crate) fn sandbox() -> String {
    "sandbox".to_owned()
}

pub(crate) fn first() -> usize {
    1
}

pub(crate) fn no_document(entry: &str) -> ToolError {
    ToolError::Arguments(format!("the entry {entry} has no stored document"))
}

/// Defines the arguments of a tool about one target: its name, its kind and others.
macro_rules! target_arguments {
    ($(#[$attribute:meta])* $tool:ident: $($more:tt)*) => {
        tool_arguments! { $(#[$attribute])* $tool:
            /// The name of the target.
            name: String,
            /// The kind of the target.
            #[serde(default = "sandbox")]
            kind: String,
            $($more)*
        }
    };
}

pub(crate) use target_arguments;

target_arguments! {
    /// The name of a target.
    TargetArguments:
}

impl TargetArguments {
    /// Returns the path of the target with a further segment, or without one.
    fn path<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["targets", self.kind.as_str(), self.name.as_str()][..], more].concat()
    }

    /// Returns the target as the arguments of a command.
    fn arguments(&self) -> String {
        commands::target_arguments(&self.kind, &self.name)
    }

    pub(crate) fn call(&self, tool: &str) -> String {
        let kind = (self.kind != "sandbox").then_some(&self.kind);
        format!("{tool} {}", pick(&json!({"name": self.name, "kind": kind}), &["name", "kind"]))
    }
}

fn row(target: &TargetInfo) -> String {
    let shown_first = [("target".to_owned(), json!(format!("{}/{}", target.kind, target.name)))];
    let Value::Object(fields) = json!(target) else { return String::new() };
    let hidden = ["kind", "name", "uid", "generation", "created", "waits"];
    let others = fields.into_iter().filter(|(key, _)| !hidden.contains(&key.as_str()));
    let waiting = TargetWait::of_others(&target.waits).map(|wait| {
        let since = wait.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        format!("{}{since}", words::waiter(wait))
    });
    let waiting: Vec<String> = waiting.collect();
    let waiting = (!waiting.is_empty()).then(|| ("waiting".to_owned(), json!(waiting)));
    Value::Object(shown_first.into_iter().chain(others).chain(waiting).collect::<Map<_, _>>()).to_string()
}

/// A place in a list: after the page with this token, and after further targets that fit.
#[derive(Clone, Debug, Default, Serialize)]
struct ListPlace {
    #[serde(rename = "after")]
    token: Option<String>,
    skip: usize,
}

#[derive(Default)]
struct TargetRows {
    rows: Vec<String>,
    places: Vec<ListPlace>,
    /// The place after the last row, if more follows.
    next: Option<ListPlace>,
    read: usize,
    /// Outages of clusters, each as a line.
    outages: Vec<String>,
}

impl TargetRows {
    /// Reads pages of a list from `place` on, until their rows fill an answer. A row is a target for which `fits` is true.
    async fn read(
        api: &ApiCalls,
        query: &[(&str, Option<&str>)],
        mut place: ListPlace,
        fits: fn(&TargetInfo) -> bool,
    ) -> Result<Self, ToolError> {
        let mut found = Self::default();
        for _ in 0..MAX_PAGES {
            let query = [query, &[("nextToken", place.token.as_deref())]].concat();
            let page: TargetPage = api.get(&["targets"], &query).await?;
            found.read += page.targets.len();
            found.outages = page.outages.iter().map(|outage| format!("outage: {}", json!(outage))).collect();
            let fitting = page.targets.iter().filter(|target| fits(target)).enumerate().skip(place.skip);
            for (skip, target) in fitting {
                found.rows.push(row(target));
                found.places.push(ListPlace { token: place.token.clone(), skip });
            }
            place = ListPlace { token: page.next_token, skip: 0 };
            if place.token.is_none() || found.rows.iter().map(String::len).sum::<usize>() > MAX_ANSWER {
                break;
            }
        }
        found.next = place.token.is_some().then_some(place);
        Ok(found)
    }

    /// Returns an answer with outages and rows, which a call of `tool` continues.
    fn answer(self, tool: &'static str, title: String, next: &str) -> Answer {
        let Self { rows, places, next: place, outages, .. } = self;
        let (is_incomplete, before) = (place.is_some(), outages.len());
        let rest = move |shown: usize| {
            let place = places.get(shown.saturating_sub(before)).or(place.as_ref());
            let arguments = pick(&json!(place), &["after", "skip"]);
            format!("More follows: call {tool} with the same arguments and {arguments}.")
        };
        Answer::new(title, next).with(outages.into_iter().chain(rows), rest).with_more(is_incomplete)
    }
}

tool_arguments! { #[schemars(inline)] ListTargets:
    /// `starting`, `ready`, `updating`, `failed`, `stopping`, `stuck` or `gone`. Without it, all but gone targets.
    phase: Option<String>,
    /// Labels as KEY=VALUE, with commas between several.
    label: Option<String>,
    /// The caller that created the targets. `me` is the caller of the tool.
    owner: Option<String>,
    /// A plugin that the targets use, as NAME or NAME@VERSION.
    plugin: Option<String>,
    /// A text in the name, UID, owner, labels, plugins or first cause.
    q: Option<String>,
    /// The kind of the targets. Without it, all kinds.
    kind: Option<String>,
    /// Continues a list: the value that the previous answer names.
    after: Option<String>,
    /// Continues a list: the number that the previous answer names.
    #[serde(default)]
    skip: usize,
}

impl ListTargets {
    /// Returns the selector of an action. `kind` is used if the filters have none.
    pub(crate) fn selector(self, kind: Option<String>) -> Result<TargetSelector, ToolError> {
        let Self { phase, label, owner, plugin, q: text, kind: own, after: next_token, .. } = self;
        let phase = phase.map(|name| {
            TargetPhase::named(&name).ok_or_else(|| ToolError::Arguments(format!("{name:?} is not a phase")))
        });
        let (phases, labels) = (phase.transpose()?.into_iter().collect(), label.into_iter().collect());
        Ok(TargetSelector { kind: own.or(kind), phases, labels, owner, plugin, text, next_token })
    }
}

pub(crate) async fn list_targets(api: &ApiCalls, arguments: ListTargets) -> Result<Answer, ToolError> {
    let ListTargets { phase, label, owner, plugin, q, kind, after: token, skip } = arguments;
    let gone = (phase.as_deref() == Some("gone")).then_some("true");
    let query = [
        ("gone", gone),
        ("phase", phase.as_deref().filter(|_| gone.is_none())),
        ("label", label.as_deref()),
        ("owner", owner.as_deref()),
        ("plugin", plugin.as_deref()),
        ("q", q.as_deref()),
        ("kind", kind.as_deref()),
    ];
    let found = TargetRows::read(api, &query, ListPlace { token, skip }, |_| true).await?;
    let unusual = kind.as_deref().filter(|kind| !USUAL_KINDS.contains(kind));
    let unusual = unusual.filter(|_| query[..6].iter().all(|(_, filter)| filter.is_none()));
    if let (0, None, Some(kind)) = (found.rows.len(), &found.next, unusual) {
        return invalid(format!("no living target has the kind {kind:?}; usual kinds: {}", USUAL_KINDS.join(", ")));
    }
    let (title, next) = match found.rows.len() {
        0 if found.next.is_some() => (
            format!("No target fits among the {} that were read.", found.read),
            "call list_targets as above, or with other filters",
        ),
        0 => (
            "No target fits.".to_owned(),
            "list_targets with other filters; \"phase\": \"gone\" lists those that ended; usual kinds are sandbox and routegroup",
        ),
        _ => ("Targets, by kind and name:".to_owned(), "why_not_ready for a target that has failed, is stuck or waits"),
    };
    // A target can wait for a cluster. `stuck_and_waiting` shows outages.
    let found = TargetRows { outages: Vec::new(), ..found };
    Ok(found.answer("list_targets", title, next))
}

target_arguments! { GetTarget:
    /// Shows this resource only, with all its units.
    resource: Option<String>,
}

/// Returns a run with the numbers of its units by state, and the units of a resource, otherwise those that are neither
/// done nor skipped.
fn shown_run(run: &RunDetail, resource: Option<&str>) -> Value {
    let is_shown = |unit: &&UnitDetail| match resource {
        Some(resource) => unit.key.split('/').next() == Some(resource),
        None => !matches!(unit.state, UnitState::Succeeded | UnitState::Skipped),
    };
    let units: Vec<Value> = run.units.iter().filter(is_shown).map(|unit| json!(unit)).collect();
    let state = words::name(&run.state);
    json!({"run": run.id, "hook": run.hook, "state": state, "unitsByState": words::unit_counts(&run.units), "units": units})
}

pub(crate) async fn get_target(api: &ApiCalls, arguments: GetTarget) -> Result<Answer, ToolError> {
    let GetTarget { name, kind, resource } = arguments;
    let resource = resource.as_deref();
    let target = TargetArguments { name, kind };
    let mut detail: TargetDetail = api.get(&target.path(&[]), &[("outputs", resource)]).await?;
    if let Some(wanted) = resource.filter(|wanted| !detail.resources.contains_key(*wanted)) {
        let names: Vec<&str> = detail.resources.keys().map(String::as_str).take(MAX_NAMED).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return invalid(format!("the target has no resource {wanted:?}; resources: {names}"));
    }
    detail.resources.retain(|name, _| resource.is_none_or(|wanted| wanted == name));
    let runs: Vec<Value> = detail.runs.iter().map(|run| shown_run(run, resource)).collect();
    let mut shown = json!(detail);
    shown["runs"] = json!(runs);
    if let Value::Object(fields) = &mut shown {
        // `what_exists` shows them.
        fields.retain(|key, _| key != "removals");
    }
    let next = match detail.info.phase {
        TargetPhase::Ready => format!(
            "done; {} shows what exists, and logs with \"unit\" what a script printed",
            target.call("what_exists")
        ),
        TargetPhase::Gone => format!("{} shows the evidence that its resources are gone", target.call("what_exists")),
        _ => target.call("why_not_ready"),
    };
    let command = commands::get(&target.kind, &target.name);
    let narrower = if resource.is_none() { "call get_target with \"resource\", or " } else { "" };
    let rest = move |_| format!("More was left out: {narrower}run `{command} -o json`.");
    let (verb, phase) = (detail.info.phase.verb(), detail.info.phase.name());
    let title = format!("{}/{} {verb} {phase}:", target.kind, target.name);
    Ok(Answer::new(title, next).with(yaml(&shown), rest))
}

pub(crate) async fn why_not_ready(api: &ApiCalls, target: TargetArguments) -> Result<Answer, ToolError> {
    let diagnosis: TargetDiagnosis = api.get(&target.path(&["why"]), &[]).await?;
    let next = match (&diagnosis.cause, diagnosis.phase) {
        (_, TargetPhase::Ready) if diagnosis.next_steps.is_empty() => "it is ready; nothing is to be done".to_owned(),
        (_, TargetPhase::Ready) => "it is ready; tell a person what `nextSteps` names".to_owned(),
        (Some(cause), _) => {
            let unit = json!({"name": target.name, "kind": target.kind, "unit": cause.unit});
            let log = if cause.log.is_empty() { String::new() } else { format!("logs {unit} has the whole log; ") };
            let retry = target.call("retry_target");
            let document = match diagnosis.phase {
                TargetPhase::Stuck => "retry_target with \"plugin\" uses another version of the undo",
                _ => "apply_document with a corrected one repairs the target",
            };
            format!("{log}remove the cause, then call {retry}; if a document is wrong, {document}")
        }
        (None, TargetPhase::Gone) => target.call("what_exists"),
        (None, _) => format!("wait, then call {} again", target.call("why_not_ready")),
    };
    let keys =
        ["target", "phase", "summary", "nextSteps", "cause", "failed", "open", "targetWaits", "notes", "decidedBy"];
    let mut shown = pick(&json!(diagnosis), &keys);
    if !diagnosis.remaining.is_empty() {
        shown["remainingResources"] = json!(format!("{}; what_exists lists them", diagnosis.remaining.len()));
    }
    let command = commands::why(&target.arguments());
    let rest = move |_| format!("More was left out: `{command}` prints all.");
    Ok(Answer::new("The diagnosis:", next).with(yaml(&shown), rest))
}

tool_arguments! { WhatExists:
    /// The name of a target. Without it, leftovers of all targets.
    name: Option<String>,
    /// The kind of the target.
    #[serde(default = "sandbox")]
    kind: String,
}

pub(crate) async fn what_exists(api: &ApiCalls, arguments: WhatExists) -> Result<Answer, ToolError> {
    let Some(name) = arguments.name else { return leftovers(api).await };
    let target = TargetArguments { name, kind: arguments.kind };
    let diagnosis: TargetDiagnosis = api.get(&target.path(&["why"]), &[]).await?;
    let shown = pick(&json!(diagnosis), &["target", "phase", "remaining", "removals"]);
    let next = match diagnosis.phase {
        TargetPhase::Stuck => target.call("why_not_ready"),
        _ => target.call("get_target"),
    };
    let command = commands::why(&target.arguments());
    let rest = move |_| format!("More was left out: `{command} -o json` prints all.");
    let title = "What exists (`remaining`, with its certainty) and what was removed (`removals`, with the evidence):";
    Ok(Answer::new(title, next).with(yaml(&shown), rest))
}

async fn leftovers(api: &ApiCalls) -> Result<Answer, ToolError> {
    let query = [("gone", Some("true")), ("unconfirmed", Some("true"))];
    let unconfirmed = TargetRows::read(api, &query, ListPlace::default(), |_| true).await?;
    let mut lines: Vec<String> = unconfirmed.rows.iter().map(|row| format!("unconfirmed removals: {row}")).collect();
    match api.get::<OrphanList>(&["orphans"], &[]).await {
        Ok(OrphanList { orphans, errors }) => {
            lines.extend(orphans.iter().map(|orphan| format!("orphan: {}", json!(orphan))));
            lines.extend(errors.iter().map(|error| format!("not listed: {}", json!(error))));
        }
        // The scope `read` does not list clusters.
        Err(ToolError::Refused(problem)) if problem.status == 403 => {
            lines.push(format!("orphans in clusters are not listed: {}", problem.detail));
        }
        Err(error) => return Err(error),
    }
    let title = match lines.is_empty() {
        true => "Nothing is left: no orphans in clusters, and no gone target without evidence.",
        false => "Leftovers: gone targets without evidence of a removal, and orphans in clusters:",
    };
    let rest = |_| "More was left out: `ebb get sandboxes --unconfirmed` and `ebb orphans` print all.".to_owned();
    let next = "what_exists with the name of a target shows its evidence; ask a person before owned orphans are deleted: \
                `ebb orphans --delete`";
    Ok(Answer::new(title, next).with(lines, rest).with_more(unconfirmed.next.is_some()))
}

tool_arguments! { StuckAndWaiting:
    /// Continues a list: the value that the previous answer names.
    after: Option<String>,
    /// Continues a list: the number that the previous answer names.
    #[serde(default)]
    skip: usize,
}

pub(crate) async fn stuck_and_waiting(api: &ApiCalls, arguments: StuckAndWaiting) -> Result<Answer, ToolError> {
    let place = ListPlace { token: arguments.after, skip: arguments.skip };
    let needs_help = |target: &TargetInfo| {
        matches!(target.phase, TargetPhase::Failed | TargetPhase::Stuck) || target.waits_for.is_some()
    };
    let found = TargetRows::read(api, &[], place, needs_help).await?;
    let count = found.rows.len();
    let next = match count {
        0 if found.next.is_some() => "call stuck_and_waiting as above",
        0 => "list_targets shows the others",
        _ => "why_not_ready with the name of a target explains it",
    };
    let title = format!("{count} of {} targets are failed, stuck or waiting:", found.read);
    Ok(found.answer("stuck_and_waiting", title, next))
}

target_arguments! { Logs:
    /// The unit, as RESOURCE/UNIT. Without it, the unit that failed first.
    unit: Option<String>,
    /// The attempt, from 1. Without it, the last one that has a log.
    attempt: Option<u32>,
    /// The number of lines at the end of the log to leave out.
    #[serde(default)]
    skip: usize,
}

pub(crate) async fn logs(api: &ApiCalls, arguments: Logs) -> Result<Answer, ToolError> {
    let Logs { name, kind, unit, attempt, skip } = arguments;
    let target = TargetArguments { name, kind };
    let (run, unit) = match unit {
        Some(unit) => (run_of(api, &target, &unit).await?, unit),
        None => {
            let diagnosis: TargetDiagnosis = api.get(&target.path(&["why"]), &[]).await?;
            match diagnosis.cause {
                Some(cause) => (cause.run, cause.unit),
                None => return Err(no_unit(api, &target, "no unit has failed: name one").await?),
            }
        }
    };
    let number = attempt.map(|attempt| attempt.to_string());
    let query = [("unit", Some(unit.as_str())), ("attempt", number.as_deref())];
    let log = api.text(&["runs", &run, "logs"], &query).await?;
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    let next = target.call("why_not_ready");
    if lines.is_empty() {
        return Ok(Answer::new(format!("The log of {unit} in run {run} is empty."), next));
    }
    if skip >= lines.len() {
        return invalid(format!("the log has {} lines: \"skip\" is {skip}", lines.len()));
    }
    lines.truncate(lines.len() - skip);
    let total = lines.len();
    let rest = move |shown: usize| {
        let (earlier, skip) = (total - shown, skip + shown);
        format!("{earlier} earlier lines were left out: call logs with the same arguments and \"skip\": {skip}.")
    };
    let title = format!("The log of {unit} in run {run}, as the script printed it:");
    Ok(Answer::new(title, next).with(lines, rest).keeping_last(true))
}

/// Returns the last run of a target that has a unit.
async fn run_of(api: &ApiCalls, target: &TargetArguments, unit: &str) -> Result<String, ToolError> {
    let detail: TargetDetail = api.get(&target.path(&[]), &[]).await?;
    for mut run in detail.runs.into_iter().rev() {
        for _ in 0..MAX_PAGES {
            if run.units.iter().any(|found| found.key == unit) {
                return Ok(run.id);
            }
            let Some(token) = run.next_token else { break };
            run = api.get(&["runs", &run.id], &[("nextToken", Some(&token))]).await?;
        }
    }
    Err(no_unit(api, target, &format!("no run has the unit {unit:?}")).await?)
}

/// Returns the error about a missing unit, with the units that have a log.
async fn no_unit(api: &ApiCalls, target: &TargetArguments, reason: &str) -> Result<ToolError, ToolError> {
    let detail: TargetDetail = api.get(&target.path(&[]), &[]).await?;
    let units = detail.runs.iter().flat_map(|run| &run.units).filter(|unit| unit.log || unit.kind == "pod");
    let names: Vec<&str> = units.map(|unit| unit.key.as_str()).take(MAX_NAMED).collect();
    let names = if names.is_empty() { "none: only scripts have logs".to_owned() } else { names.join(", ") };
    Ok(ToolError::Arguments(format!("{reason}; units with logs: {names}")))
}

target_arguments! { History:
    /// The id of an entry, whose document is shown.
    entry: Option<String>,
    /// The id after which the list begins.
    after: Option<String>,
    /// With `entry`: the first line of the document to show, from 1.
    #[serde(default = "first")]
    from_line: usize,
}

pub(crate) async fn history(api: &ApiCalls, arguments: History) -> Result<Answer, ToolError> {
    let History { name, kind, entry, after, from_line } = arguments;
    let target = TargetArguments { name, kind };
    if let Some(id) = entry {
        let found: HistoryDetail = api.get(&target.path(&["history", &id]), &[]).await?;
        let document = found.text.ok_or_else(|| no_document(&id))?;
        let call = json!({"name": target.name, "kind": target.kind, "entry": id});
        let mut rollback = call.clone();
        rollback["dry_run"] = true.into();
        let next = format!("apply_document {rollback} shows the effect of applying it again");
        let shown = Answer::of_text((format!("The document of {id}"), next), &document, from_line, ("history", call));
        return shown.map_err(ToolError::Arguments);
    }
    let found: HistoryPage = api.get(&target.path(&["history"]), &[("nextToken", after.as_deref())]).await?;
    let HistoryPage { entries, next_token, notifications } = found;
    let ids: Vec<String> = entries.iter().map(|entry| entry.id.clone()).collect();
    let rows: Vec<String> = entries.iter().map(|entry| json!(entry).to_string()).collect();
    let is_incomplete = next_token.is_some();
    let title = match notifications.len() {
        0 => "The history, the newest entry first:".to_owned(),
        count => {
            format!("{count} notifications were not accepted by their receivers. The history, the newest entry first:")
        }
    };
    let rest = move |shown: usize| {
        let last = shown.checked_sub(1).and_then(|last| ids.get(last)).cloned();
        let arguments = pick(&json!({"after": last.or_else(|| next_token.clone())}), &["after"]);
        format!("Earlier entries follow: call history with the same arguments and {arguments}.")
    };
    let next =
        format!("{}; history with \"entry\" and the id of an entry shows its document", target.call("get_target"));
    Ok(Answer::new(title, next).with(rows, rest).with_more(is_incomplete))
}

target_arguments! { RetryArguments:
    /// A published version, NAME@VERSION. The teardown of a stuck target continues with its units.
    plugin: Option<String>,
    /// Retries this instance only. Without it, the present one.
    uid: Option<String>,
    /// Changes nothing, and shows the failed units, or with `plugin` the difference of the units.
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn retry_target(api: &ApiCalls, arguments: RetryArguments) -> Result<Answer, ToolError> {
    let RetryArguments { name, kind, plugin, uid, dry_run } = arguments;
    let target = TargetArguments { name, kind };
    let command = commands::get(&target.kind, &target.name);
    let rest = move |_| format!("More units were left out: `{command}` shows all.");
    if dry_run && plugin.is_none() {
        let diagnosis: TargetDiagnosis = api.get(&target.path(&["why"]), &[]).await?;
        let shown = pick(&json!(diagnosis), &["target", "phase", "cause", "failed", "targetWaits"]);
        let (title, next) = match diagnosis.cause.is_none() && diagnosis.failed.is_empty() {
            true => ("Nothing has failed, so nothing would run again:", target.call("get_target")),
            false => ("What has failed, and would run again:", target.call("retry_target") + " runs them again"),
        };
        return Ok(Answer::new(title, next).with(yaml(&shown), rest));
    }
    let body = RetryTarget { uid, plugin, document: None, dry_run };
    let body = (body != RetryTarget::default()).then(|| json!(body));
    let retried: RetryResponse = api.send(Method::POST, &target.path(&["retry"]), &[], body).await?;
    let (title, next) = match dry_run {
        true => (
            "These units would change:",
            "ask a person; retry_target with this \"uid\" and without \"dry_run\" continues".to_owned(),
        ),
        false => ("These units run again:", target.call("why_not_ready")),
    };
    Ok(Answer::new(title, next).with(yaml(&json!(retried)), rest))
}
