//! Lists of targets: their pages, their counts, the selection of rows, and what waits.

use super::*;

/// A wait has columns for both parties, for its start and for its end.
#[test]
fn the_waiting_page_shows_who_waits() {
    use ebb_protocol::api::{AwaitedParty, TargetPhase, WaitingParty};

    let mut info = detail("db", 0).info;
    info.waits.push(info.waits[0].clone());
    info.waits[1].waiter = WaitingParty::Target;
    info.waits[1].awaits = AwaitedParty::Operator;
    let row = "<td>units of db: db</td><td><time datetime=\"2026-11-21T09:10:02.123Z\">";
    let update = format!("<td>update db</td>{row}");
    for phase in [TargetPhase::Updating, TargetPhase::Stuck, TargetPhase::Failed] {
        info.phase = phase;
        let targets = std::slice::from_ref(&info);
        let page = waiting(VIEWER, &WaitingView { targets, since: "7", ..WaitingView::default() });
        assert_eq!(page.matches(&update).count(), 1, "{phase:?}: {page}");
        assert!(!page.contains("<td>target db</td>"), "{phase:?}: {page}");
    }
}

/// A list of many targets is bounded, says what its numbers count, and leads to the pages beside it.
#[test]
fn a_long_list_has_pages() {
    let target = detail("db", 1).info;
    let filter = TargetListFilter { q: "db".to_owned(), ..TargetListFilter::default() };
    let view = |page_token, previous, next_token, is_partial| TargetListView {
        counts: &[(ebb_protocol::api::TargetPhase::Failed, 59), (ebb_protocol::api::TargetPhase::Ready, 241)],
        is_partial,
        page_token,
        previous,
        next_token,
        ..list_view(&filter, std::slice::from_ref(&target))
    };
    let (second, third) = ("/console?q=db&amp;nextToken=b\"", "/console?q=db&amp;nextToken=c&amp;previous=b\"");
    let page = targets(VIEWER, &view("b", "", Some("c"), true));
    assert!(page.contains("</span> 59+</a>") && page.contains("counted in the first 300 targets"), "{page}");
    // Targets that were not counted can be stuck.
    assert!(page.contains("stuck</span> 0+</a>"), "{page}");
    assert!(!page.contains("failed</span> 0") && !page.contains("gone</span> 0"), "{page}");
    assert!(page.contains("First page") && !page.contains("Previous page") && page.contains(third), "{page}");
    let page = targets(VIEWER, &view("c", "b", None, false));
    assert!(page.contains("</span> 59</a>") && !page.contains("counted in") && !page.contains("</span> 0"), "{page}");
    assert!(page.contains("Previous page") && page.contains(second) && !page.contains("Next page"), "{page}");
    // From the fourth page, two steps lead back to the second one.
    let fourth = "/console?q=db&amp;nextToken=d&amp;previous=b%20c\"";
    assert!(targets(VIEWER, &view("c", "b", Some("d"), false)).contains(fourth));
    let page = targets(VIEWER, &view("d", "b c", None, false));
    assert!(page.contains(&format!("rel=\"prev\" href=\"{third}")), "{page}");
    let (many, token) = ("k/n ".repeat(2_000), "k/".to_owned() + &"é".repeat(100));
    let page = targets(VIEWER, &view(token.as_str(), many.trim(), Some("e"), false));
    let (_, next) = page.split_once("rel=\"next\" href=\"").unwrap();
    let next = next.split('"').next().unwrap();
    assert!(next.len() < 5_000 && next.contains("previous=k%2Fn%20k%2Fn") && next.ends_with("%C3%A9"), "{next}");
    let page = targets(VIEWER, &view("", "", None, false));
    assert!(!page.contains("First page") && !page.contains("Previous page"), "{page}");
}

/// A list has boxes and buttons for callers who may change targets, and only those whose action is permitted are confirmed.
#[test]
fn targets_are_selected_without_scripts() {
    let target = detail("db", 1).info;
    let filter = TargetListFilter { q: "db".to_owned(), ..TargetListFilter::default() };
    let view =
        |selection| TargetListView { selection, page_token: "p", ..list_view(&filter, std::slice::from_ref(&target)) };
    let none = targets(VIEWER, &view(None));
    assert!(!none.contains("checkbox") && !none.contains(paths::SELECTION), "{none}");
    let some = targets(VIEWER, &view(Some("")));
    assert!(some.contains("name=\"target\" value=\"sandbox/db db\" aria-label=\"sandbox/db\""), "{some}");
    assert!(some.contains("href=\"/console?q=db&amp;nextToken=p&amp;select=all\""), "{some}");
    assert!(some.contains("data-since"), "{some}");
    let all = targets(VIEWER, &view(Some("all")));
    assert!(all.contains("value=\"sandbox/db db\" checked") && !all.contains("data-since"), "{all}");
    let selected = |name: &str| selected_target(&format!("sandbox/{name} u")).unwrap();
    let entries = [(selected("a"), Ok("undone".to_owned())), (selected("b"), Err("not yours".to_owned()))];
    let back = "/console?q=db&nextToken=p";
    assert!(some.contains("name=\"back\" value=\"/console?q=db&amp;nextToken=p\""), "{some}");
    let leads_back = |page: &str, text: &str| page.contains(&format!("href=\"/console?q=db&amp;nextToken=p\">{text}"));
    let page = bulk_confirmation(VIEWER, BulkAction::Delete, &entries, back);
    assert!(leads_back(&page, "Cancel"), "{page}");
    assert!(page.contains("value=\"sandbox/a u\"") && !page.contains("value=\"sandbox/b u\""), "{page}");
    assert!(page.contains("Delete sandbox/a?") && page.contains("Refused: not yours"), "{page}");
    let page = bulk_confirmation(VIEWER, BulkAction::Delete, &entries[1..], back);
    assert!(!page.contains("value=\"delete\"") && page.contains("<h1>Nothing to delete</h1>"), "{page}");
    assert!(leads_back(&page, "Back") && !page.contains("The teardown begins"), "{page}");
    let page = bulk_outcomes(VIEWER, BulkAction::Delete, &entries, back);
    assert!(page.contains("Delete: 1 of 2 targets accepted") && leads_back(&page, "Back"), "{page}");
    let page = bulk_outcomes(VIEWER, BulkAction::Delete, &entries, "https://evil.example");
    assert!(page.contains("href=\"/console\">Back"), "{page}");
}

/// The labels of a target have at most 8 KiB, which would make a list of 100 targets too long.
#[test]
fn a_row_has_few_labels() {
    let mut target = detail("db", 1).info;
    target.labels = (0..50).map(|number| (format!("label{number:02}"), "x".repeat(2_000))).collect();
    let page = targets(VIEWER, &list_view(&TargetListFilter::default(), std::slice::from_ref(&target)));
    assert!(page.contains(&format!("<div>label09={}…</div><div>40 more</div>", "x".repeat(100))), "{page}");
    assert!(!page.contains("label10") && page.len() < 10_000, "{} {page}", page.len());
}
