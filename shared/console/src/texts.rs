//! States, times and values as text.

use ebb_protocol::{OutputValue, limits, words};
use maud::{Markup, html};
use serde::Serialize;

use crate::paths;

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

pub(crate) fn timed(text: &str) -> Markup {
    html! { @for (part, is_time) in words::times(text) { @if is_time { (time(part)) } @else { (part) } } }
}

/// Returns a text with a button that copies it. `live.js` shows the button.
pub(crate) fn copy(text: &str) -> Markup {
    html! { span.copy { code { (text) } button.copy type="button" hidden data-copy=(text) aria-label={ "Copy " (text) } { "Copy" } } }
}

/// Returns true for a URL of the web without characters that other texts could hide in.
pub(crate) fn is_web(url: &str) -> bool {
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    is_web && url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'<>\\".contains(&byte))
}

/// Returns a URL of the web as a link that leaves the console. Another text stays text.
pub(crate) fn link(url: &str) -> Markup {
    html! { @if is_web(url) { a.external href=(url) target="_blank" rel="noreferrer noopener" { (url) } } @else { (url) } }
}

/// Returns the progress of a unit, with a bar if it names a percentage.
pub(crate) fn progress(text: &str) -> Markup {
    let before = text.split_once('%').map(|(before, _)| before.trim_end());
    let number = before.and_then(|before| before.rsplit(|c: char| !c.is_ascii_digit() && c != '.').next());
    let percent: Option<f32> = number.and_then(|number| number.parse().ok()).filter(|percent| *percent <= 100.0);
    html! {
        @if let Some(percent) = percent { progress max="100" value=(percent) aria-label="Progress" {} " " }
        (limits::printable(text))
    }
}

pub(crate) fn target(kind: &str, name: &str) -> Markup {
    html! { a href=(paths::target(kind, name)) { span.kind { (kind) "/" } (name) } }
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().into_iter().flat_map(char::to_uppercase).chain(chars).collect()
}

/// Returns an output. A sensitive one is masked, and one that is shown as it is has a button that copies it.
pub(crate) fn value(value: &OutputValue) -> Markup {
    let (text, is_masked) = words::output(value);
    let shown = limits::excerpt(&limits::printable(&text), MAX_VALUE);
    html! { @if is_masked { span.masked { (text) } } @else if shown == text { (copy(&text)) } @else { code { (shown) } } }
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
        let rows: Vec<[String; 2]> = serde_json::from_str(include_str!("../tests/plain_logs.json")).unwrap();
        for [log, expected] in rows {
            assert_eq!(plain_log(&log), expected, "{log:?}");
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
