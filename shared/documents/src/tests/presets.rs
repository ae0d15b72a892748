//! Presets of senders: an event for each entry. The payloads have the fields that the senders document.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::sources::{event, rendered, shown, source};
use crate::compile;
use crate::event::EventSource;
use crate::load::{self, DocumentVars, NoFiles};
use crate::model::NotificationPhase;
use crate::notification::{NotifiedTarget, tests::failed};
use crate::presets::PRESETS;
use crate::starters::STARTERS;

/// 1970-01-01T00:00:01Z.
const AT: &str = "Some(1000)";

fn previews(preset: &str) -> EventSource {
    source(&format!("apiVersion: ebb.dev/v1\nkind: Source\nname: s\npreset: {preset}\ndocument: {{ttl: 1h}}\n"))
}

/// Returns `body` with these keys of its member `key`.
fn with(mut body: Value, key: &str, changes: Value) -> Value {
    let Value::Object(changes) = changes else { panic!("{changes}") };
    let object = if key.is_empty() { &mut body } else { &mut body[key] };
    for (name, value) in changes {
        object[name] = value;
    }
    body
}

/// Returns events with the expected outcome: preset, header, body, outcome.
fn events() -> Vec<(&'static str, &'static str, Value, String)> {
    let mut rows = Vec::new();
    let mut add = |preset, header, body, outcome: &str| rows.push((preset, header, body, outcome.replace("AT", AT)));

    let attributes = json!({
        "iid": 7, "action": "open", "source_project_id": 5, "target_project_id": 5, "state": "opened",
        "updated_at": "1970-01-01 00:00:01 UTC", "last_commit": {"id": "ab"},
    });
    let project = json!({"id": 5, "path_with_namespace": "acme/shop", "default_branch": "main"});
    let body = json!({"object_kind": "merge_request", "project": project, "object_attributes": attributes});
    let merge = |changes| with(body.clone(), "object_attributes", changes);
    let applied = "apply sandbox/mr-7-5 None AT";
    let only = "ignored: only open, reopen, new commits, close and merge have an effect";
    add("gitlab", "", json!({"object_kind": "note"}), "ignored: only merge request events have an effect");
    let fork = json!({"source_project_id": 6});
    add("gitlab", "", merge(fork), "ignored: merge requests of forks are not accepted");
    let gone = json!({"source_project_id": null, "action": "close"});
    add("gitlab", "", merge(gone), "ignored: merge requests of forks are not accepted");
    add("gitlab", "", merge(json!({"action": "close"})), "delete sandbox/mr-7-5 None AT");
    add("gitlab", "", merge(json!({"action": "merge"})), "delete sandbox/mr-7-5 None AT");
    add("gitlab", "", body.clone(), applied);
    add("gitlab", "", merge(json!({"updated_at": "1970-01-01 02:00:01 +0200", "last_commit": null})), applied);
    let update = json!({"action": "update", "oldrev": "ab", "updated_at": "1970-01-01T00:00:01Z"});
    add("gitlab", "", merge(update), applied);
    add("gitlab", "", merge(json!({"action": "update"})), only);
    add("gitlab", "", merge(json!({"action": "approved"})), only);

    let push =
        json!({"object_kind": "push", "ref": "refs/heads/fix/a", "before": "00", "after": "ab", "project": project});
    let pushed = |changes| with(push.clone(), "", changes);
    let branch = "sandbox/branch-5-fix-a-220f824682fc38b0 None None";
    let main = json!({"ref": "refs/heads/main"});
    add("gitlab-branches", "", pushed(main), "ignored: the default branch has no target");
    add("gitlab-branches", "", push.clone(), &format!("apply {branch}"));
    add("gitlab-branches", "", pushed(json!({"after": "0".repeat(40)})), &format!("delete {branch}"));
    let queue = json!({"ref": "refs/heads/gh-readonly-queue/main/pr-104-0123"});
    add("gitlab-branches", "", pushed(queue), "ignored: branches of a merge queue have no target");
    // The name of a branch can contain refs/heads/.
    let inner = pushed(json!({"ref": "refs/heads/fix/refs/heads/a"}));
    add("gitlab-branches", "", inner, "apply sandbox/branch-5-fix-refs-heads-a-993ad66e03aa4697 None None");
    let tag = json!({"object_kind": "tag_push", "ref": "refs/tags/v1"});
    add("gitlab-branches", "", pushed(tag), "ignored: only pushes of branches have an effect");

    let deployment = json!({
        "object_kind": "deployment", "status": "running", "status_changed_at": "1970-01-01 02:00:01 +0200",
        "environment": "review/a", "environment_slug": "review-a-x1", "environment_tier": "development", "project": project,
    });
    let deployed = |changes| with(deployment.clone(), "", changes);
    let applied = "apply sandbox/environment-5-review-a-x1 None AT";
    let only = "ignored: only the status running and success have an effect";
    let other = json!({"object_kind": "push"});
    add("gitlab-deployments", "", deployed(other), "ignored: only deployment events have an effect");
    let production = json!({"environment_tier": "production"});
    add("gitlab-deployments", "", deployed(production), "ignored: production has no target");
    add("gitlab-deployments", "", deployment.clone(), applied);
    let west = json!({"status": "success", "status_changed_at": "1969-12-31 22:00:01 -0200"});
    add("gitlab-deployments", "", deployed(west), applied);
    add("gitlab-deployments", "", deployed(json!({"status": "failed"})), only);

    let request =
        json!({"updated_at": "1970-01-01T00:00:01Z", "head": {"repo_id": 3, "sha": "ab12"}, "base": {"repo_id": 3}});
    let repository = json!({"id": 3, "full_name": "acme/shop"});
    let body = json!({"action": "opened", "number": 7, "repository": repository, "pull_request": request});
    let pull = |changes| with(body.clone(), "", changes);
    let fork = with(body.clone(), "pull_request", json!({"head": {"repo_id": 4, "repo": null}}));
    // The header is not signed.
    let request = "x-gitea-event: push";
    add("gitea", "x-gitea-event: pull_request", json!({}), "ignored: only pull_request events have an effect");
    let mut incomplete = body.clone();
    incomplete.as_object_mut().unwrap().remove("repository");
    add("gitea", request, incomplete, "apply sandbox/pr-7-3 None AT");
    add("gitea", request, fork, "ignored: pull requests of forks are not accepted");
    add("gitea", request, pull(json!({"action": "closed"})), "delete sandbox/pr-7-3 None AT");
    add("gitea", request, pull(json!({"action": "synchronized"})), "apply sandbox/pr-7-3 None AT");
    let edited = json!({"action": "edited"});
    let only = "ignored: only opened, reopened, synchronized and closed have an effect";
    add("gitea", request, pull(edited), only);

    let application = json!({
        "event": "created", "application": "shop-pr-7", "namespace": "argocd", "project": "default", "uid": "u1",
        "time": "1970-01-01T00:00:01Z",
    });
    add("argocd", "", application.clone(), "apply sandbox/argocd-shop-pr-7 Some(\"u1\") AT");
    let deleted = with(application, "", json!({"event": "deleted"}));
    add("argocd", "", deleted, "delete sandbox/argocd-shop-pr-7 Some(\"u1\") AT");

    let event = |kind: &str| {
        json!({
            "context": {
                "specversion": "0.5.0", "id": "e1", "source": "/dev/shop", "timestamp": "1970-01-01T00:00:01Z",
                "type": format!("dev.cdevents.{kind}.0.3.0"),
            },
            "subject": {"id": "pr7", "source": "/dev/shop", "content": {"name": "preview"}},
        })
    };
    let only = "ignored: only environment created, modified and deleted have an effect";
    let structured = json!({"specversion": "1.0", "id": "c1", "data": event("environment.modified")});
    add("cdevents", "", event("environment.created"), "apply sandbox/cdevents-pr7 None AT");
    add("cdevents", "", structured, "apply sandbox/cdevents-pr7 None AT");
    add("cdevents", "", event("environment.deleted"), "delete sandbox/cdevents-pr7 None AT");
    add("cdevents", "", event("service.deployed"), only);

    let vercel = |kind: &str, target: Value| {
        let deployment = json!({"id": "dpl_5", "name": "shop", "url": "shop-5.vercel.app", "meta": {}});
        let payload = json!({"deployment": deployment, "target": target, "project": {"id": "prj_1"}});
        json!({"id": "d1", "type": kind, "createdAt": 1000, "region": null, "payload": payload})
    };
    let name = "sandbox/vercel-dpl-5-84b773f9d272ca9f Some(\"dpl_5\") Some(1000000)";
    let only = "ignored: only deployment.created, ready, succeeded, error, canceled and cleanup have an effect";
    add("vercel", "", vercel("deployment.created", json!("production")), "ignored: production has no target");
    // A preview can be promoted, and ends as another one.
    add("vercel", "", vercel("deployment.cleanup", json!("production")), &format!("delete {name}"));
    add("vercel", "", vercel("deployment.created", Value::Null), &format!("apply {name}"));
    add("vercel", "", vercel("deployment.succeeded", json!("staging")), &format!("apply {name}"));
    add("vercel", "", vercel("deployment.cleanup", Value::Null), &format!("delete {name}"));
    add("vercel", "", vercel("deployment.error", Value::Null), &format!("delete {name}"));
    add("vercel", "", vercel("deployment.promoted", Value::Null), only);

    let qovery = |event: &str, desired: &str| {
        json!({
            "created_at": "1970-01-01T00:00:01Z", "event_type": event, "payload_type": "DEPLOYMENT", "payload_id": "p1",
            "payload": {"id": "d1", "desired_status": desired, "project": {"id": "p2"}, "environment": {"id": "e1"}},
        })
    };
    let only = "ignored: only DEPLOYMENT_STARTED and DEPLOYMENT_SUCCESSFUL have an effect";
    let waits = "ignored: a target is deleted when the environment is";
    add("qovery", "", qovery("DEPLOYMENT_STARTED", "DEPLOYED"), "apply sandbox/qovery-e1 None AT");
    add("qovery", "", qovery("DEPLOYMENT_STARTED", "DELETED"), waits);
    add("qovery", "", qovery("DEPLOYMENT_SUCCESSFUL", "DELETED"), "delete sandbox/qovery-e1 None AT");
    add("qovery", "", qovery("DEPLOYMENT_FAILURE", "DEPLOYED"), only);

    let coder = |name: &str, labels: Value| {
        let payload = json!({"_version": "1.2", "notification_name": name, "user_username": "ann", "labels": labels});
        json!({"_version": "1.1", "msg_id": "m1", "title": "", "body": "", "payload": payload})
    };
    let created = json!({"workspace": "web", "template": "go", "version": "a", "workspace_owner_username": "ann"});
    let name = "workspace/coder-ann-web-872582a7d926e107 None None";
    add("coder", "", coder("Workspace Created", created), &format!("apply {name}"));
    let capital = json!({"workspace": "Web", "template": "go", "version": "a", "workspace_owner_username": "Ann"});
    add("coder", "", coder("Workspace Created", capital), &format!("apply {name}"));
    let deleted = json!({"name": "web", "reason": "autodeleted due to dormancy", "initiator": "autobuild"});
    add("coder", "", coder("Workspace Deleted", deleted), &format!("delete {name}"));
    let only = "ignored: only Workspace Created and Workspace Deleted have an effect";
    add("coder", "", coder("Workspace Marked as Dormant", json!({})), only);

    let e2b = |kind: &str| {
        json!({
            "id": "v1", "version": "v2", "type": format!("sandbox.lifecycle.{kind}"), "timestamp": "1970-01-01T00:00:01Z",
            "event_data": {"sandbox_metadata": {}}, "sandbox_id": "i5", "sandbox_template_id": "t1",
        })
    };
    let first_version = json!({
        "id": "v1", "version": "v1", "type": "sandbox.lifecycle.created", "timestamp": "1970-01-01T00:00:01Z",
        "eventData": {"sandbox_metadata": {}}, "sandboxId": "i5", "sandboxTemplateId": "t1",
    });
    add("e2b", "", e2b("created"), "apply sandbox/e2b-i5 Some(\"i5\") AT");
    add("e2b", "", first_version, "apply sandbox/e2b-i5 Some(\"i5\") AT");
    add("e2b", "", e2b("killed"), "delete sandbox/e2b-i5 Some(\"i5\") AT");
    add("e2b", "", e2b("paused"), "ignored: only created, resumed, updated and killed have an effect");

    let daytona = |event: &str, state: &str| {
        json!({
            "event": event, "timestamp": "1970-01-01T00:00:01Z", "id": "s5", "organizationId": "o1", "oldState": "creating",
            "newState": state, "updatedAt": "1970-01-01T00:00:01Z",
        })
    };
    let created =
        json!({"event": "sandbox.created", "timestamp": "1970-01-01T00:00:01Z", "id": "s5", "organizationId": "o1"});
    let only = "ignored: only sandbox.created and the states started and destroyed have an effect";
    add("daytona", "", created, "apply sandbox/daytona-s5 Some(\"s5\") AT");
    add("daytona", "", daytona("sandbox.state.updated", "started"), "apply sandbox/daytona-s5 Some(\"s5\") AT");
    add("daytona", "", daytona("sandbox.state.updated", "destroyed"), "delete sandbox/daytona-s5 Some(\"s5\") AT");
    add("daytona", "", daytona("sandbox.state.updated", "archived"), only);
    add("daytona", "", daytona("volume.state.updated", "destroyed"), only);

    let claude = |kind: &str| {
        let data = json!({"type": kind, "id": "sesn_5", "organization_id": "o1", "workspace_id": "w1"});
        json!({"type": "event", "id": "evt_1", "created_at": "1970-01-01T00:00:01Z", "data": data})
    };
    let name = "sandbox/claude-sesn-5-d1d700989ee14a04 Some(\"sesn_5\") AT";
    let only = "ignored: only created, status_run_started, status_terminated, archived and deleted have an effect";
    add("claude-sessions", "", claude("session.status_run_started"), &format!("apply {name}"));
    add("claude-sessions", "", claude("session.status_terminated"), &format!("delete {name}"));
    add("claude-sessions", "", claude("session.status_idled"), only);
    rows
}

