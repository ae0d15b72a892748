//! The paths of the console. Each part of a path or query is percent-encoded, so that a name changes neither the path nor
//! the parameters.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The overview. All other pages are below it.
pub const ROOT: &str = "/console";
/// The list of targets.
pub const TARGETS: &str = "/console/targets";
pub const PLUGINS: &str = "/console/plugins";
pub const SOURCES: &str = "/console/sources";
pub const SUBSCRIPTIONS: &str = "/console/subscriptions";
pub const CLUSTERS: &str = "/console/clusters";
/// Answers open pages of lists whether targets have changed.
pub const CHANGES: &str = "/console/changes";
/// Confirms an action on selected targets.
pub const SELECTION: &str = "/console/selection";
/// Takes an action on selected targets.
pub const CONFIRMED: &str = "/console/selection/confirmed";
pub const SIGN_IN: &str = "/console/sign-in";
/// Makes a link that signs in once.
pub const SIGN_IN_LINK: &str = "/console/sign-in/link";
/// Leads to an issuer, which signs a person in.
pub const SIGN_IN_BEGIN: &str = "/console/sign-in/begin";
/// Takes the answer of an issuer.
pub const SIGN_IN_RETURN: &str = "/console/sign-in/return";
/// Signs the command line in.
pub const LOGIN: &str = "/console/login";
pub const SIGN_OUT: &str = "/console/sign-out";

/// All characters except those that RFC 3986 does not reserve.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn below(folder: &str, parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| format!("/{}", utf8_percent_encode(part, RESERVED)));
    format!("{ROOT}/{folder}{}", parts.collect::<String>())
}

pub(crate) fn with(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, RESERVED))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

pub fn targets(parameters: &[(&str, &str)]) -> String {
    with(TARGETS, parameters)
}

pub fn target(kind: &str, name: &str) -> String {
    below("targets", &[kind, name])
}

/// Returns the path of the target in a text `KIND/NAME`, or `None` for another text.
pub fn target_of(text: &str) -> Option<String> {
    let (kind, name) = text.split_once('/')?;
    (!kind.is_empty() && !name.is_empty()).then(|| target(kind, name))
}

pub fn history(kind: &str, name: &str, after: Option<&str>) -> String {
    with(&below("targets", &[kind, name, "history"]), &[("nextToken", after.unwrap_or_default())])
}

pub fn history_entry(kind: &str, name: &str, id: &str) -> String {
    below("targets", &[kind, name, "history", id])
}

/// Returns the path of a run on the page of its target, with the units after `after`.
pub fn run((kind, name): (&str, &str), id: &str, after: Option<&str>) -> String {
    with(&target(kind, name), &[("run", id), ("nextToken", after.unwrap_or_default())]) + "#run"
}

/// Returns the path of a unit on the page of its target, in its last attempt by default. `page_token` is that of the units.
pub fn unit((kind, name): (&str, &str), (run, page_token): (&str, &str), unit: &str, attempt: Option<u32>) -> String {
    let attempt = attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
    let parameters = [("run", run), ("nextToken", page_token), ("unit", unit), ("attempt", attempt.as_str())];
    with(&target(kind, name), &parameters) + "#unit"
}

/// Returns the path of the log of a unit, in its last attempt with a log by default. Without a unit, it has those of the run.
pub fn log(run: &str, unit: &str, attempt: Option<u32>) -> String {
    log_file(run, "log", unit, attempt)
}

pub fn log_text(run: &str, unit: &str, attempt: Option<u32>) -> String {
    log_file(run, "log.txt", unit, attempt)
}

fn log_file(run: &str, file: &str, unit: &str, attempt: Option<u32>) -> String {
    let attempt = attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
    with(&below("runs", &[run, file]), &[("unit", unit), ("attempt", attempt.as_str())])
}

/// Returns the path of a version of a plugin, by default of the highest one.
pub fn plugin(name: &str, version: &str) -> String {
    with(&versions(name), &[("version", version)])
}

pub fn comparison(name: &str, from: &str, to: &str) -> String {
    with(&versions(name), &[("from", from), ("to", to)])
}

pub fn versions(name: &str) -> String {
    below("plugins", &[name])
}

/// Returns the path of a plugin in a text `NAME@VERSION`. Without a version it is the highest one.
pub fn plugin_of(text: &str) -> String {
    let (name, version) = text.split_once('@').unwrap_or((text, ""));
    plugin(name, version)
}

pub fn source(name: &str) -> String {
    below("sources", &[name])
}

pub fn subscription(name: &str) -> String {
    below("subscriptions", &[name])
}

pub fn cluster(name: &str) -> String {
    below("clusters", &[name])
}

pub fn sign_in(next: &str) -> String {
    with(SIGN_IN, &[("next", next)])
}

pub fn sign_in_once(code: &str) -> String {
    with(SIGN_IN, &[("code", code)])
}

/// Returns the path of the sign-in at an issuer, which leads back to `next`. With `other` as `account`, the issuer asks for
/// the account.
pub fn sign_in_at(issuer: &str, next: &str, account: &str) -> String {
    with(SIGN_IN_BEGIN, &[("issuer", issuer), ("next", next), ("account", account)])
}

/// Returns the path below [`ROOT`] to which a sign-in leads. Any other text leads to [`ROOT`].
pub fn safe_next(next: &str) -> &str {
    let below = next.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    // A browser reads `\` as `/`, and ignores tabs and line feeds.
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    // A browser removes dot segments, also encoded ones, and the segment before them.
    let path = next.split(['?', '#']).next().unwrap_or_default();
    let is_dotted = path.split('/').any(|part| matches!(&*part.to_lowercase().replace("%2e", "."), "." | ".."));
    if below && is_plain && !is_dotted { next } else { ROOT }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_changes_neither_path_nor_parameters() {
        let hostile = "a/../?x=1&unit=b#c%2f\"<>é\\";
        let encoded = "a%2F..%2F%3Fx%3D1%26unit%3Db%23c%252f%22%3C%3E%C3%A9%5C";
        assert_eq!(target("sandbox", hostile), format!("/console/targets/sandbox/{encoded}"));
        assert_eq!(log("r", hostile, Some(2)), format!("/console/runs/r/log?unit={encoded}&attempt=2"));
        let path = unit(("sandbox", "a"), ("r", ""), hostile, None);
        assert_eq!(path, format!("/console/targets/sandbox/a?run=r&unit={encoded}#unit"));
        assert_eq!(
            [plugin_of("db@2.0.0"), plugin_of("db")],
            ["/console/plugins/db?version=2.0.0", "/console/plugins/db"]
        );
        assert_eq!(target_of("sandbox/pr-1").as_deref(), Some("/console/targets/sandbox/pr-1"));
        assert_eq!(target_of("javascript:alert(1)"), None);
    }

    #[test]
    fn a_sign_in_leads_to_a_local_page() {
        for next in ["/console", "/console?q=a", "/console/targets/sandbox/pr-1", "/console/runs/r/log?unit=a%2Fb"] {
            assert_eq!(safe_next(next), next);
        }
        let foreign: Vec<String> = serde_json::from_str(include_str!("../tests/foreign_pages.json")).unwrap();
        for next in &foreign {
            assert_eq!(safe_next(next), ROOT, "{next:?}");
        }
    }
}
