//! Pages with hostile values, their sizes, and a snapshot.

use std::collections::BTreeMap;

use ebb_protocol::{
    ClusterDetail, HistoryDetail, HistoryPage, NamedTarget, PluginDetail, RunDetail, SourceInfo, SubscriptionDetail,
    TargetDetail, TargetDiagnosis, TargetInfo,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

mod lists;
mod picture;

const VIEWER: ConsoleViewer<'static> =
    ConsoleViewer { name: "token ci", display: None, form_token: "f0rm", hidden: &[] };
const AT: &str = "2026-11-21T09:10:02.123Z";
/// A text that would leave an element, an attribute or a quotation, and that is a URL with code.
const HOSTILE: &str =
    "javascript:alert(1)//\"' onmouseover=alert(2) ><script>alert(3)</script><img src=x onerror=alert(4)>&#x3c;";

/// Returns a part of `tests/hostile.json`, which has `text` in each field that others write.
fn part<T: DeserializeOwned>(name: &str, text: &str) -> T {
    let quoted = json!(text).to_string();
    let parts = include_str!("../tests/hostile.json").replace("\"AT\"", &json!(AT).to_string());
    let mut parts: Value = serde_json::from_str(&parts.replace("TEXT", &quoted[1..quoted.len() - 1])).unwrap();
    serde_json::from_value(parts[name].take()).unwrap()
}

/// Returns a target whose texts contain `text`, with units in all states.
fn detail(text: &str, units: usize) -> TargetDetail {
    let mut target: Value = part("target", text);
    target["runs"] = json!([run_value(text, units)]);
    serde_json::from_value(target).unwrap()
}

fn run_value(text: &str, units: usize) -> Value {
    let states = ["waiting", "running", "retrying", "succeeded", "skipped", "failed", "blocked", "cancelled"];
    let [plain, retrying]: [Value; 2] = ["unit", "retrying"].map(|name| part(name, text));
    let unit = |number: usize| {
        let (mut unit, state) = (plain.clone(), states[number % states.len()]);
        (unit["unit"], unit["state"]) = (format!("{text}/{number}").into(), state.into());
        unit["after"] = number.checked_sub(1).map(|before| format!("{text}/{before}")).into_iter().collect();
        if state == "retrying" {
            unit.as_object_mut().unwrap().extend(retrying.as_object().unwrap().clone());
        }
        unit
    };
    let mut run: Value = part("run", text);
    run["units"] = (0..units).map(unit).collect();
    run
}

fn why(text: &str) -> TargetDiagnosis {
    part("why", text)
}

/// Returns a list without what is optional.
fn list_view<'a>(filter: &'a TargetListFilter, targets: &'a [TargetInfo]) -> TargetListView<'a> {
    TargetListView {
        filter,
        targets,
        counts: &[],
        is_partial: false,
        outages: &[],
        damaged: &[],
        selection: None,
        page_token: "",
        previous: "",
        next_token: None,
        since: "7",
    }
}

/// Returns all pages with `text` in each field that others write.
fn pages(text: &str) -> Vec<(&'static str, String)> {
    let failed = FailureView { title: text, detail: text, ..FailureView::default() };
    let messages = vec![
        ("sign-in", sign_in(text, &[(text, text)], Some((text, Some(text))))),
        ("failure", failure(Some(viewer(text)), paths::ROOT, failed)),
        ("bare failure", failure(None, paths::ROOT, failed)),
        ("login", login(viewer(text), [text; 3], text)),
        ("logged in", logged_in(viewer(text), Some(text))),
    ];
    let of_objects = [target_pages(text), plugin_and_source_pages(text), cluster_and_bulk_pages(text)].concat();
    [messages, list_pages(text), of_objects].concat()
}

fn viewer(name: &str) -> ConsoleViewer<'_> {
    ConsoleViewer { name, display: Some(name), ..VIEWER }
}

