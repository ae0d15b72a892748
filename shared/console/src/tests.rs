//! Pages with hostile values, their sizes, what they show, and a snapshot.

use ebb_protocol::{
    ClusterDetail, HistoryDetail, HistoryPage, NamedTarget, PluginDetail, PluginInfo, RunDetail, SourceInfo,
    SubscriptionDetail, SubscriptionInfo, TargetDetail, TargetDiagnosis, TargetInfo, TargetOutcome, TargetPage,
    Timestamp, parse_rfc3339, words,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

mod picture;

const VIEWER: ConsoleViewer<'static> =
    ConsoleViewer { name: "token ci", display: None, deployment: "ebb.example.com", form_token: "f0rm", hidden: &[] };
const AT: &str = "2026-11-21T09:10:02.123Z";
/// A text that would leave an element, an attribute or a quotation, and that is a URL with code.
const HOSTILE: &str =
    "javascript:alert(1)//\"' onmouseover=alert(2) ><script>alert(3)</script><img src=x onerror=alert(4)>&#x3c;";

/// Returns what a file in `tests` has, with `text` in place of `TEXT`.
fn read<T: DeserializeOwned>(file: &str, text: &str) -> T {
    let quoted = json!(text).to_string();
    let file = file.replace("\"AT\"", &json!(AT).to_string());
    serde_json::from_str(&file.replace("TEXT", &quoted[1..quoted.len() - 1])).unwrap()
}

/// Returns a part of `tests/hostile.json`, which has `text` in each field that others write.
fn part<T: DeserializeOwned>(name: &str, text: &str) -> T {
    let mut parts: Value = read(include_str!("../tests/hostile.json"), text);
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

fn page_of(detail: &TargetDetail, why: &TargetDiagnosis, selected: Option<&SelectedRun>) -> String {
    page_for(true, detail, why, selected)
}

fn page_for(may: bool, detail: &TargetDetail, why: &TargetDiagnosis, selected: Option<&SelectedRun>) -> String {
    let now = Timestamp(parse_rfc3339(AT).unwrap().0 + 60_000);
    let view = TargetView { detail, why, may_change: may, may_override: may, stamp: "stamp", now, selected };
    target_page::target(VIEWER, &view)
}

fn selected(text: &str, units: usize, position: Option<usize>) -> SelectedRun {
    let run: RunDetail = serde_json::from_value(run_value(text, units)).unwrap();
    let unit = position.map(|position| SelectedUnit {
        detail: run.units[position].clone(),
        attempt: 2,
        rendering: Ok(part("rendering", text)),
        log: Some((2, text.to_owned())),
        log_state: text.to_owned(),
    });
    let page_token = unit.is_none().then(String::new);
    SelectedRun { counts: words::unit_counts(&run.units), run, page_token, unit }
}

fn listed(targets: Vec<TargetInfo>, next_token: Option<&str>) -> [TargetPage; 1] {
    [TargetPage { targets, damaged: Vec::new(), outages: Vec::new(), next_token: next_token.map(str::to_owned) }]
}

fn list_view<'a>(filter: &'a TargetListFilter, shown: &'a [TargetPage]) -> TargetListView<'a> {
    let is_partial = shown[0].next_token.is_some();
    TargetListView { filter, counted: shown, is_partial, shown, selection: None, page_token: "", since: "7" }
}

fn pages(text: &str) -> Vec<(String, String)> {
    let rows: Vec<(String, Value)> = read(include_str!("../tests/hostile_pages.json"), text);
    rows.into_iter().map(|(page, given)| (format!("{page} {given}"), shown(text, &page, &given))).collect()
}

fn upgraded(text: &str) -> Vec<BulkEntry> {
    let outcomes: Vec<TargetOutcome> = part("upgrades", text);
    outcomes.into_iter().map(|outcome| bulk_outcome(BulkAction::Upgrade(text), outcome)).collect()
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
                let is_web = url.starts_with("https://") || url.starts_with("http://");
                let leaves = is_web && tag.ends_with(" rel=\"noreferrer noopener\"");
                let is_part = url.starts_with('#') || attribute == " d=\"" && url.starts_with('M');
                assert!(is_local || is_part || leaves, "{name}: {url}");
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
fn pages_are_small() {
    let assets: usize = assets::all().iter().map(|asset| asset.content.len()).sum();
    let text = "tenant-database-of-the-shop";
    let (target, mut why) = (detail(text, 25), why(text));
    let page = page_of(&target, &why, None);
    let list = shown(text, "targets", &json!({"targets": [[100, {}]], "filter": {}, "selection": ""}));
    why.failed = vec![why.failed[0].clone(); 20];
    why.remaining = vec![why.remaining[0].clone(); 200];
    let large = page_of(&detail(text, 200), &why, None);
    for needed in ["25 failed, 25 retrying", "All units", "The first 50 units"] {
        assert!(large.contains(needed), "{needed}: {large}");
    }
    for (name, page, most) in [("target", page, 100_000), ("targets", list, 130_000), ("large target", large, 100_000)]
    {
        assert!(page.len() + assets < most, "{name}: {} + {assets}", page.len());
    }
}

/// A large run has the rows of the units that need attention, of the selected unit, and of others up to its limit.
#[test]
fn a_large_run_is_shortened() {
    let mut target = detail("db", 1_000);
    let of_run = &mut target.runs[0];
    for unit in &mut of_run.units {
        unit.state = ebb_protocol::api::UnitState::Succeeded;
    }
    of_run.units[999].state = ebb_protocol::api::UnitState::Failed;
    let of_unit = SelectedRun { run: of_run.clone(), ..selected("db", 1_000, Some(900)) };
    let page = page_of(&target, &why("x"), None);
    assert!(page.contains(">db/999</a>") && !page.contains(">db/900</a>"), "{page}");
    assert_eq!(page.matches("class=\"bars\"").count(), 60);
    let page = page_of(&target, &why("x"), Some(&of_unit));
    assert!(page.contains(">db/999</a>") && page.contains(">db/900</a>"), "{page}");
}

/// An action is offered, and has consequences, only in a phase in which it has an effect.
#[test]
fn actions_without_effect_are_not_offered() {
    use ebb_protocol::api::TargetPhase::{Failed, Gone, Ready, Starting, Stopping, Stuck, Updating};
    let deletable = [Starting, Ready, Updating, Failed];
    for (action, name, effective) in
        [(BulkAction::Delete, "delete", &deletable[..]), (BulkAction::Retry, "retry", &[Failed, Stuck])]
    {
        for phase in [Starting, Ready, Updating, Failed, Stopping, Stuck, Gone] {
            let (mut target, why) = (detail("db", 1), TargetDiagnosis { phase, ..why("db") });
            target.info.phase = phase;
            let page = page_of(&target, &why, None);
            // While units run, each request renders the page.
            let is_live = page.contains("data-renew-seconds=\"3\" data-full-seconds=\"0\"");
            assert_eq!(is_live, matches!(phase, Starting | Updating | Stopping), "{phase:?}");
            let has_effect = effective.contains(&phase);
            let link =
                format!("href=\"/console/selection?action={name}&amp;target=sandbox%2Fdb%20db&amp;back=%2Fconsole");
            assert_eq!(page.contains(&link), has_effect, "{name} {phase:?}");
            assert_eq!(bulk_consequences(action, &why, None, None).is_ok(), has_effect, "{name} {phase:?}");
            // A retry also starts a unit that waits for a time.
            target.runs[0].state = ebb_protocol::api::RunState::Running;
            let page = page_of(&target, &why, None);
            assert_eq!(page.contains(&link), has_effect || action == BulkAction::Retry, "{name} {phase:?}");
        }
    }
}

/// The steps have the actions that their caller may take. Each row has a step, its commands and the paths of its buttons.
#[test]
fn steps_have_actions() {
    let rows: Vec<(String, Vec<String>, Vec<String>)> =
        serde_json::from_str(include_str!("../tests/steps.json")).unwrap();
    let target = detail("db", 1);
    for (step, commands, expected) in rows {
        let why = TargetDiagnosis { next_steps: vec![step.clone()], ..why("db") };
        for rights in [true, false] {
            let page = page_for(rights, &target, &why, None);
            let (_, steps) = page.split_once("<ol class=\"steps\">").unwrap();
            let (steps, _) = steps.split_once("</ol>").unwrap();
            let values = |name: &str| -> Vec<&str> {
                steps.split(name).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
            };
            assert_eq!(values("data-copy=\""), commands, "{step}");
            assert_eq!(values("href=\"/console/"), if rights { expected.clone() } else { Vec::new() }, "{step}");
        }
    }
}

/// Changes a value: objects field by field, and without the fields that become null.
fn merge(value: &mut Value, changes: &Value) {
    match (value, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(fields.entry(name.clone()).or_insert(Value::Null), change);
            }
            fields.retain(|name, _| !changes.get(name).is_some_and(Value::is_null));
        }
        (value, changes) => value.clone_from(changes),
    }
}

fn merged<T: Serialize + DeserializeOwned>(value: &T, changes: Option<&Value>) -> T {
    let mut value = serde_json::to_value(value).unwrap();
    if let Some(changes) = changes {
        merge(&mut value, changes);
    }
    serde_json::from_value(value).unwrap()
}

fn published(db: &str, name: &str, version: &str) -> PluginDetail {
    let plugin: PluginDetail = part("plugin", db);
    let info = PluginInfo { name: name.to_owned(), version: version.to_owned(), ..plugin.info };
    PluginDetail { info, withdrawn: plugin.withdrawn.filter(|_| version == db), ..plugin }
}

/// Returns the page of a row, with `db` in each field of others that the row does not change.
fn shown(db: &str, page: &str, given: &Value) -> String {
    fn list<T: DeserializeOwned>(value: &Value) -> Vec<T> {
        if value.is_null() { Vec::new() } else { serde_json::from_value(value.clone()).unwrap() }
    }
    let viewer = ConsoleViewer { name: db, display: Some(db), deployment: db, ..VIEWER };
    let text = |name: &str| given[name].as_str().unwrap_or_default();
    let next = given["next"].as_str();
    let infos = list::<(usize, Value)>(&given["targets"]).into_iter();
    let infos = infos.flat_map(|(count, changes)| vec![merged(&detail(db, 0).info, Some(&changes)); count]);
    let mut pages = listed(infos.collect(), next);
    pages[0].damaged = list(&given["damaged"]);
    pages[0].outages = list(&given["outages"]);
    let of_action = || BulkAction::parse(text("action")).unwrap();
    match page {
        "target" => {
            let chosen = given.get("run").map(|changes| {
                let mut chosen = selected(db, 9, given.get("unit").map(|_| 2));
                chosen.run = merged(&chosen.run, Some(changes));
                chosen.page_token = chosen.page_token.map(|_| text("token").to_owned());
                if let Some(unit) = &mut chosen.unit {
                    unit.detail = merged(&unit.detail, given.get("unit"));
                    unit.rendering = Ok(merged(&part("rendering", db), given.get("rendering")));
                }
                chosen
            });
            let target = merged(&detail(db, 9), given.get("target"));
            page_of(&target, &merged(&why(db), given.get("why")), chosen.as_ref())
        }
        "targets" => {
            let filter: Vec<TargetListFilter> = list(&json!([given["filter"]]));
            let (selection, page_token) = (given["selection"].as_str(), text("token"));
            let filter = filter[0].clone().parsed();
            targets(viewer, &TargetListView { selection, page_token, ..list_view(&filter, &pages) })
        }
        "overview" => {
            let sources: Vec<SourceInfo> = list(&given["sources"]);
            let subscriptions: Vec<SubscriptionDetail> = list(&given["subscriptions"]);
            let subscriptions: Vec<SubscriptionInfo> = subscriptions.into_iter().map(|one| one.info).collect();
            let (counted, is_partial, url) = (&pages[..], next.is_some(), "https://ebb.example/");
            let view = OverviewView { counted, is_partial, troubled: counted, url, ..OverviewView::default() };
            overview(viewer, &OverviewView { sources: &sources, subscriptions: &subscriptions, ..view })
        }
        "plugins" | "plugin" => {
            let versions = list::<(String, String)>(&given["versions"]);
            let versions: Vec<PluginDetail> = versions.iter().map(|(name, one)| published(db, name, one)).collect();
            let [TargetPage { targets, .. }] = pages;
            let users = PluginUsers { targets, is_partial: next.is_some(), since: "7".to_owned() };
            let users = (!given["targets"].is_null()).then_some(&users);
            if page == "plugins" {
                let listed: Vec<PluginInfo> = versions.into_iter().map(|one| one.info).collect();
                return plugins(viewer, &listed, users);
            }
            let comparison = given["to"].as_str().map(|to| ("1.0.0", to, text("diff")));
            let (detail, may_upgrade) = (&versions[0], given["reader"].is_null());
            let params: [PluginParam; 1] = [part("param", db)];
            let (versions, params) = (&versions[..], &params[..]);
            plugin(viewer, &PluginView { detail, params, versions, latest: None, users, comparison, may_upgrade })
        }
        "log" => {
            let logs: Vec<(u32, String, String)> = list(&given["logs"]);
            let at = || Some(db.to_owned()).filter(|_| given["at"].is_string());
            let of = |(attempt, log, state)| AttemptLogView {
                unit: db.to_owned(),
                attempt,
                started: at(),
                ended: at(),
                log,
                state,
            };
            let logs: Vec<AttemptLogView> = logs.into_iter().map(of).collect();
            let query = LogQuery { unit: text("unit").to_owned(), q: text("q").to_owned(), ..LogQuery::default() };
            let target = (db, db);
            log(viewer, &LogView { run: "r", target, query: &query, logs: &logs, is_open: true })
        }
        "history" => {
            let entry: HistoryDetail = part("entry", db);
            let (entries, notifications) = (vec![entry.entry], part("notifications", db));
            let page = HistoryPage { next_token: next.map(str::to_owned), entries, notifications };
            history(viewer, ("sandbox", "a"), &page, text("token"))
        }
        "history entry" => history_entry(viewer, (db, db), &part("entry", db)),
        "consequences" => {
            let waiting = given["waiting"].as_str();
            bulk_consequences(of_action(), &merged(&why(db), given.get("why")), waiting, waiting).unwrap()
        }
        "confirmation" | "outcomes" => {
            let of = |(name, text, is_ok): (String, String, bool)| {
                let (kind, uid) = ("sandbox".to_owned(), Some("u".to_owned()));
                let target = NamedTarget { kind, name, uid, ..NamedTarget::default() };
                (target, if is_ok { Ok(text) } else { Err(text) })
            };
            let entries: Vec<BulkEntry> = list(&given["entries"]).into_iter().map(of).collect();
            let entries = if entries.is_empty() { upgraded(db) } else { entries };
            match page {
                "outcomes" => bulk_outcomes(viewer, of_action(), &entries, text("back")),
                _ => bulk_confirmation(viewer, of_action(), &entries, text("back")),
            }
        }
        "failure" => {
            let (back, is_temporary) = (given["back"].as_str(), next.is_some());
            let view = FailureView { title: db, detail: db, back, is_temporary, next_step: None };
            failure(Some(viewer).filter(|_| given["bare"].is_null()), paths::ROOT, view)
        }
        "sign-in" => sign_in(db, db, &[(db, db)], Some((db, Some(db)))),
        "login" => login(viewer, [db; 3], db),
        "logged in" => logged_in(viewer, Some(db)),
        "source" => {
            let effect = TrialEffect { verdict: "apply", ..part("effect", db) };
            let trial = SourceTrial { headers: db, payload: db, fetched: db, effect: Some(Ok(effect)) };
            source_pages::source(viewer, &part("source", db), &trial)
        }
        "cluster" => cluster_pages::cluster(viewer, &part("cluster", db)),
        "subscription" => subscription_pages::subscription(viewer, &part("subscription", db)),
        "sources" => sources(viewer, &list::<SourceInfo>(&given["all"])),
        "subscriptions" => {
            let all: Vec<SubscriptionDetail> = list(&given["all"]);
            subscriptions(viewer, &all.into_iter().map(|one| one.info).collect::<Vec<_>>())
        }
        _ => {
            let all: Vec<ClusterDetail> = list(&given["all"]);
            clusters(viewer, &all.into_iter().map(|one| one.info).collect::<Vec<_>>())
        }
    }
}

/// Each row has a page, what it is made of, and texts that it has and lacks, with `'` in place of `"`.
#[test]
fn pages_show_what_they_are_given() {
    let rows: Vec<(String, Value, Vec<String>, Vec<String>)> = read(include_str!("../tests/pages.json"), "db");
    for (page, given, has, lacks) in rows {
        let shown = shown("db", &page, &given);
        let contains = |text: &String| shown.contains(&text.replace('\'', "\""));
        let wrong: Vec<&String> =
            has.iter().filter(|text| !contains(text)).chain(lacks.iter().filter(|text| contains(text))).collect();
        assert!(wrong.is_empty(), "{page} {given}: {wrong:?}: {shown}");
    }
}

/// The worst is the first, in a phase the newest change. Equal failures are one group.
#[test]
fn a_list_is_ordered() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../tests/rows.json")).unwrap();
    let targets: Vec<(usize, Value)> = rows.into_iter().map(|row| (1, row)).collect();
    let page = shown("db", "targets", &json!({"targets": targets, "filter": {}}));
    let links = page.split("<th scope=\"row\"><a href=\"/console/targets/sandbox/").skip(1);
    let names: Vec<&str> = links.map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(names.join(" "), "b g a s f u i r o");
}

/// Each row has the words of a box, the filter that they are, and the words that the page shows for it.
#[test]
fn words_of_the_search_box_are_a_filter() {
    let rows: Vec<(String, TargetListFilter, String)> =
        serde_json::from_str(include_str!("../tests/searches.json")).unwrap();
    for (text, filter, shown) in rows {
        let parsed = |q: &String| TargetListFilter { q: q.clone(), ..TargetListFilter::default() }.parsed();
        assert_eq!((parsed(&text), parsed(&shown)), (filter.clone(), filter.clone()), "{text}");
        assert_eq!(filter.words().join(" "), shown, "{text}");
    }
}

fn with_assets(page: &str) -> String {
    let [style, script, icon] = assets::all();
    let page = page.replace(&style.path, "STYLE").replace(&script.path, "SCRIPT").replace(&icon.path, "ICON");
    page.replace("><", ">\n<")
}

#[test]
fn a_page_of_a_target() {
    let page = page_of(&detail("db", 3), &why("db"), Some(&selected("db", 3, Some(2))));
    insta::assert_snapshot!(with_assets(&page));
}