#[test]
fn each_entry_of_a_preset_reacts_to_its_event() {
    let mut held = BTreeSet::new();
    let mut report = String::new();
    for (preset, header, body, expected) in events() {
        let source = previews(preset);
        let input = event(&header.split_once(": ").into_iter().collect::<Vec<_>>(), body);
        let outcome = shown(&source, &input);
        if outcome != expected {
            report.push_str(&format!("{preset}: {outcome}\n  expected {expected}\n  {}\n", input.body));
        }
        held.extend(source.explain(&input).entry.map(|entry| (preset, entry)));
    }
    assert!(report.is_empty(), "{report}");
    // The tests of sources cover the presets of GitHub.
    for preset in PRESETS.iter().filter(|preset| !preset.name.starts_with("github")) {
        for entry in 1..=previews(preset.name).entries.len() {
            assert!(held.contains(&(preset.name, entry)), "no event for entry {entry} of {}", preset.name);
        }
    }
}

/// Returns events of GitHub that begin a target.
fn creations_at_github() -> Vec<(&'static str, Value)> {
    let at = "1970-01-01T00:00:01Z";
    let repository = json!({"id": 1, "name": "shop", "full_name": "acme/shop", "pushed_at": at});
    let head = json!({"sha": "ab12", "repo": {"id": 1}});
    let pull_request = json!({"draft": false, "updated_at": at, "head": head});
    let labels = json!([{"name": "preview"}]);
    let labelled = json!({"draft": false, "updated_at": at, "head": head, "labels": labels, "state": "open"});
    let deployment = json!({"id": 5, "environment": "preview", "sha": "ab12", "updated_at": at});
    let pull = json!({"action": "opened", "number": 7, "repository": repository, "pull_request": pull_request});
    let branch = json!({"ref": "a", "ref_type": "branch", "master_branch": "main", "repository": repository});
    let deployed = json!({"action": "created", "repository": repository, "deployment": deployment});
    let labelled = json!({"action": "labeled", "number": 7, "repository": repository, "pull_request": labelled});
    vec![("github", pull), ("github-branches", branch), ("github-deployments", deployed), ("github-labels", labelled)]
}