fn list_pages(text: &str) -> Vec<(&'static str, String)> {
    let target = detail(text, 9);
    let infos = std::slice::from_ref(&target.info);
    let list = TargetListView {
        filter: &part("filter", text),
        targets: infos,
        counts: &[(target.info.phase, 7)],
        is_partial: true,
        outages: target.outage.as_slice(),
        damaged: &[text.to_owned()],
        selection: Some(text),
        page_token: text,
        previous: text,
        next_token: Some(text),
        since: text,
    };
    let source_infos = [part::<SourceInfo>("sourceInfo", text)];
    let subscription_infos = [part::<SubscriptionDetail>("subscription", text).info];
    let waiting_view = WaitingView {
        targets: infos,
        is_partial: true,
        outages: list.outages,
        sources: Some(&source_infos),
        subscriptions: Some(&subscription_infos),
        since: text,
    };
    vec![
        ("targets", targets(viewer(text), &list)),
        ("waiting", waiting(viewer(text), &waiting_view)),
        ("plugins", plugins(viewer(text), &[part::<PluginDetail>("plugin", text).info])),
        ("sources", sources(viewer(text), &source_infos)),
        ("subscriptions", subscriptions(viewer(text), &subscription_infos)),
        ("clusters", clusters(viewer(text), &[part::<ClusterDetail>("cluster", text).info])),
    ]
}

fn target_pages(text: &str) -> Vec<(&'static str, String)> {
    let of_run: RunDetail = serde_json::from_value(run_value(text, 9)).unwrap();
    let run_view = RunUnitsView { run: &of_run, target: (text, text), counts: text, page_token: text };
    let second = UnitLogView { attempt: 2, last_attempt: 9, ..UnitLogView::default() };
    let log_view = UnitLogView { target: (text, text), unit: text, log: text, state: text, after: text, ..second };
    let entry: HistoryDetail = part("entry", text);
    let (next_token, notifications) = (Some(text.to_owned()), part("notifications", text));
    let entries = HistoryPage { entries: vec![entry.entry.clone()], next_token, notifications };
    vec![
        ("target", target_page::target(viewer(text), true, &detail(text, 9), &why(text), "stamp")),
        ("run", run(viewer(text), &run_view)),
        ("history", history(viewer(text), (text, text), &entries, text)),
        ("history entry", history_entry(viewer(text), (text, text), &entry)),
        ("log", log(viewer(text), &log_view)),
        ("rendering", rendering(viewer(text), (text, text), &part("rendering", text), 9)),
    ]
}

fn plugin_and_source_pages(text: &str) -> Vec<(&'static str, String)> {
    let plugin: PluginDetail = part("plugin", text);
    let versions = &vec![PluginDetail { withdrawn: Some(text.to_owned()), ..plugin.clone() }; 2];
    let (latest, users) = (Some(text), BTreeMap::from([(text.to_owned(), BTreeMap::from([("ready", 3)]))]));
    let params = &[part::<PluginParam>("param", text)];
    let plugin_view = PluginView { detail: &plugin, params, versions, latest, users: Some(&users), is_partial: true };
    let diff = format!("--- {text}\n+++ {text}\n@@ -1 +1 @@\n-{text}\n+{text}\n {text}\n");
    let comparison = PluginComparison { name: text, from: text, to: "2.0.0", versions, diff: &diff };
    let effect = TrialEffect { verdict: "apply", ..part("effect", text) };
    let trial = SourceTrial { headers: text, payload: text, fetched: text, effect: Some(Ok(effect)) };
    vec![
        ("plugin", plugin_pages::plugin(viewer(text), &plugin_view)),
        ("plugin comparison", plugin_comparison(viewer(text), comparison)),
        ("source", source_pages::source(viewer(text), &part("source", text), &trial)),
    ]
}

fn cluster_and_bulk_pages(text: &str) -> Vec<(&'static str, String)> {
    let selected: NamedTarget = part("selected", text);
    let consequences = bulk_consequences(BulkAction::Delete, &why(text), Some(text), Some(text));
    let entries = [(selected.clone(), consequences), (selected, Err(text.to_owned()))];
    vec![
        ("cluster", cluster_pages::cluster(viewer(text), &part("cluster", text))),
        ("subscription", subscription_pages::subscription(viewer(text), &part("subscription", text))),
        ("bulk", bulk_confirmation(viewer(text), BulkAction::Delete, &entries, text)),
        ("bulk outcomes", bulk_outcomes(viewer(text), BulkAction::Retry, &entries, text)),
    ]
}

/// Returns the tags of a page, each without its brackets. A `>` in a value is escaped.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect()
}

