//! Compares the table of errors in `docs/src/api.md` with the codes of the HTTP API.

use ebb_protocol::error_code::ErrorCode;

use crate::tree;

#[test]
fn the_page_of_the_api_has_each_code() {
    let page = tree::read("docs/src/api.md");
    let (_, table) = page.split_once("| code | status | meaning |\n|---|---|---|\n").expect("a table of errors");
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let row = |code: &ErrorCode| {
        let statuses: Vec<String> = code.statuses().iter().map(u16::to_string).collect();
        format!("| `{}` | {} | {} |", code.name(), statuses.join(", "), code.meaning())
    };
    assert_eq!(rows, ErrorCode::ALL.iter().map(row).collect::<Vec<_>>());
}