/// Each starter of a subscription renders its request for the targets of each preset that it reports.
#[test]
fn subscriptions_read_the_labels_of_presets() {
    let of_others = events().into_iter().filter(|(.., outcome)| outcome.starts_with("apply "));
    let creations = of_others.map(|(preset, _, body, _)| (preset, body)).chain(creations_at_github());
    let mut reported = BTreeSet::new();
    for (preset, body) in creations {
        let (_, document) = rendered(&previews(preset), &event(&[], body));
        let target = NotifiedTarget {
            kind: "sandbox".to_owned(),
            name: document.name.value.clone(),
            labels: document.labels.clone(),
            ..NotifiedTarget::default()
        };
        for starter in &STARTERS {
            let rule = load::subscription("s.yaml", &starter.document("s"), &NoFiles, &DocumentVars::none()).unwrap();
            let rule = compile::subscription(&rule).unwrap_or_else(|error| panic!("{error}"));
            if !rule.reports(NotificationPhase::Failed, &target) {
                continue;
            }
            rule.render(&target, &failed("")).unwrap_or_else(|error| panic!("{preset} {}: {error}", starter.receiver));
            reported.insert((starter.receiver, preset));
        }
    }
    let presets = |receiver| -> Vec<&str> {
        reported.iter().filter(|(of, _)| *of == receiver).map(|(_, preset)| *preset).collect()
    };
    for receiver in ["standard", "webhook", "slack"] {
        assert_eq!(presets(receiver), PRESETS.map(|preset| preset.name), "{receiver}");
    }
    assert_eq!(presets("github"), ["gitea", "github", "github-deployments", "github-labels"]);
    assert_eq!(presets("comment"), ["gitea", "github", "github-labels"]);
}

