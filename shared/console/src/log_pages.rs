//! The log of an attempt, and what it was rendered to.
//!
//! An open page of a log asks for the lines after those that it has. It names them by a mark, `POSITION-DIGEST`: the bytes before
//! the end of the last whole line, and a digest of the last ones. A log that loses its first lines has the digest elsewhere.

use ebb_protocol::{UnitRendering, limits, short_digest};
use maud::html;

use crate::{ConsoleViewer, PageRenewal, frame, paths, run_pages, texts};

#[derive(Clone, Debug, Default)]
pub struct UnitLogView<'a> {
    pub run: &'a str,
    /// Kind and name.
    pub target: (&'a str, &'a str),
    /// `RESOURCE/UNIT`.
    pub unit: &'a str,
    pub attempt: u32,
    /// The last attempt of the unit that has begun.
    pub last_attempt: u32,
    /// The end of the log, as the unit wrote it. Without a log it is empty, and the state has the reason.
    pub log: &'a str,
    /// Lines about the attempt that are not from the log.
    pub state: &'a str,
    /// The mark of the lines that an open page has. Other pages have an empty one.
    pub after: &'a str,
}

/// The bytes before the end of a line that a mark covers.
const MARKED: usize = 1 << 10;
/// Maximum ends of lines that are compared with a mark.
const COMPARED: usize = 4_096;
const DIGEST: usize = 24;

fn digest(text: &str) -> String {
    let begin = text.ceil_char_boundary(text.len().saturating_sub(MARKED));
    short_digest(&["console log", &text[begin..]], DIGEST)
}

fn mark(log: &str) -> String {
    let end = log.rfind('\n').map_or(0, |end| end + 1);
    format!("{end}-{}", digest(&log[..end]))
}

/// Returns the text after the lines with a mark, or `None` if the log does not have them.
fn appended<'a>(log: &'a str, mark: &str) -> Option<&'a str> {
    let (position, known) = mark.split_once('-')?;
    let same: usize = position.parse().ok()?;
    let ends = log.rmatch_indices('\n').map(|(end, _)| end + 1).take(COMPARED);
    // A log of equal lines has the digest several times. Its first lines are still there if the position has it.
    let mut ends = std::iter::once(same).chain(ends).filter(|&end| log.is_char_boundary(end));
    ends.find(|&end| digest(&log[..end]) == known).map(|end| &log[end..])
}

/// Returns the log as the page shows it, and whether earlier lines were dropped.
fn shown(log: &str) -> (String, bool) {
    let mut plain = texts::plain_log(log);
    // The end of a log has whole characters.
    let is_cut = log.len() + 4 > limits::LOG_TAIL;
    if let Some(end) = plain.find('\n').filter(|_| is_cut) {
        plain.drain(..=end);
    }
    (plain, is_cut)
}

/// Returns the log as a file: plain text, without sequences for terminals.
pub fn log_text(log: &str) -> String {
    shown(log).0
}

pub fn log(viewer: ConsoleViewer<'_>, view: &UnitLogView<'_>) -> String {
    let UnitLogView { run, target, unit, attempt, last_attempt, log, state, after } = *view;
    let (log, is_cut) = shown(log);
    let added = appended(&log, after);
    let main = html! {
        h1 { "Log of " (unit) ", attempt " (attempt) }
        (attempts(attempt, last_attempt, |number| paths::log(run, unit, Some(number))))
        (run_pages::place(run, target))
        @for line in texts::plain_log(state).lines() { p.problem { (line) } }
        @if !log.is_empty() {
            p { a href=(paths::log_text(run, unit, attempt)) { "Download" } }
        } @else if state.is_empty() {
            p.none { "The log has no lines." }
        }
        @if is_cut { p.none { "Earlier lines were dropped: a log keeps its last " (limits::LOG_TAIL >> 10) " KiB." } }
        // Browsers ignore a line feed at the begin of the element.
        pre.listing tabindex="0" role="region" aria-label="Log" data-mark=(mark(&log)) data-appends[added.is_some()] {
            "\n" (added.unwrap_or(&log))
        }
    };
    frame::page(viewer, paths::ROOT, &format!("Log of {unit}"), PageRenewal::every(3), &main)
}

/// Returns the page with the manifests, the request or the inputs of a unit. `last_attempt` is the last one that has begun.
pub fn rendering(
    viewer: ConsoleViewer<'_>,
    target: (&str, &str),
    rendering: &UnitRendering,
    last_attempt: u32,
) -> String {
    let UnitRendering { run, unit, attempt, script, .. } = rendering;
    // In JSON, a script would be one line.
    let rest = UnitRendering { script: None, ..rendering.clone() };
    let text = serde_json::to_string_pretty(&rest).unwrap_or_default();
    let main = html! {
        h1 { "Request of " (unit) ", attempt " (attempt) }
        (attempts(*attempt, last_attempt, |number| paths::rendering(run, unit, Some(number))))
        (run_pages::place(run, target))
        @if let Some(reason) = &rendering.skipped { p { "Skipped: " (reason) } }
        (texts::listing("Request", &texts::plain_log(&text)))
        @if let Some(script) = script { (frame::section("Script", &texts::listing("Script", &texts::plain_log(script)))) }
    };
    frame::page(viewer, paths::ROOT, &format!("Request of {unit}"), PageRenewal::NEVER, &main)
}

fn attempts(attempt: u32, last: u32, path: impl Fn(u32) -> String) -> maud::Markup {
    let mut others = vec![attempt.saturating_sub(1), attempt.saturating_add(1), last];
    others.retain(|&other| (1..=last).contains(&other) && other != attempt);
    others.dedup();
    html! {
        @if !others.is_empty() {
            p {
                @for other in others {
                    a href=(path(other)) { "Attempt " (other) @if other == last { ", the last one" } } " "
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_the_lines_after_its_mark() {
        let lines = |range: std::ops::Range<u32>| range.map(|line| format!("line é {line}\n")).collect::<String>();
        let before = lines(0..900) + "a part";
        assert_eq!(appended(&before, &mark(&before)), Some("a part"));
        assert_eq!(appended(&(before.clone() + " more\n"), &mark(&before)), Some("a part more\n"));
        // The first lines are dropped.
        assert_eq!(appended(&lines(500..1_000), &mark(&lines(0..900))), Some(lines(900..1_000).as_str()));
        // None of the lines is left, or another attempt has begun.
        assert_eq!(appended(&lines(2_000..3_000), &mark(&before)), None);
        assert_eq!(appended("", &mark(&before)), None);
        // Equal lines.
        let ticks = |count: usize| "tick\n".repeat(count);
        assert_eq!(appended(&ticks(1_010), &mark(&ticks(1_000))), Some(ticks(10).as_str()));
        assert_eq!(appended(&ticks(3), &mark("")), Some(ticks(3).as_str()));
        for wrong in ["", "-", "7", "7-", "99999999999999999999999-x", "2-x", "-1-x"] {
            assert_eq!(appended("aé\n", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_log_that_was_cut_begins_with_a_whole_line() {
        let log = "0123456789\n".repeat(limits::LOG_TAIL / 11 + 1);
        let tail = &log[log.len() - limits::LOG_TAIL..];
        let (text, is_cut) = shown(tail);
        assert!(is_cut && text.starts_with("0123456789\n") && text.len() > limits::LOG_TAIL - 11);
        assert_eq!(shown("a\nb"), ("a\nb".to_owned(), false));
    }
}
