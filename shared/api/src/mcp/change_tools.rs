//! Tools that change several targets by one request: deletion, and another version of a plugin.

use ebb_protocol::lifecycle::{LifecycleResult, kind_and_name};
use ebb_protocol::{
    ActOnTargets, ErrorCode, NamedTarget, TargetAction, TargetOutcome, TargetOutcomes, TargetPhase, TargetSelection,
};
use http::Method;
use serde_json::{Value, json};

use crate::mcp::arguments::tool_arguments;
use crate::mcp::target_tools::{ListTargets, TargetArguments, sandbox, target_arguments};
use crate::mcp::{Answer, ApiCalls, ToolError, invalid, pick};

/// Maximum targets of a call. An answer has room for some more.
const MAX_TARGETS: usize = 20;

/// Takes an action on targets. If each one was refused, the reasons are the error.
async fn act(
    api: &ApiCalls,
    select: TargetSelection,
    action: TargetAction,
    dry_run: bool,
) -> Result<TargetOutcomes, ToolError> {
    if let TargetSelection::Targets(targets) = &select
        && !(1..=MAX_TARGETS).contains(&targets.len())
    {
        return invalid(format!("{} targets were given; expected 1 to {MAX_TARGETS}", targets.len()));
    }
    let request = json!(ActOnTargets { select, action, dry_run });
    let answer: TargetOutcomes = api.send(Method::POST, &["targets", "actions"], &[], Some(request)).await?;
    if answer.outcomes.is_empty() || answer.outcomes.iter().any(|outcome| outcome.error.is_none()) {
        return Ok(answer);
    }
    let lines: Vec<String> = answer.outcomes.iter().map(line).collect();
    let is_loss = answer.outcomes.iter().any(|outcome| outcome.has_code(ErrorCode::ResourceLost));
    let problem = answer.outcomes.into_iter().next().filter(|_| lines.len() == 1).and_then(TargetOutcome::into_problem);
    Err(problem.map_or(ToolError::Every(lines, is_loss), ToolError::Refused))
}

fn line(outcome: &TargetOutcome) -> String {
    let target = format!("{}/{}", outcome.kind, outcome.name);
    let line: Value = match (&outcome.error, &outcome.update) {
        (Some(error), _) => json!({"target": target, "error": error}),
        (None, Some(receipt)) if receipt.result == LifecycleResult::Unchanged => {
            json!({"target": target, "result": "unchanged", "why": "it has this version already"})
        }
        (None, Some(receipt)) => {
            pick(&json!(receipt), &["target", "uid", "generation", "result", "resources", "changes"])
        }
        (None, None) if outcome.dry_run => {
            pick(&json!(outcome), &["kind", "name", "uid", "owner", "phase", "waitingUid"])
        }
        (None, None) => {
            let line =
                json!({"target": target, "uid": outcome.uid, "result": "stopping", "waitingUid": outcome.waiting_uid});
            pick(&line, &["target", "uid", "result", "waitingUid"])
        }
    };
    line.to_string()
}

/// Returns an answer with a line per target. The title has the number of those that were refused.
fn answer(
    TargetOutcomes { outcomes, next: rest, .. }: TargetOutcomes,
    title: &str,
    next: String,
    others: &'static str,
) -> Answer {
    let title = match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 if outcomes.is_empty() => format!("{title}."),
        0 => format!("{title}:"),
        refused => format!("{title}; refused for {refused}:"),
    };
    let total = outcomes.len();
    let rest_of = move |shown: usize| match shown < total {
        true => format!("Only {shown} of {total} targets are shown: {others}."),
        false => format!("More targets follow: {others}."),
    };
    Answer::new(title, next).with(outcomes.iter().map(line), rest_of).with_more(rest.is_some())
}

tool_arguments! { UpgradePlugin:
    /// The published version, as NAME@VERSION. Without VERSION, the highest one.
    plugin: String,
    /// The names of the targets, at most 20.
    names: Vec<String>,
    /// The kind of the targets.
    #[serde(default = "sandbox")]
    kind: String,
    /// Shows the effect and changes nothing.
    #[serde(default)]
    dry_run: bool,
    /// Also if complete resources are removed or replaced, so that what they hold is lost. Ask a person first.
    #[serde(default)]
    allow_replace: bool,
}

