//! Tests of `ebb top`: its pictures and its state after keys and answers.

use ebb_protocol::api::{RunState, TargetDetail, TargetInfo, TargetPhase, TargetSelector, UnitState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::change::ChangeVerb;
use super::draw::draw;
use super::page::{PageContent, PageUnit, TargetPage, TargetView};
use super::state::{TopAnswer, TopEvent, TopInput, TopPoll, TopState};
use crate::progress::fixtures;
use crate::{Exit, ScreenSize, TargetRef};

const SINCE: &str = "2026-11-21T09:00:00Z";
/// A sequence for terminals, an override of the direction of text, and a forged line.
const HOSTILE: &str = "a\u{1b}]52;c;aGk=\u{7}\u{202e}b\rc\n127.0.0.1:7878  forged";

fn sandboxes() -> TargetSelector {
    TargetSelector { kind: Some("sandbox".to_owned()), ..TargetSelector::default() }
}

fn state(width: usize, height: usize) -> TopState {
    let mut state = TopState::new("127.0.0.1:7878".to_owned(), sandboxes(), ScreenSize { width, height });
    state.now = fixtures::NOW.parse().unwrap();
    state
}

fn target(name: &str, phase: &str) -> TargetInfo {
    let plugins = vec!["db@1.0.0".to_owned()];
    TargetInfo { name: name.to_owned(), plugins, ..fixtures::target(phase, SINCE).info }
}

fn list() -> TopAnswer {
    let (owner, first_cause) = (Some("token ci".to_owned()), Some("db/make: no space".to_owned()));
    let failed = TargetInfo { owner, first_cause, ..target("pr-1", "failed") };
    TopAnswer::List(vec![failed, target("pr-2", "ready")], Vec::new())
}

fn listed(width: usize, height: usize, phase: &str) -> TopState {
    answered(state(width, height), TopAnswer::List(vec![target("pr-1", phase)], Vec::new()))
}

fn detail(phase: &str, hook: &str, units: &[(&str, UnitState)]) -> TargetDetail {
    let units = units.iter().map(|(key, state)| fixtures::unit(key, *state)).collect();
    let runs = vec![fixtures::run("k", hook, RunState::Failed, SINCE, units)];
    TargetDetail { info: target("pr-1", phase), runs, ..fixtures::target(phase, SINCE) }
}

/// Returns a target whose teardown has two failed units.
fn stuck() -> TargetDetail {
    let units = [("db/drop", UnitState::Failed), ("db/keep", UnitState::Succeeded), ("cache/drop", UnitState::Failed)];
    detail("stuck", "postStop", &units)
}

fn page(detail: TargetDetail, content: PageContent) -> TopAnswer {
    TopAnswer::Page(Box::new(TargetPage { detail, content }))
}

fn tree(detail: TargetDetail) -> TopAnswer {
    page(detail, PageContent::Tree)
}

fn why(detail: TargetDetail, text: &str) -> TopAnswer {
    page(detail, PageContent::Why(text.to_owned()))
}

/// Returns the log of one of two units.
fn log(phase: &str, text: &str, shown: usize) -> TopAnswer {
    let units = [("db/make", UnitState::Succeeded), ("db/seed", UnitState::Succeeded)];
    let content = PageContent::Log { shown, attempt: 2, text: text.to_owned() };
    page(detail(phase, "preStart", &units), content)
}

/// Answers the present poll.
fn answered(state: TopState, answer: TopAnswer) -> TopState {
    let poll = state.poll();
    state.update(TopEvent::Answered(poll, Ok(answer)))
}

/// Presses the keys of a text. A line break is Enter, and the control character of Escape is Esc.
fn pressed(state: TopState, keys: &str) -> TopState {
    keys.chars().fold(state, |state, key| {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            '↑' => KeyCode::Up,
            '↓' => KeyCode::Down,
            '←' => KeyCode::Left,
            '→' => KeyCode::Right,
            key => KeyCode::Char(key),
        };
        state.update(TopEvent::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    })
}

/// Returns the lines of the screen.
fn picture(state: &TopState) -> String {
    let ScreenSize { width, height } = state.size;
    let backend = TestBackend::new(u16::try_from(width).unwrap(), u16::try_from(height).unwrap());
    let mut terminal = Terminal::new(backend).unwrap();
    terminal.draw(|frame| draw(state, fixtures::NOW.parse().unwrap(), frame)).unwrap();
    let lines = terminal.backend().buffer().content().chunks(width);
    let line = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
    lines.map(|cells| line(cells).trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn assert_shows(state: &TopState, expected: &str) {
    let text = picture(state);
    assert!(text.contains(expected), "{text}");
}

#[test]
fn the_list_has_one_row_for_each_target() {
    insta::assert_snapshot!(picture(&answered(state(80, 7), list())));
}

#[test]
fn enter_shows_the_tree_of_the_selected_target() {
    let open = pressed(answered(state(100, 12), list()), "↓\n");
    let target = TargetRef { kind: "sandbox".to_owned(), name: "pr-2".to_owned() };
    assert_eq!(open.poll(), TopPoll::Page(target, TargetView::Tree, None));
    assert_shows(&open, "loading…");
    let open = answered(open, tree(fixtures::busy()));
    insta::assert_snapshot!(picture(&open));
    let list = pressed(open, "\u{1b}");
    assert_eq!((list.poll(), list.ended), (TopPoll::List(sandboxes()), None));
    assert_eq!(pressed(list, "\u{1b}").ended, Some(Exit::Done));
}

#[test]
fn the_tree_begins_with_others_that_wait() {
    let mut seen = fixtures::busy();
    seen.runs[0].units.truncate(1);
    let waits = json!([
        {"waiter": "target", "awaits": "units", "awaitedName": "preStart", "release": "the units end"},
        {"waiter": "update", "waiterName": "4", "awaits": "units", "awaitedName": "preStart", "since": fixtures::NOW,
         "release": "the present run ends"},
    ]);
    seen.info.waits = serde_json::from_value(waits).unwrap();
    let open = answered(pressed(answered(state(100, 7), list()), "\n"), tree(seen));
    insta::assert_snapshot!(picture(&open));
}

#[test]
fn keys_end_the_program() {
    assert_eq!(pressed(state(80, 7), "q").ended, Some(Exit::Done));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state(80, 7).update(TopEvent::Key(interrupt)).ended, Some(Exit::Interrupted));
    // In a filter, `q` is a letter.
    assert_eq!(pressed(state(80, 7), "/q").ended, None);
}

#[test]
fn a_change_is_made_after_a_confirmation_that_names_its_consequence() {
    let asked = pressed(answered(state(60, 12), list()), "d");
    insta::assert_snapshot!(picture(&asked));
    let (failed, stuck_list) = (|| listed(120, 12, "failed"), || listed(120, 12, "stuck"));
    let page = |key: &str, answer| answered(pressed(stuck_list(), key), answer);
    for (begun, keys, question, expected) in [
        (
            failed(),
            "r",
            "Retry sandbox/pr-1 (failed) on 127.0.0.1:7878? Its failed units run again and repeat their scripts \
             and requests.",
            (ChangeVerb::Retry, "", ""),
        ),
        (pressed(failed(), "w"), "d", "Delete sandbox/pr-1 (failed) on 127.0.0.1:7878? ", (ChangeVerb::Delete, "", "")),
        (
            stuck_list(),
            "p1.0.1\n",
            "Retry sandbox/pr-1 (stuck) on 127.0.0.1:7878 with db@1.0.1? The undo scripts and requests of this version replace \
             those of the target, and its failed units run again.",
            (ChangeVerb::RetryWith, "", "db@1.0.1"),
        ),
        (
            stuck_list(),
            "fgone\n",
            "Force-delete sandbox/pr-1 (stuck) on 127.0.0.1:7878, reason: gone? Its teardown is given up, and its resources \
             of db@1.0.0 may remain. ",
            (ChangeVerb::ForceDelete, "", "gone"),
        ),
        // The API needs a reason, so Enter after a blank one has no effect.
        (
            page("\n", tree(stuck())),
            "→→c \nby hanf\u{8}d\n",
            "Mark cache/drop as complete in sandbox/pr-1 (stuck) on 127.0.0.1:7878, reason: by hand? Its teardown continues \
             without the unit, and what the unit has to remove may remain. This cannot be undone. y yes",
            (ChangeVerb::ForceComplete, "cache/drop", "by hand"),
        ),
        (
            page("w", why(stuck(), "no space\n")),
            "→cx\n",
            "Mark cache/drop as complete in ",
            (ChangeVerb::ForceComplete, "cache/drop", "x"),
        ),
        (
            page("l", log("stuck", "made\n", 1)),
            "cx\n",
            "Mark db/seed as complete in ",
            (ChangeVerb::ForceComplete, "db/seed", "x"),
        ),
    ] {
        let asked = pressed(begun, keys);
        let shown = picture(&asked).replace('\n', " ");
        assert!(shown.contains(question) && asked.confirmed.is_none(), "{shown}");
        let sent = pressed(asked, "y").confirmed.unwrap();
        assert_eq!((sent.verb, sent.unit.as_str(), sent.text.trim()), expected);
        assert_eq!(sent.target.name, "pr-1");
    }
    for other in ["dn", "d\n", "d\u{1b}", "dq", "p1\u{1b}", "p1\nn", "fg\u{1b}", "fg\nn"] {
        let kept = pressed(stuck_list(), other);
        assert!(kept.confirmed.is_none() && kept.input.is_none() && kept.ended.is_none(), "{other:?}");
        assert_shows(&kept, "Nothing was changed");
    }
    // Without a target there is nothing to confirm.
    assert!(pressed(state(60, 12), "d").input.is_none());
}

#[test]
fn the_page_of_a_stuck_target_names_a_failed_unit() {
    let listed = || listed(120, 9, "stuck");
    assert!(picture(&listed()).ends_with("r retry  p repair  d delete  f force-delete  / filter  q quit"));
    let shown = answered(pressed(listed(), "\n"), tree(stuck()));
    let text = picture(&shown);
    assert!(text.starts_with("127.0.0.1:7878  sandbox/pr-1  unit db/drop (1 of 2 failed)\n"), "{text}");
    let keys = "←→ unit  w why  l logs  r retry  p repair  c complete  d delete  f force-delete  Esc back  q quit";
    assert!(text.ends_with(keys), "{text}");
    let asked = pressed(shown, "→→c");
    assert_shows(&asked, "  unit cache/drop (2 of 2 failed)\n");
    let prompt = "\nMark cache/drop as complete in sandbox/pr-1 (stuck) on 127.0.0.1:7878: reason: _\n\
                  Enter continue  Esc cancel";
    assert_shows(&asked, prompt);
    // The list shows no units, and this page none yet.
    assert!(pressed(listed(), "c").input.is_none());
    let loading = pressed(listed(), "\nc");
    assert!(loading.input.is_none());
    assert_shows(&loading, "error: no failed unit of sandbox/pr-1 is shown");
}

/// A server would reject these changes. Of a target that is gone, no resources would be removed.
#[test]
fn changes_that_a_phase_excludes_are_not_asked_for() {
    for (phase, keys, reason) in [
        ("failed", "pf", "sandbox/pr-1 (failed): this key is for a target whose teardown is stuck"),
        ("gone", "rdpf", "sandbox/pr-1 is gone"),
    ] {
        for key in keys.chars() {
            let refused = pressed(listed(120, 9, phase), &key.to_string());
            assert!(refused.input.is_none(), "{phase} {key}");
            assert_shows(&refused, &format!("error: {reason}\n"));
        }
    }
}

#[test]
fn the_end_of_a_typed_text_is_visible() {
    let listed = || listed(30, 8, "stuck");
    let typed = pressed(listed(), &format!("f{}end", "x".repeat(490)));
    let text = picture(&typed).replace('\n', "");
    assert!(text.ends_with("xend_Enter continue  Esc cancel"), "{text}");
    let filter = picture(&pressed(state(10, 8), &format!("/{}end", "x".repeat(90)))).replace('\n', "");
    assert!(filter.contains("xend_"), "{filter}");
    let most = pressed(listed().update(TopEvent::Resized(120, 30)), &format!("f{}\ny", "x".repeat(600)));
    assert_eq!(most.confirmed.unwrap().text.len(), 500);
}

/// A text with `d` and `y` would delete the selected target.
#[test]
fn a_pasted_text_presses_no_keys() {
    let pasted = |state: TopState, text: &str| state.update(TopEvent::Pasted(text.to_owned()));
    let page = pasted(listed(80, 9, "stuck"), "dy\n");
    assert!(page.input.is_none() && page.confirmed.is_none());
    let question = pasted(pressed(page, "d"), "y");
    assert!(question.confirmed.is_none() && matches!(question.input, Some(TopInput::Confirm(_))));
    let filter = pasted(pressed(state(80, 9), "/"), "pr-\u{1b}1\r\n");
    assert_shows(&filter, "filter: pr- 1_\n");
    let reason = pasted(pressed(pressed(question, "n"), "f"), &"x\n".repeat(400));
    assert!(reason.confirmed.is_none());
    let sent = pressed(reason.update(TopEvent::Resized(120, 30)), "\ny").confirmed.unwrap();
    assert_eq!(sent.text, "x ".repeat(250));
}

#[test]
fn the_result_of_a_change_stays_until_the_next_key() {
    let error = Err("sandbox/pr-1: the request needs the scope targets:write".to_owned());
    let refused = answered(answered(state(80, 9), list()).update(TopEvent::Changed(error)), list());
    assert_shows(&refused, "error: sandbox/pr-1: the request needs the scope targets:write\n");
    assert!(!picture(&pressed(refused, "↓")).contains("error"));
}

#[test]
fn an_error_is_shown_until_the_next_answer() {
    let error = Err("no server responds at http://127.0.0.1:7878/".to_owned());
    let shown = answered(state(80, 9), list());
    let poll = shown.poll();
    let silent = shown.update(TopEvent::Answered(poll, error));
    assert_shows(&silent, "error: no server responds at http://127.0.0.1:7878/; trying again");
    // The last list is kept.
    assert_shows(&silent, "> pr-1");
    assert!(!picture(&answered(silent, list())).contains("error"));
}

#[test]
fn warnings_of_the_list_are_counted() {
    let warnings = ["cluster eu has not responded", "cannot read a target"].map(str::to_owned).to_vec();
    let text = picture(&answered(state(80, 9), TopAnswer::List(Vec::new(), warnings)));
    assert!(text.contains("warning: cluster eu has not responded (and 1 more)"), "{text}");
    assert!(text.starts_with("127.0.0.1:7878  no targets"), "{text}");
}

#[test]
fn the_answer_to_another_page_is_not_shown() {
    let list_poll = state(80, 9).poll();
    let opened = pressed(answered(state(80, 9), list()), "w");
    let late = opened.update(TopEvent::Answered(list_poll, Ok(TopAnswer::List(Vec::new(), Vec::new()))));
    assert_eq!(late.targets.len(), 2);
    let shown = answered(late, why(detail("failed", "preStart", &[]), "sandbox/pr-1 has failed: no space\n"));
    assert!(picture(&shown).starts_with("127.0.0.1:7878  sandbox/pr-1  why\nsandbox/pr-1 has failed: no space\n"));
}

#[test]
fn a_filter_is_applied_by_the_server() {
    let typed = pressed(answered(state(80, 9), list()), "/dbx\u{8}");
    assert_shows(&typed, "filter: db_\nEnter apply  Esc cancel");
    assert_eq!(typed.poll(), TopPoll::List(sandboxes()));
    let filtered = pressed(typed, "\n");
    let selection = TargetSelector { text: Some("db".to_owned()), ..sandboxes() };
    assert_eq!(filtered.poll(), TopPoll::List(selection.clone()));
    assert!(picture(&filtered).starts_with("127.0.0.1:7878  2 targets: 1 failed, 1 ready  filter: db\n"));
    let cancelled = pressed(filtered, "/x\u{1b}");
    assert_eq!(cancelled.poll(), TopPoll::List(selection));
    let all = pressed(cancelled, "\u{1b}");
    assert_eq!((all.poll(), all.ended), (TopPoll::List(sandboxes()), None));
}

#[test]
fn the_selected_target_stays_selected_and_visible() {
    let numbered = |from: usize| (from..from + 100).map(|number| target(&format!("pr-{number:03}"), "ready")).collect();
    let many = answered(state(80, 10), TopAnswer::List(numbered(0), Vec::new()));
    let moved = pressed(many, &"j".repeat(50));
    assert_shows(&moved, "> pr-050");
    // Other targets precede it.
    let later = answered(moved, TopAnswer::List(numbered(20), Vec::new()));
    assert_eq!((later.selected, later.targets[later.selected].name.as_str()), (30, "pr-050"));
    let mut resized = later;
    for (width, height) in [(80, 4), (20, 3), (1, 1), (40, 12), (200, 60)] {
        resized = resized.update(TopEvent::Resized(width, height));
        let text = picture(&resized);
        assert!(height < 6 || text.contains("> pr-050"), "{width}x{height}: {text}");
    }
    let last = pressed(resized, "G↓");
    assert_shows(&last, "> pr-119");
    assert_shows(&pressed(last, "g↑"), "> pr-020");
}

#[test]
fn a_narrow_screen_lacks_columns_and_keeps_names() {
    let text = picture(&answered(state(40, 12), list()));
    let expected = "  TARGET  PHASE   FOR    FIRST CAUSE, WA\n> pr-1    failed  10.0s  db/make: no spa\n";
    assert!(text.contains(expected), "{text}");
    let text = picture(&answered(state(20, 4), list()));
    assert!(text.contains("> pr-1    failed") && text.starts_with("127.0.0.1:7878"), "{text}");
}

/// The server and the beginning of a name are not enough to confirm a deletion.
#[test]
fn a_question_without_its_end_cannot_be_confirmed() {
    let asked = pressed(answered(state(60, 12), list()), "d");
    let small = asked.update(TopEvent::Resized(10, 3));
    assert!(picture(&small).ends_with("any key:"), "{}", picture(&small));
    let kept = pressed(small, "y");
    assert!(kept.confirmed.is_none() && kept.input.is_none());
    let again = pressed(kept.update(TopEvent::Resized(60, 12)), "d").update(TopEvent::Resized(30, 9));
    assert!(pressed(again, "y").confirmed.is_some());
}

#[test]
fn targets_that_need_a_person_are_the_first() {
    let named = [("a", "ready"), ("b", "failed"), ("c", "starting"), ("d", "stuck"), ("e", "failed")];
    let targets = named.map(|(name, phase)| target(name, phase)).to_vec();
    let listed = answered(state(160, 12), TopAnswer::List(targets, Vec::new()));
    let names: Vec<&str> = listed.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["d", "b", "e", "c", "a"]);
    assert_shows(&pressed(listed, "d"), "a deletion does not run it again");
}

/// The change that is confirmed is one of the instance in the question, also if the list shows another one meanwhile.
#[test]
fn a_confirmation_is_for_the_instance_of_the_question() {
    let other = TargetInfo { uid: "b".to_owned(), ..target("pr-1", "ready") };
    let asked = answered(pressed(listed(80, 9, "ready"), "d"), TopAnswer::List(vec![other], Vec::new()));
    assert_eq!(pressed(asked, "y").confirmed.unwrap().target.uid, "a");
}

/// Without the new phase, the question after a retry would name the old one.
#[test]
fn a_question_names_the_present_phase() {
    for (key, answer) in [("w", why(detail("ready", "preStart", &[]), "ready\n")), ("l", log("ready", "made\n", 0))] {
        let shown = answered(pressed(answered(state(80, 12), list()), key), answer);
        assert_shows(&pressed(shown, "d"), "Delete sandbox/pr-1 (ready) on");
    }
}

#[test]
fn a_log_is_followed_at_its_end() {
    let lines = |count: usize| (1..=count).map(|number| format!("line {number}\n")).collect::<String>();
    let followed = answered(pressed(answered(state(80, 5), list()), "l"), log("ready", &lines(9), 0));
    insta::assert_snapshot!(picture(&followed));
    let page = |state: &TopState| picture(state).lines().skip(1).take(3).collect::<Vec<_>>().join(" ");
    let followed = answered(followed, log("ready", &lines(10), 0));
    assert_eq!(page(&followed), "line 8 line 9 line 10");
    let scrolled = answered(pressed(followed, "↑↑"), log("ready", &lines(20), 0));
    assert_eq!(page(&scrolled), "line 6 line 7 line 8");
    let end = answered(pressed(scrolled, "G"), log("ready", &lines(30), 0));
    assert_eq!(page(&end), "line 28 line 29 line 30");
}

#[test]
fn arrows_choose_the_unit_of_a_log() {
    let chosen = |state: &TopState| match state.poll() {
        TopPoll::Page(_, TargetView::Log, unit) => unit.map(|PageUnit { key, .. }| key),
        other => panic!("{other:?}"),
    };
    let first = answered(pressed(answered(state(80, 5), list()), "l"), log("ready", "a\n", 0));
    assert_eq!(chosen(&first), None);
    let next = pressed(first, "→");
    assert_eq!(chosen(&next).as_deref(), Some("db/seed"));
    let last = pressed(answered(next, log("ready", "b\n", 1)), "→");
    assert_eq!(chosen(&last).as_deref(), Some("db/seed"));
}

/// The last characters of long names are visible, and so is what is below and beside them.
#[test]
fn nothing_is_cut_on_a_narrow_screen() {
    let long = |end: &str| target(&format!("{}{end}", "preview-".repeat(7)), "failed");
    let listed = answered(state(40, 14), TopAnswer::List(vec![long("123456"), long("123457")], Vec::new()));
    let text = picture(&listed);
    assert!(text.contains("> preview-previ…preview-123456  failed\n  preview-previ…preview-123457  failed"), "{text}");
    assert!(text.ends_with("↑↓ select  Enter open  w why  l logs\nr retry  d delete  / filter  q quit"), "{text}");
    let shown = pressed(answered(pressed(listed, "\n"), tree(fixtures::busy())), "jjjjj");
    insta::assert_snapshot!(picture(&shown));
    let log = picture(&answered(pressed(shown, "l"), log("ready", "made\n", 1)));
    let lines = "127.0.0.1:7878  sandbox/pr-1  log of\npreStart db/seed, attempt 2 (2 of 2)\nmade\n";
    assert!(log.starts_with(lines), "{log}");
}

#[test]
fn texts_of_others_do_not_control_the_screen() {
    let hostile = || {
        let (owner, first_cause) = (Some(HOSTILE.to_owned()), Some(HOSTILE.to_owned()));
        TargetInfo { owner, first_cause, plugins: vec![HOSTILE.to_owned()], ..target(HOSTILE, "failed") }
    };
    let list = || answered(state(200, 12), TopAnswer::List(vec![hostile()], vec![HOSTILE.to_owned()]));
    let teardown = || {
        let stuck = TargetInfo { phase: TargetPhase::Stuck, ..hostile() };
        answered(state(200, 12), TopAnswer::List(vec![stuck], Vec::new()))
    };
    let seen = TargetDetail { info: hostile(), ..fixtures::waiting(HOSTILE) };
    for (name, shown) in [
        ("list", list()),
        ("filter", pressed(list(), "/\u{202e}\u{9b}")),
        ("question", pressed(list(), "d")),
        ("version", pressed(teardown(), "p")),
        ("reason", pressed(teardown(), "f\u{202e}\u{9b}")),
        ("question with a reason", pressed(teardown(), "f\u{202e}\n")),
        ("tree", answered(pressed(list(), "\n"), tree(seen))),
        ("change", list().update(TopEvent::Changed(Err(HOSTILE.to_owned())))),
        ("error", list().update(TopEvent::Answered(TopPoll::List(sandboxes()), Err(HOSTILE.to_owned())))),
    ] {
        let text = picture(&shown);
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{name}: {text:?}");
        assert!(text.contains('\u{fffd}'), "{name} shows no text of others: {text}");
        assert_eq!(text.matches("\n127.0.0.1:7878  forged").count(), 0, "{name}: {text}");
    }
}