/// Returns copies of a value, each without one of its keys.
fn with_a_missing_key(body: &Value) -> Vec<Value> {
    let Value::Object(map) = body else { return Vec::new() };
    let mut copies = Vec::new();
    for (key, value) in map {
        let mut copy = map.clone();
        copy.remove(key);
        copies.push(copy.into());
        copies.extend(with_a_missing_key(value).into_iter().map(|value| with(body.clone(), "", json!({key: value}))));
    }
    copies
}

/// A condition that reads a missing key does not hold. The check of forks must not rely on one that is false.
#[test]
fn an_incomplete_event_of_a_fork_has_no_target() {
    let at = "1970-01-01T00:00:01Z";
    let repository = json!({"id": 3, "name": "shop", "full_name": "acme/shop"});
    let pull = |head: Value| {
        let pull_request = json!({"draft": false, "updated_at": at, "head": head, "base": {"repo_id": 3}});
        json!({"action": "opened", "number": 7, "repository": repository, "pull_request": pull_request})
    };
    let attributes = json!({
        "iid": 7, "action": "open", "source_project_id": 6, "target_project_id": 5, "updated_at": at,
    });
    let project = json!({"id": 5, "path_with_namespace": "acme/shop", "default_branch": "main"});
    let merge = json!({"object_kind": "merge_request", "project": project, "object_attributes": attributes});
    for (preset, header, body) in [
        ("github", ("x-github-event", "pull_request"), pull(json!({"repo": {"id": 4}}))),
        ("gitea", ("x-gitea-event", "pull_request"), pull(json!({"repo_id": 4}))),
        ("gitlab", ("x-gitlab-event", "Merge Request Hook"), merge),
    ] {
        let copies = with_a_missing_key(&body);
        assert!(copies.len() > 8, "{copies:?}");
        for body in copies {
            let outcome = shown(&previews(preset), &event(&[header], body.clone()));
            assert!(outcome.starts_with("ignored: "), "{preset}: {outcome}\n{body}");
        }
    }
}

/// A sender repeats a delivery with the same ID, so an ID that numbers attempts would repeat its effect.
#[test]
fn delivery_ids_of_presets() {
    let id = |preset, header: &[(&str, &str)], body| previews(preset).delivery_id(&event(header, body)).unwrap();
    assert_eq!(id("e2b", &[("e2b-delivery-id", "attempt-2")], json!({"id": "v1"})).as_deref(), Some("v1"));
    assert_eq!(id("vercel", &[], json!({"id": "d1"})).as_deref(), Some("d1"));
    assert_eq!(id("coder", &[("x-message-id", "m1")], json!({})).as_deref(), Some("m1"));
    assert_eq!(id("cdevents", &[], json!({"context": {"id": "e1"}})).as_deref(), Some("e1"));
    assert_eq!(id("cdevents", &[], json!({"data": {"context": {"id": "e1"}}})).as_deref(), Some("e1"));
    assert_eq!(id("daytona", &[], json!({"id": "s5"})), None);
}
