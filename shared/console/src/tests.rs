//! Pages with hostile values, their sizes, what they show, and a snapshot.

use ebb_protocol::{
    ClusterInfo, HistoryDetail, HistoryPage, NamedTarget, PluginDetail, PluginInfo, RunDetail, SourceInfo,
    SubscriptionInfo, TargetDetail, TargetDiagnosis, TargetOutcome, TargetPage, TargetPhase, Timestamp, parse_rfc3339,
    words,
};
use maud::html;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

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

/// Returns the tags of a page, each without its brackets. A `>` in a value is escaped.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect()
}

/// The policy of the pages permits no styles and scripts in a page.
#[test]
fn values_of_others_stay_text() {
    let [_, script, _] = assets::all();
    let script = format!("script type=\"module\" src=\"{}\"", script.path);
    let mut count = 0;
    let rows: Vec<(String, Value)> = read(include_str!("../tests/hostile_pages.json"), HOSTILE);
    for (page, given) in rows {
        let (name, page) = (format!("{page} {given}"), shown(HOSTILE, &page, &given));
        assert!(page.contains("&lt;script&gt;alert(3)"), "{name} does not show the value");
        assert_eq!(tags(&page).iter().filter(|tag| **tag == script).count(), 1, "{name}");
        for tag in tags(&page) {
            // The parts outside of quotation marks are names.
            let names: String = tag.split('"').step_by(2).collect();
            let is_code = |attribute: &str| attribute.starts_with("on") || attribute.starts_with("style");
            let has_code = names.split_whitespace().skip(1).any(is_code);
            assert!(!names.contains("alert") && !has_code, "{name}: <{tag}>");
            let element = names.trim_start_matches('/').split([' ', '=']).next().unwrap();
            let is_known = tag == script || tag == "/script" || element != "script";
            assert!(is_known && !["img", "iframe", "style"].contains(&element), "{name}: <{tag}>");
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

#[test]
fn pages_are_small() {
    let assets: usize = assets::all().iter().map(|asset| asset.content.len()).sum();
    let text = "tenant-database-of-the-shop";
    let (target, mut why) = (detail(text, 25), part::<TargetDiagnosis>("why", text));
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
    let page = page_of(&target, &part("why", "x"), None);
    assert!(page.contains(">db/999</a>") && !page.contains(">db/900</a>"), "{page}");
    assert_eq!(page.matches("class=\"bars\"").count(), 60);
    let page = page_of(&target, &part("why", "x"), Some(&of_unit));
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
            let (mut target, why) = (detail("db", 1), TargetDiagnosis { phase, ..part("why", "db") });
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
        let why = TargetDiagnosis { next_steps: vec![step.clone()], ..part("why", "db") };
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
    let (damaged, outages) = (list(&given["damaged"]), list(&given["outages"]));
    let pages = [TargetPage { targets: infos.collect(), damaged, outages, next_token: next.map(str::to_owned) }];
    let (counted, is_partial) = (&pages[..], next.is_some());
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
            page_of(&target, &merged(&part("why", db), given.get("why")), chosen.as_ref())
        }
        "targets" => {
            let filter: TargetListFilter = serde_json::from_value(given["filter"].clone()).unwrap();
            let (filter, selection, page_token) = (&filter.parsed(), given["selection"].as_str(), text("token"));
            let (shown, since) = (counted, "7");
            targets(viewer, &TargetListView { filter, counted, is_partial, shown, selection, page_token, since })
        }
        "overview" => {
            let sources: Vec<SourceInfo> = list(&given["sources"]);
            let subscriptions: Vec<SubscriptionInfo> = list(&given["subscriptions"]);
            let (sources, subscriptions, url) = (&sources[..], &subscriptions[..], "https://ebb.example/");
            let (plugin, now) = (given["plugin"].as_str(), parse_rfc3339(AT).unwrap());
            let view =
                OverviewView { counted, is_partial, sources, subscriptions, url, plugin, now, ..Default::default() };
            overview(viewer, &OverviewView { troubled: counted, ..view })
        }
        "plugins" | "plugin" => {
            let published = |(name, version): (String, String)| {
                let PluginDetail { info, withdrawn, document } = part("plugin", db);
                let withdrawn = withdrawn.filter(|_| version == db);
                PluginDetail { info: PluginInfo { name, version, ..info }, withdrawn, document }
            };
            let versions: Vec<PluginDetail> = list(&given["versions"]).into_iter().map(published).collect();
            let [TargetPage { targets, .. }] = pages;
            let users = PluginUsers { targets, is_partial, since: "7".to_owned() };
            let users = (!given["targets"].is_null()).then_some(&users);
            if page == "plugins" {
                let listed: Vec<PluginInfo> = versions.into_iter().map(|one| one.info).collect();
                return plugins(viewer, &listed, users, given["reader"].is_null());
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
            let of = |(attempt, log, state)| {
                let (unit, started, ended) = (db.to_owned(), at(), at());
                AttemptLogView { unit, attempt, started, ended, log, state }
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
            bulk_consequences(of_action(), &merged(&part("why", db), given.get("why")), waiting, waiting).unwrap()
        }
        "confirmation" | "outcomes" => {
            let of = |(name, text, is_ok): (String, String, bool)| {
                let (kind, uid) = ("sandbox".to_owned(), Some("u".to_owned()));
                let target = NamedTarget { kind, name, uid, ..NamedTarget::default() };
                (target, if is_ok { Ok(text) } else { Err(text) })
            };
            let outcomes: Vec<TargetOutcome> = part("upgrades", db);
            let upgraded = outcomes.into_iter().map(|outcome| bulk_outcome(BulkAction::Upgrade(db), outcome));
            let entries: Vec<BulkEntry> = list(&given["entries"]).into_iter().map(of).collect();
            let entries = if entries.is_empty() { upgraded.collect() } else { entries };
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
        "subscriptions" => subscriptions(viewer, &list::<SubscriptionInfo>(&given["all"])),
        _ => clusters(viewer, &list::<ClusterInfo>(&given["all"])),
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

/// The worst is the first, in a phase the newest change. Equal failures are one group. A column gives another order.
#[test]
fn a_list_is_ordered() {
    let rows: Vec<Value> = serde_json::from_str(include_str!("../tests/rows.json")).unwrap();
    let targets: Vec<(usize, Value)> = rows.into_iter().map(|row| (1, row)).collect();
    let orders: Vec<[String; 2]> = serde_json::from_str(include_str!("../tests/orders.json")).unwrap();
    for [sort, expected] in orders {
        let page = shown("db", "targets", &json!({"targets": targets, "filter": {"sort": sort}}));
        let links = page.split("<th scope=\"row\"><a href=\"/console/targets/sandbox/").skip(1);
        let names: Vec<&str> = links.map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(names.join(" "), expected, "{sort}");
    }
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
    page.replace(&style.path, "STYLE").replace(&script.path, "SCRIPT").replace(&icon.path, "ICON")
}

#[test]
fn a_page_of_a_target() {
    let page = page_of(&detail("db", 3), &part("why", "db"), Some(&selected("db", 3, Some(2))));
    insta::assert_snapshot!(with_assets(&page).replace("><", ">\n<"));
}

/// Chromium takes the pictures of the book from these snapshots. The files have the answers of `GET /v1/targets/sandbox/NAME`
/// and of its `/why`, with the run that a page shows.
#[test]
fn recorded_pages() {
    let mut shown = Vec::new();
    for file in [include_str!("../tests/failed-target.json"), include_str!("../tests/ready-target.json")] {
        let mut recorded: Value = serde_json::from_str(file).unwrap();
        let detail: TargetDetail = serde_json::from_value(recorded["target"].take()).unwrap();
        let why: TargetDiagnosis = serde_json::from_value(recorded["why"].take()).unwrap();
        shown.push((page_of(&detail, &why, None), detail, why));
    }
    let parts = parts(&shown[0].1, &shown[0].2);
    for (name, page) in [("failed_target", &shown[0].0), ("ready_target", &shown[1].0), ("parts", &parts)] {
        insta::assert_snapshot!(name, with_assets(page).replace("<tr", "\n<tr").replace("<section", "\n<section"));
    }
}

/// Returns a page with each part of the design.
fn parts(detail: &TargetDetail, why: &TargetDiagnosis) -> String {
    let states =
        ["waiting", "running", "retrying", "succeeded", "skipped", "blocked", "cancelled", "up", "down", "denied"];
    let states = TargetPhase::ALL.iter().map(|phase| phase.name()).chain(states);
    let buttons = html! { a.button.primary href="#" { "Primary" } a.button href="#" { "Plain" } a.button.danger href="#" { "Danger" } };
    let now = Timestamp(parse_rfc3339(&detail.info.since).unwrap().0);
    let view = TargetView { detail, why, may_change: true, may_override: true, stamp: "", now, selected: None };
    let facts = html! { span { "A fact" } span { (texts::time(AT)) } span { (texts::link("https://ebb.example/")) } };
    let rows =
        states.map(|state| html! { th scope="row" { (state) } td { (texts::state(&state)) } td.number { "1,234" } });
    let filter = TargetListFilter { q: "phase:failed team=maps text".to_owned(), ..Default::default() }.parsed();
    let query = LogQuery { unit: "db/make".to_owned(), ..LogQuery::default() };
    let log = (30..37).map(|code| format!("\u{1b}[{code}mcolour {code}\u{1b}[0m and plain\n")).collect();
    let main = html! {
        (frame::head(&html! { "Parts " (texts::state(&"ready")) }, &facts, &buttons))
        p.problem { "A problem with " a href="#" { "a link" } }
        p.none { "Nothing, " span.kind { "dim" } " and " span.masked { "(sensitive)" } ", " kbd { "j" } }
        (target_list::search(&filter, &[]))
        ul.stats { li { a.stat href="#" { b { "128" } span { "ready" } } } li { a.stat href="#" { b { "9 s" } span { "time to ready, p50" } } } }
        (frame::section("States", &frame::table("States", &["Name", "State", "Number"], rows)))
        (frame::section("Waterfall", &waterfall::waterfall(&view, &detail.runs[0])))
        section {
            h2 { "Values" }
            p { (texts::copy("ebb apply -f sandbox.yaml")) }
            p { (texts::progress("45 % of rows")) }
            pre.listing.difference { del { "-old" } "\n" ins { "+new" } "\n" }
            (log_pages::listing("Log", &AttemptLogView { log, ..Default::default() }, &query))
        }
        (frame::empty("Nothing is here.", &["ebb plugin new notes"], "first-hour.html"))
    };
    frame::page(VIEWER, paths::ROOT, "Parts", PageRenewal::NEVER, &main)
}
