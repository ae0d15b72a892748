//! Presets of senders: recorded events, each with its effect.

use std::collections::{BTreeMap, BTreeSet};

use ebb_engine::TargetPhase;
use serde::Deserialize;
use serde_json::{Value, json};

use super::sources::{event, rendered, shown, source};
use crate::notification::tests::failed;
use crate::presets::PRESETS;
use crate::starters::{RECEIVERS, starter};
use crate::{DocumentVars, EventSource, NoFiles, TargetFacts, compile, load, preset};

/// The events of a sender. The file describes its keys.
#[derive(Deserialize)]
pub(super) struct RecordedSender {
    verify: String,
    pub(super) labels: BTreeMap<String, Option<String>>,
    body: Value,
    pub(super) events: BTreeMap<String, Vec<RecordedEvent>>,
}

#[serde_with::apply(BTreeMap => #[serde(default)])]
#[derive(Deserialize)]
pub(super) struct RecordedEvent {
    body: Option<Value>,
    with: BTreeMap<String, Value>,
    labels: BTreeMap<String, Option<String>>,
    params: BTreeMap<String, Value>,
}

/// An event with its effect.
struct PresetCase {
    preset: String,
    source: EventSource,
    body: Value,
    /// The text of [`shown`].
    effect: String,
    /// The labels of the target that the event applies.
    labels: BTreeMap<String, String>,
}

pub(super) fn senders() -> BTreeMap<String, RecordedSender> {
    serde_saphyr::from_str(include_str!("../../tests/preset_events.yaml")).unwrap()
}

fn cases() -> Vec<PresetCase> {
    let mut cases = Vec::new();
    for (preset, sender) in senders() {
        for (effect, events) in sender.events {
            for event in events {
                let mut body = event.body.unwrap_or_else(|| sender.body.clone());
                for (path, value) in event.with {
                    *path.split('.').fold(&mut body, |part, key| &mut part[key]) = value;
                }
                let mut labels = sender.labels.clone();
                labels.extend(event.labels);
                let labels = labels.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
                let source = with(&preset, &json!(event.params));
                cases.push(PresetCase { preset: preset.clone(), source, body, effect: effect.clone(), labels });
            }
        }
    }
    cases
}

/// Returns the source that `ebb source new` prints for a preset, with these params.
fn with(name: &str, params: &Value) -> EventSource {
    source(&format!("{}with: {params}\n", preset(name).unwrap().starter("s")))
}

#[test]
fn each_preset_has_a_summary_a_scheme_and_recorded_events() {
    let senders = senders();
    assert_eq!(senders.keys().collect::<Vec<_>>(), PRESETS.map(|preset| preset.name));
    for preset in &PRESETS {
        assert!(!preset.summary().is_empty(), "{}", preset.name);
        assert_eq!(preset.document().name.value, preset.name);
        let verify = format!("\nverify: {{{}: {{secret: ", senders[preset.name].verify);
        assert!(preset.text.contains(&verify), "{} has another scheme", preset.name);
        // Senders write null for a value that is missing, which `has` takes as given.
        assert!(!preset.text.contains("has("), "{}", preset.name);
    }
}

#[test]
fn each_entry_of_a_preset_reacts_to_its_events() {
    let mut held = BTreeSet::new();
    let mut report = String::new();
    // The senders do not sign the headers that name an event, so these decide nothing.
    let others = [("x-github-event", "ping"), ("x-gitea-event", "push"), ("x-gitlab-event", "Note Hook")];
    for PresetCase { preset, source, body, effect, labels } in cases() {
        for headers in [&others[..], &[]] {
            let input = event(headers, body.clone());
            let outcome = shown(&source, &input);
            let is_applied = outcome.starts_with("apply ");
            let found = if is_applied { rendered(&source, &input).1.labels } else { labels.clone() };
            if outcome != effect || found != labels {
                report.push_str(&format!("{preset}: {outcome} {found:?}\n  expected {effect} {labels:?}\n  {body}\n"));
            }
            held.extend(source.explain(&input).entry.map(|entry| (preset.clone(), entry)));
        }
    }
    assert!(report.is_empty(), "{report}");
    for preset in &PRESETS {
        for entry in 1..=with(preset.name, &json!({})).entries.len() {
            assert!(held.contains(&(preset.name.to_owned(), entry)), "no event for entry {entry} of {}", preset.name);
        }
    }
}

