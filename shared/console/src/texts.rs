//! States, times and values as text.

use ebb_protocol::api::UnitWait;
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::lifecycle::OutputValue;
use ebb_protocol::limits;
use ebb_protocol::relay::WaitResolution;
use maud::{Markup, html};
use serde::Serialize;

/// Maximum characters of a value.
const MAX_VALUE: usize = 2_000;
/// The text of a value that is not shown.
const SENSITIVE: &str = "(sensitive)";

/// Returns the name of a state or of a class of failures in the API.
pub(crate) fn word(state: &impl Serialize) -> String {
    serde_json::to_value(state).ok().and_then(|name| Some(name.as_str()?.to_owned())).unwrap_or_default()
}

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

/// Returns a time, or nothing.
pub(crate) fn time_if_any(at: Option<&String>) -> Markup {
    html! { @if let Some(at) = at { (time(at)) } }
}

/// Returns a reason, with its class in the words of `retry.on` unless the message implies it.
pub(crate) fn reason(reason: &FailureReason) -> String {
    let message = limits::printable(reason.message.trim());
    match (message.as_str(), reason.code) {
        ("", code) => word(&code),
        (_, ReasonCode::Failed | ReasonCode::Skipped | ReasonCode::Overridden | ReasonCode::Cancelled) => message,
        (_, code) => format!("{message} ({})", word(&code)),
    }
}

/// Returns the number of an attempt among all of its unit, which its log and its request have, if the unit was retried by an
/// operator before.
pub(crate) fn in_all(attempt: u32, in_series: u32) -> Markup {
    html! { @if attempt != in_series { ", " (attempt) " in all" } }
}

/// Returns what an object waits for, and who ends the wait.
pub(crate) fn wait(UnitWait { object, message, since, fails_at, resolves, .. }: &UnitWait) -> Markup {
    html! {
        (object) ": " (limits::printable(message))
        @if let Some(since) = since { ", since " (time(since)) }
        @if let Some(fails_at) = fails_at { ", fails at " (time(fails_at)) }
        "." (ends(*resolves))
    }
}

/// Returns the sentence about who ends a wait, or nothing if it ends by itself.
pub(crate) fn ends(resolves: WaitResolution) -> &'static str {
    match resolves {
        WaitResolution::Itself => "",
        WaitResolution::Person => " A person has to end this.",
        WaitResolution::Never => " As written, it never becomes ready.",
    }
}

/// Returns an output. A sensitive one is masked.
pub(crate) fn value(value: &OutputValue) -> Markup {
    match value {
        OutputValue::Value(json) => json_value(json),
        OutputValue::Base64(text) => shown(&format!("base64:{text}")),
        OutputValue::Secret(secret) => {
            let namespace = secret.namespace.as_deref().map(|name| format!("{name}/")).unwrap_or_default();
            html! { span.masked { "Secret " (namespace) (secret.name) ", key " (secret.key) } }
        }
        OutputValue::Sensitive(_) => html! { span.masked { (SENSITIVE) } },
    }
}

/// Returns a param, or another value as JSON. A sensitive one is masked.
pub(crate) fn json_value(json: &serde_json::Value) -> Markup {
    match json {
        serde_json::Value::String(text) => shown(text),
        json if *json == serde_json::json!({"sensitive": true}) => html! { span.masked { (SENSITIVE) } },
        json => shown(&json.to_string()),
    }
}

fn shown(text: &str) -> Markup {
    html! { code { (limits::excerpt(&limits::printable(text), MAX_VALUE)) } }
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
        assert_eq!(value(&secret).into_string(), "<span class=\"masked\">Secret ns/n, key k</span>");
        for masked in [value(&OutputValue::Sensitive(true)), json_value(&serde_json::json!({"sensitive": true}))] {
            assert_eq!(masked.into_string(), "<span class=\"masked\">(sensitive)</span>");
        }
        let long = value(&OutputValue::Value("x".repeat(3_000).into())).into_string();
        assert_eq!(long.len(), "<code>…</code>".len() + MAX_VALUE);
    }
}