/// Gives targets another version of a plugin. A target that refuses it has its reason in the answer.
pub(crate) async fn upgrade_plugin(api: &ApiCalls, arguments: UpgradePlugin) -> Result<Answer, ToolError> {
    let UpgradePlugin { plugin, names, kind, dry_run, allow_replace } = arguments;
    let named = names.iter().map(|name| {
        let (kind, name) = kind_and_name(&kind, name);
        NamedTarget { kind: kind.to_owned(), name: name.to_owned(), ..NamedTarget::default() }
    });
    let select = TargetSelection::Targets(named.collect());
    let action = TargetAction::Upgrade { plugin: plugin.clone(), allow_replace: Some(allow_replace) };
    let found = act(api, select, action, dry_run).await?;
    let full = found.plugin.clone().unwrap_or(plugin);
    let changes = |outcome: &TargetOutcome| {
        outcome.update.as_ref().is_some_and(|receipt| receipt.result != LifecycleResult::Unchanged)
    };
    let next = match dry_run {
        _ if !found.outcomes.iter().any(changes) => {
            "nothing changes; list_targets with \"plugin\" shows the versions that targets use"
        }
        true => {
            "ask a person if resources are in `lost`, and add \"allow_replace\": true; upgrade_plugin without \"dry_run\" makes the change"
        }
        false => "get_target with each name until it is ready; if not, why_not_ready",
    };
    let title = if dry_run { format!("This would be changed by {full}") } else { format!("The targets get {full}") };
    Ok(answer(found, &title, next.to_owned(), "call upgrade_plugin for the others"))
}

target_arguments! {
    /// A target, as a dry run shows it.
    #[schemars(inline)] ShownTarget:
    /// Deletes this instance only. Without it, every instance of the name.
    uid: Option<String>,
}

tool_arguments! { DeleteTarget:
    /// The name of the target. Without it, `targets` or `filters` are needed.
    name: Option<String>,
    /// The kind of the target. Without it, `sandbox` for a name, and all kinds for filters.
    kind: Option<String>,
    /// Several targets, at most 20, each with the kind, the name and the UID that a dry run has shown.
    #[serde(default)]
    targets: Vec<ShownTarget>,
    /// Filters as of list_targets, at least one beside the kind. They show living targets, for `targets` of another call.
    filters: Option<ListTargets>,
    /// Shows the targets and deletes nothing. Without it, this is true unless `name` is given.
    dry_run: Option<bool>,
}

pub(crate) async fn delete_target(api: &ApiCalls, arguments: DeleteTarget) -> Result<Answer, ToolError> {
    let DeleteTarget { name, kind, targets, filters, dry_run } = arguments;
    let is_dry_run = dry_run.unwrap_or(name.is_none());
    let mut others = targets.iter().map(|it| &it.kind).chain(filters.iter().filter_map(|it| it.kind.as_ref()));
    if let (Some(kind), Some(other)) = (&kind, others.find(|other| Some(*other) != kind.as_ref())) {
        let reason = format!("kind: {kind:?} contradicts the kind {other:?} of `targets` or `filters`; leave it out");
        return invalid(reason);
    }
    let select = match (name, targets.is_empty(), filters) {
        (Some(name), true, None) => {
            let kind = kind.unwrap_or_else(sandbox);
            TargetSelection::Targets(vec![NamedTarget { kind, name, ..NamedTarget::default() }])
        }
        (None, false, None) => {
            let named = |ShownTarget { name, kind, uid }| NamedTarget { kind, name, uid, ..NamedTarget::default() };
            TargetSelection::Targets(targets.into_iter().map(named).collect())
        }
        (None, true, Some(_)) if !is_dry_run => {
            let reason = "filters delete nothing: repeat the dry run, and give the targets that it shows as `targets`";
            return invalid(reason);
        }
        (None, true, Some(filters)) => {
            let mut selector = filters.selector(kind)?;
            if selector.is_open() {
                return invalid("`filters` need one of phase, label, owner, plugin and q");
            }
            if selector.phases.is_empty() {
                selector.phases = TargetPhase::ALL.into_iter().filter(|phase| phase.is_alive()).collect();
            }
            TargetSelection::Filter(selector)
        }
        _ => return invalid("one of `name`, `targets` and `filters` is needed, and not more than one"),
    };
    let mut found = act(api, select, TargetAction::Delete { allow_protected: false }, is_dry_run).await?;
    if found.outcomes.len() > MAX_TARGETS {
        // A further call accepts as many as are shown.
        found.outcomes.truncate(MAX_TARGETS);
        found.next.get_or_insert(TargetSelection::Targets(Vec::new()));
    }
    if let ([], Some(TargetSelection::Filter(rest))) = (&found.outcomes[..], &found.next) {
        let place = json!({"after": rest.next_token});
        return invalid(format!("no target fits among those that were read: add {place} to the filters"));
    }
    let (title, next) = match (&found.outcomes[..], is_dry_run) {
        ([], _) => ("No target fits", "list_targets shows what the filters find".to_owned()),
        (_, true) => {
            let next = "ask a person; delete_target with these as \"targets\" and \"dry_run\": false deletes them";
            ("These targets would be deleted with all their resources", next.to_owned())
        }
        ([TargetOutcome { kind, name, .. }], false) => {
            let target = TargetArguments { name: name.clone(), kind: kind.clone() };
            let next = format!("{} until it is gone, then {}", target.call("get_target"), target.call("what_exists"));
            ("The deletion begins", next)
        }
        (_, false) => {
            let next =
                "list_targets {\"phase\":\"stopping\"} until it has none of them; stuck_and_waiting shows stuck ones";
            ("The deletions begin", next.to_owned())
        }
    };
    Ok(answer(found, title, next, "delete these, then call delete_target again"))
}