/// Each starter of a subscription renders its request for the targets of each preset that it reports.
#[test]
fn subscriptions_read_the_labels_of_presets() {
    let mut reported = BTreeSet::new();
    let applied = cases().into_iter().filter(|case| case.effect.starts_with("apply "));
    for PresetCase { preset, source, body, .. } in applied {
        let (_, document) = rendered(&source, &event(&[], body));
        let target = TargetFacts {
            kind: "sandbox".to_owned(),
            name: document.name.value.clone(),
            labels: document.labels.clone(),
            ..TargetFacts::default()
        };
        for receiver in RECEIVERS {
            let text = starter(receiver, "s").unwrap();
            let rule = load::subscription("s.yaml", &text, &NoFiles, &DocumentVars::none()).unwrap();
            let rule = compile::subscription(&rule).unwrap_or_else(|error| panic!("{error}"));
            if !rule.reports(TargetPhase::Failed, &target) {
                continue;
            }
            rule.render(&target, &failed("")).unwrap_or_else(|error| panic!("{preset} {receiver}: {error}"));
            reported.insert((receiver, preset.clone()));
        }
    }
    let presets = |receiver| -> Vec<&str> {
        reported.iter().filter(|(of, _)| *of == receiver).map(|(_, preset)| preset.as_str()).collect()
    };
    for receiver in ["standard", "webhook", "slack"] {
        assert_eq!(presets(receiver), PRESETS.map(|preset| preset.name), "{receiver}");
    }
    assert_eq!(presets("github"), ["gitea", "github", "github-branches", "github-deployments"]);
    assert_eq!(presets("comment"), ["gitea", "github"]);
}

/// Returns pairs of copies of a value: with null in place of one of its values, and without its key.
fn with_a_missing_key(body: &Value) -> Vec<[Value; 2]> {
    let Value::Object(map) = body else { return Vec::new() };
    let mut pairs = Vec::new();
    for (key, value) in map {
        let (mut null, mut without) = (map.clone(), map.clone());
        null.insert(key.clone(), Value::Null);
        without.remove(key);
        pairs.push([null.into(), without.into()]);
        let whole = |part| {
            let mut copy = body.clone();
            copy[key] = part;
            copy
        };
        pairs.extend(with_a_missing_key(value).into_iter().map(|parts| parts.map(whole)));
    }
    pairs
}

/// A condition that reads a missing key does not hold. Checks of forks and params must not rely on one that is false. A
/// missing value has the effect of null, also in the first event of each preset.
#[test]
fn an_incomplete_event_of_a_fork_or_of_another_base_has_no_target() {
    let (mut tested, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for PresetCase { preset, source, body, effect, .. } in cases() {
        // Not each sender tells a draft.
        let has_reason = effect.contains(" order ") && effect.ends_with(')');
        let is_filtered = has_reason && !effect.ends_with("(a draft has no target)");
        let is_tested = is_filtered || effect.ends_with(" of forks are not accepted");
        if !seen.insert(preset.clone()) && !is_tested {
            continue;
        }
        let pairs = with_a_missing_key(&body);
        assert!(pairs.len() > 3, "{pairs:?}");
        for pair in pairs {
            let [null, missing] = pair.clone().map(|body| shown(&source, &event(&[], body)));
            // The reasons why no entry holds differ.
            let of = |outcome: &str| outcome.split(" no entry holds").next().map(str::to_owned);
            assert_eq!(of(&null), of(&missing), "{preset}: {pair:?}");
            // A deletion finds no target. Without the name of one, it is rejected.
            let harmless = ["ignored: ", "delete ", if is_filtered { "error: " } else { "delete " }];
            let is_harmless = harmless.iter().any(|start| missing.starts_with(start));
            assert!(is_harmless || !is_tested, "{preset}: {missing}\n{pair:?}");
        }
        if is_tested {
            tested.insert((preset, is_filtered));
        }
    }
    let of = |filtered: bool| tested.iter().filter(|(_, is)| *is == filtered).map(|(name, _)| name.as_str()).collect();
    let (filtered, forks): (Vec<&str>, Vec<&str>) = (of(true), of(false));
    assert_eq!(filtered, ["azure-devops", "bitbucket", "bitbucket-data-center", "gitea", "github", "gitlab"]);
    assert_eq!(forks, ["bitbucket", "bitbucket-data-center", "gitea", "github", "gitlab"]);
}

/// A sender repeats a delivery with the same ID, so an ID that numbers attempts would repeat its effect.
#[test]
fn delivery_ids_of_presets() {
    let id =
        |preset, header: &[(&str, &str)], body| with(preset, &json!({})).delivery_id(&event(header, body)).unwrap();
    assert_eq!(id("e2b", &[("e2b-delivery-id", "attempt-2")], json!({"id": "v1"})).as_deref(), Some("v1"));
    assert_eq!(id("vercel", &[], json!({"id": "d1"})).as_deref(), Some("d1"));
    assert_eq!(id("coder", &[("x-message-id", "m1")], json!({})).as_deref(), Some("m1"));
    assert_eq!(id("cdevents", &[], json!({"context": {"id": "e1"}})).as_deref(), Some("e1"));
    assert_eq!(id("cdevents", &[], json!({"data": {"context": {"id": "e1"}}})).as_deref(), Some("e1"));
    assert_eq!(id("daytona", &[], json!({"id": "s5"})), None);
}
