//! Compares the codes of errors of the HTTP API with the table of `docs/src/api.md`.

use std::collections::BTreeSet;

use crate::tree;

/// The text before a code in the source, with the crate of the file.
const BEFORE: [(&str, &str); 3] =
    [("shared/api/", "StatusCode::"), ("shared/flow/", "Conflict("), ("shared/relay_client/", "Conflict(")];

/// Returns the code after `BEFORE`: `CONFLICT, "already-exists"` or `"stale"`.
fn code(rest: &str) -> Option<&str> {
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_' || c == ',' || c.is_whitespace());
    let code = rest.strip_prefix('"')?.split('"').next()?;
    (!code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')).then_some(code)
}

#[test]
fn the_page_of_the_api_has_each_code() {
    let page = tree::read("docs/src/api.md");
    let mut codes = BTreeSet::new();
    for file in tree::sources().filter(|file| file.contains("/src/") && !file.contains("/tests")) {
        let text = tree::read(file);
        for (_, before) in BEFORE.iter().filter(|(folder, _)| file.starts_with(folder)) {
            codes.extend(text.split(before).skip(1).filter_map(code).map(str::to_owned));
        }
    }
    assert!(codes.len() > 30, "{codes:?}");
    let missing: Vec<_> = codes.iter().filter(|code| !page.contains(&format!("\n| `{code}` | "))).collect();
    assert!(missing.is_empty(), "docs/src/api.md, *Errors*, lacks {missing:?}");
}
