//! States, times and values as text.

use ebb_protocol::{OutputValue, limits, words};
use maud::{Markup, html};
use serde::Serialize;

pub(crate) use ebb_protocol::words::{name as word, reason};

const MAX_VALUE: usize = 2_000;

/// Returns a state as a label. The text has the state, and the colour of its class repeats it.
pub(crate) fn state(state: &impl Serialize) -> Markup {
    let word = word(state);
    html! { span class={ "state " (word) } { (word) } }
}

/// Returns a time of the API, such as `2026-11-21T09:10:02.123Z`, in UTC. Another text stays as it is.
pub(crate) fn time(at: &str) -> Markup {
    let shown = match (at.get(..10), at.get(11..19)) {
        (Some(date), Some(clock)) if at.ends_with('Z') => format!("{date} {clock}"),
        _ => at.to_owned(),
    };
    html! { time datetime=(at) { (shown) } }
}

pub(crate) fn time_if_any(at: Option<&String>) -> Markup {
    html! { @if let Some(at) = at { (time(at)) } }
}

/// Returns a text with its times as elements.
pub(crate) fn timed(text: &str) -> Markup {
    html! { @for (part, is_time) in words::times(text) { @if is_time { (time(part)) } @else { (part) } } }
}

/// Returns an output. A sensitive one is masked.
pub(crate) fn value(value: &OutputValue) -> Markup {
    let (text, is_masked) = words::output(value);
    let shown = limits::excerpt(&limits::printable(&text), MAX_VALUE);
    html! { @if is_masked { span.masked { (text) } } @else { code { (shown) } } }
}

/// Returns a param, or another value as JSON. A sensitive one is masked.
pub(crate) fn json_value(json: &serde_json::Value) -> Markup {
    let is_sensitive = *json == serde_json::json!({"sensitive": true});
    value(&if is_sensitive { OutputValue::Sensitive(true) } else { OutputValue::Value(json.clone()) })
}

/// Returns a log as plain text: without sequences for terminals, and with U+FFFD for other control characters.
pub(crate) fn plain_log(log: &str) -> String {
    let log = console::strip_ansi_codes(log);
    limits::printable(&log.replace("\r\n", "\n").replace('\r', "\n"))
}

/// Returns a document or a log in a box that scrolls. `label` names the box.
pub(crate) fn listing(label: &str, text: &str) -> Markup {
    html! { pre.listing tabindex="0" role="region" aria-label=(label) { (text) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_for_terminals_are_removed_from_logs() {
        for (log, expected) in [
            ("\u{1b}[1;31mred\u{1b}[0m\n", "red\n"),
            ("\u{1b}]8;;javascript:alert(1)\u{7}link\u{1b}]8;;\u{7}", "link"),
            ("\u{1b}]0;title\u{1b}\\text", "text"),
            ("10%\r20%\r\ndone\tnow", "10%\n20%\ndone\tnow"),
            ("a\u{202e}b\u{0}c\u{9b}31m", "a\u{fffd}b\u{fffd}c"),
        ] {
            assert_eq!(plain_log(log), expected, "{log:?}");
        }
        // An unknown sequence loses its control character.
        assert!(!plain_log("\u{1b}[?1;2;3$zrest").contains('\u{1b}'));
    }

    #[test]
    fn sensitive_values_are_masked() {
        let secret = serde_json::json!({"secret": {"namespace": "ns", "name": "n", "key": "k"}});
        let secret: OutputValue = serde_json::from_value(secret).unwrap();
        assert_eq!(value(&secret).into_string(), "<span class=\"masked\">secret ns/n key k</span>");
        for masked in [value(&OutputValue::Sensitive(true)), json_value(&serde_json::json!({"sensitive": true}))] {
            assert_eq!(masked.into_string(), "<span class=\"masked\">(sensitive)</span>");
        }
        let long = value(&OutputValue::Value("x".repeat(3_000).into())).into_string();
        assert_eq!(long.len(), "<code>…</code>".len() + MAX_VALUE);
    }
}