#[test]
fn values_of_others_stay_text() {
    for (name, page) in pages(HOSTILE) {
        assert!(page.contains("&lt;script&gt;alert(3)"), "{name} does not show the value");
        for tag in tags(&page) {
            // The parts outside of quotation marks are names.
            let names: String = tag.split('"').step_by(2).collect();
            let has_code = names.split_whitespace().skip(1).any(|attribute| attribute.starts_with("on"));
            assert!(!names.contains("alert") && !has_code, "{name}: <{tag}>");
            let element = names.trim_start_matches('/').split([' ', '=']).next().unwrap();
            assert!(element != "img" && element != "iframe" && element != "style", "{name}: <{tag}>");
        }
    }
}

#[test]
fn every_url_of_a_page_is_a_path_of_the_console() {
    let mut count = 0;
    for (name, page) in pages(HOSTILE) {
        for tag in tags(&page) {
            for attribute in [" href=\"", " src=\"", " action=\"", " d=\""] {
                let Some((_, rest)) = tag.split_once(attribute) else { continue };
                let url = rest.split('"').next().unwrap();
                let is_local = url == "/console" || url.starts_with("/console/") || url.starts_with("/console?");
                let is_part = url.starts_with('#') || attribute == " d=\"" && url.starts_with('M');
                assert!(is_local || is_part, "{name}: {url}");
                assert!(url.bytes().all(|byte| byte.is_ascii() && !b"'<>\\".contains(&byte)), "{name}: {url}");
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count} URLs");
}

/// The policy of the pages permits no styles and scripts in a page.
#[test]
fn pages_have_no_styles_and_scripts_of_their_own() {
    let [_, script, _] = assets::all();
    for (name, page) in pages("plain") {
        let scripts: Vec<&str> = tags(&page).into_iter().filter(|tag| tag.starts_with("script")).collect();
        assert_eq!(scripts, [format!("script type=\"module\" src=\"{}\"", script.path)], "{name}");
        assert!(page.contains("</script>") && !page.contains("style=") && !page.contains("<style"), "{name}");
    }
    for asset in assets::all() {
        assert_eq!(assets::find(&asset.path), Some(asset));
    }
}

#[test]
fn a_log_with_sequences_for_terminals_is_plain() {
    let text = "\u{1b}[31mred\u{1b}[0m \u{1b}]8;;javascript:alert(1)\u{7}link\u{1b}]8;;\u{7} <b>";
    let page = log(VIEWER, &UnitLogView { log: text, ..UnitLogView::default() });
    assert!(page.contains("red link &lt;b&gt;") && !page.contains("data-appends"), "{page}");
    assert!(!page.contains('\u{1b}') && !page.contains("javascript"), "{page}");
}

#[test]
fn a_page_has_less_than_100_kb() {
    let assets: usize = assets::all().iter().map(|asset| asset.content.len()).sum();
    let text = "tenant-database-of-the-shop";
    let (target, mut why) = (detail(text, 25), why(text));
    let page = target_page::target(VIEWER, false, &target, &why, "stamp");
    let infos = vec![target.info.clone(); 100];
    let filter = TargetListFilter::default();
    let list = TargetListView { selection: Some(""), ..list_view(&filter, &infos) };
    why.failed = vec![why.failed[0].clone(); 20];
    why.remaining = vec![why.remaining[0].clone(); 200];
    let large = target_page::target(VIEWER, false, &detail(text, 200), &why, "stamp");
    for shown in ["200 units: 25 failed, 25 retrying", "All units of", "The first 50 units"] {
        assert!(large.contains(shown), "{shown}: {large}");
    }
    for (name, page) in [("target", page), ("targets", targets(VIEWER, &list)), ("large target", large)] {
        assert!(page.len() + assets < 100_000, "{name}: {} + {assets}", page.len());
    }
}

/// A run that is too large has a box for each resource, and its table has the units that need attention.
#[test]
fn a_large_run_is_collapsed() {
    let mut target = detail("db", 1_000);
    let of_run = &mut target.runs[0];
    for unit in &mut of_run.units {
        unit.state = ebb_protocol::api::UnitState::Succeeded;
    }
    of_run.units[999].state = ebb_protocol::api::UnitState::Failed;
    let page = target_page::target(VIEWER, false, &target, &why("x"), "stamp");
    assert!(page.contains("999 of 1000 units done") && page.contains("db/999") && !page.contains("db/900"), "{page}");
}

/// A failure that can end is asked for again, and one of an action leads back.
#[test]
fn a_failure_says_how_it_goes_on() {
    let view = FailureView { title: "x", detail: "y", ..FailureView::default() };
    let page = failure(Some(VIEWER), paths::ROOT, view);
    assert!(!page.contains("data-renew-seconds") && !page.contains("Back"), "{page}");
    let view = FailureView { back: Some("/console/a"), is_temporary: true, ..view };
    let page = failure(Some(VIEWER), paths::ROOT, view);
    assert!(page.contains("data-renew-seconds=\"15\"") && page.contains("href=\"/console/a\">Back"), "{page}");
}

/// An action is offered, and has consequences, only in a phase in which it has an effect.
#[test]
fn actions_without_effect_are_not_offered() {
    use ebb_protocol::api::TargetPhase::{Failed, Gone, Ready, Starting, Stopping, Stuck, Updating};
    let all = [Starting, Ready, Updating, Failed, Stopping, Stuck, Gone];
    let mut why = why("db");
    let delete = (BulkAction::Delete, "delete", &[Starting, Ready, Updating, Failed][..]);
    for (action, name, effective) in [delete, (BulkAction::Retry, "retry", &[Failed, Stuck])] {
        for phase in all {
            let mut target = detail("db", 1);
            target.info.phase = phase;
            why.phase = phase;
            let page = target_page::target(VIEWER, true, &target, &why, "stamp");
            // While units run, each request renders the page.
            let is_live = page.contains("data-renew-seconds=\"3\" data-full-seconds=\"0\"");
            assert_eq!(is_live, matches!(phase, Starting | Updating | Stopping), "{phase:?}");
            let has_effect = effective.contains(&phase);
            let link =
                format!("href=\"/console/selection?action={name}&amp;target=sandbox%2Fdb%20db&amp;back=%2Fconsole");
            assert_eq!(page.contains(&link), has_effect, "{name} {phase:?}");
            let consequences = bulk_consequences(action, &why, None, None);
            assert_eq!(consequences.is_ok(), has_effect, "{name} {phase:?}: {consequences:?}");
            // A retry also starts a unit that waits for a time.
            target.runs[0].state = ebb_protocol::api::RunState::Running;
            let page = target_page::target(VIEWER, true, &target, &why, "stamp");
            assert_eq!(page.contains(&link), has_effect || action == BulkAction::Retry, "{name} {phase:?}");
        }
    }
}

/// A page of an action says what becomes of an update and of an instance that wait.
#[test]
fn consequences_name_those_that_wait() {
    let mut why = why("db");
    let wait = json!({"waiter": "update", "waiterName": "3", "awaits": "units", "release": "the present run ends"});
    why.target_waits = serde_json::from_value(json!([wait])).unwrap();
    let text = bulk_consequences(BulkAction::Delete, &why, None, None).unwrap();
    assert!(text.contains("The update to generation 3, which waits, is dropped."), "{text}");
    why.phase = ebb_protocol::api::TargetPhase::Stuck;
    let text = bulk_consequences(BulkAction::Retry, &why, Some("u-2"), None).unwrap();
    assert!(
        text.ends_with("removes what is left. The instance u-2, which waits for the name, starts after it."),
        "{text}"
    );
}

fn page_of(of_run: &RunDetail) -> String {
    let counts = unit_counts(&of_run.units);
    run(VIEWER, &RunUnitsView { run: of_run, target: ("sandbox", "db"), counts: &counts, page_token: "" })
}

/// The page of a run has numbers of all its units, and leads to its target, to its first units and to the next ones.
#[test]
fn the_page_of_a_run_counts_units() {
    let mut of_run: RunDetail = serde_json::from_value(run_value("db", 9)).unwrap();
    let page = page_of(&of_run);
    let counts =
        "<p>9 units: 1 failed, 1 retrying, 1 running, 1 cancelled, 2 waiting, 1 blocked, 1 succeeded, 1 skipped.</p>";
    assert!(page.contains(counts) && page.contains("href=\"/console/targets/sandbox/db\""), "{page}");
    assert!(!page.contains("First units") && !page.contains("Next units"), "{page}");
    // A unit that was cancelled has no next attempt.
    assert_eq!(page.matches("Next attempt or request at").count(), 8);
    of_run.next_token = Some("db/8".to_owned());
    let view = RunUnitsView { run: &of_run, target: ("sandbox", "db"), counts: "", page_token: "db/0" };
    let page = run(VIEWER, &view);
    assert!(page.contains("First units") && page.contains("nextToken=db%2F8"), "{page}");
}

#[test]
fn the_timeline_has_few_earlier_attempts() {
    let mut of_run: RunDetail = serde_json::from_value(run_value("db", 3)).unwrap();
    let attempts = &mut of_run.units[2].earlier_attempts;
    attempts.resize(20, attempts[0].clone());
    assert_eq!(page_of(&of_run).matches("earlier attempt").count(), 3);
}

/// After a retry, the number of an attempt in its series differs from that of its log.
#[test]
fn attempts_after_a_retry_have_both_numbers() {
    let mut target = detail("db", 3);
    let unit = &mut target.runs[0].units[2];
    (unit.attempt, unit.attempt_in_series, unit.earlier_attempts[0].attempt) = (22, 2, 21);
    let mut why = why("db");
    let cause = why.cause.as_mut().unwrap();
    (cause.attempt, cause.attempt_in_series, why.failed[0].attempt) = (22, 2, 4);
    let page = target_page::target(VIEWER, false, &target, &why, "stamp");
    for text in [
        "<td>22 (2 of 3 since the retry)</td>",
        "<td>21 (1 of 3 since the retry)</td>",
        "attempt 22 (2 since the retry) of k3-1-pre-start</h3>",
        "attempt 4 (1 since the retry): ",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[test]
fn the_history_has_pages() {
    let page = HistoryPage { next_token: Some("t".to_owned()), ..HistoryPage::default() };
    let first = history(VIEWER, ("sandbox", "a"), &page, "");
    assert!(first.contains("nextToken=t\">Earlier entries") && !first.contains("Newest entries"), "{first}");
    let second = history(VIEWER, ("sandbox", "a"), &HistoryPage::default(), "t");
    assert!(second.contains("/console/targets/sandbox/a/history\">Newest entries"), "{second}");
    assert!(!second.contains("Earlier entries"), "{second}");
}

#[test]
fn an_empty_log_says_so() {
    for (text, state, says) in [("", "", true), ("", "waiting: m", false), ("x\n", "", false)] {
        let page = log(VIEWER, &UnitLogView { log: text, state, ..UnitLogView::default() });
        assert_eq!(page.contains("The log has no lines."), says, "{page}");
        assert_eq!(page.contains("Download"), !text.is_empty(), "{page}");
    }
}

/// Each row has an attempt, the last one, and those to which the page leads.
#[test]
fn a_log_leads_to_other_attempts() {
    let rows: Vec<(u32, u32, Vec<u32>)> = serde_json::from_str(include_str!("../tests/log_links.json")).unwrap();
    for (attempt, last_attempt, others) in rows {
        let page = log(VIEWER, &UnitLogView { attempt, last_attempt, log: "x\n", ..UnitLogView::default() });
        let links = page.split("href=\"").filter_map(|rest| rest.split_once("\">Attempt ")?.1.split(['<', ',']).next());
        let links: Vec<u32> = links.map(|number| number.parse().unwrap()).collect();
        assert_eq!(links, others, "attempt {attempt} of {last_attempt}");
        let leads_on = page.contains(&format!("attempt={last_attempt}\">Attempt {last_attempt}, the last one</a>"));
        assert_eq!(leads_on, attempt < last_attempt, "{page}");
    }
}

#[test]
fn a_rendered_script_is_readable() {
    let value = json!({"run": "r", "unit": "a/b", "kind": "pod", "attempt": 1, "script": "#!/bin/sh\necho \"<b>\"\n"});
    let page = rendering(VIEWER, ("sandbox", "a"), &serde_json::from_value(value).unwrap(), 1);
    assert!(page.contains("#!/bin/sh\necho &quot;&lt;b&gt;&quot;\n</pre>") && !page.contains("\\n"), "{page}");
}

#[test]
fn a_page_of_a_target() {
    let page = target_page::target(VIEWER, true, &detail("db", 3), &why("db"), "stamp");
    let [style, script, icon] = assets::all();
    let page = page.replace(&style.path, "STYLE").replace(&script.path, "SCRIPT").replace(&icon.path, "ICON");
    insta::assert_snapshot!(page.replace("><", ">\n<"));
}
