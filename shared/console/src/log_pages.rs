//! Logs of attempts.
//!
//! An open page of a log asks for the lines after those that it has. It names them by a mark, `POSITION-DIGEST`: the bytes before
//! the end of the last whole line, and a digest of the last ones. A log that loses its first lines has the digest elsewhere.

use std::ops::Range;

use ebb_protocol::{limits, short_digest};
use maud::{Markup, html};
use serde::Deserialize;

use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LogQuery {
    /// `RESOURCE/UNIT`. Without it, the page has the logs of all units of the run.
    pub unit: String,
    pub attempt: Option<u32>,
    /// The lines that contain it are shown.
    pub q: String,
    /// The mark of the lines that an open page has. Other pages have an empty one.
    pub after: String,
}

#[derive(Clone, Debug, Default)]
pub struct AttemptLogView {
    pub unit: String,
    pub attempt: u32,
    pub started: Option<String>,
    pub ended: Option<String>,
    /// The end of the log, as the unit wrote it. Without a log it is empty, and the state has the reason.
    pub log: String,
    /// Lines about the attempt that are not from the log.
    pub state: String,
}

/// The log of an attempt, or those of a run.
#[derive(Clone, Copy, Debug)]
pub struct LogView<'a> {
    pub run: &'a str,
    /// Kind and name.
    pub target: (&'a str, &'a str),
    pub query: &'a LogQuery,
    pub logs: &'a [AttemptLogView],
    pub is_open: bool,
}

/// Maximum attempts on the page of a run, and the bytes of the log of each.
pub const MAX_LOGS: usize = 20;
pub const RUN_LOG: usize = 64 << 10;
/// Maximum lines of a log on a page.
const MAX_LINES: usize = 8_000;
/// Maximum changes of the colour of a log on a page. The rest has none.
const MAX_COLOURS: usize = 4_000;
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

/// Returns the colour after a sequence for terminals: from 30 to 37, also for a bright one, or 0.
fn colour_after(sequence: &str, mut colour: u8) -> u8 {
    let codes = sequence.strip_prefix("\u{1b}[").and_then(|codes| codes.strip_suffix('m'));
    for code in codes.into_iter().flat_map(|codes| codes.split(';')) {
        match code.parse::<u8>() {
            // The rest is a colour of many.
            Ok(38 | 48) => break,
            Ok(code @ (30..=37 | 90..=97)) => colour = 30 + code % 10,
            Ok(0 | 39) => colour = 0,
            Err(_) if code.is_empty() => colour = 0,
            _ => {}
        }
    }
    colour
}

/// A log without sequences for terminals, and the positions at which its colour changes.
struct PlainLog {
    text: String,
    colours: Vec<(usize, u8)>,
    /// True if earlier lines were dropped.
    is_cut: bool,
}

impl PlainLog {
    fn of(log: &str, limit: usize) -> Self {
        // The end of a log has whole characters.
        let is_cut = log.len() + 4 > limit;
        let begin = if is_cut { log.find('\n').map_or(0, |end| end + 1) } else { 0 };
        let lines = log[begin..].replace("\r\n", "\n").replace('\r', "\n");
        let (mut text, mut colours, mut colour) = (String::new(), Vec::new(), 0);
        for (part, is_sequence) in console::AnsiCodeIterator::new(&lines) {
            let next = match is_sequence {
                true if colours.len() < MAX_COLOURS => colour_after(part, colour),
                true => 0,
                false => {
                    text.push_str(&limits::printable(part));
                    colour
                }
            };
            if next != colour {
                colours.push((text.len(), next));
                colour = next;
            }
        }
        Self { text, colours, is_cut }
    }

    fn lines(&self, q: &str) -> Vec<(usize, Range<usize>)> {
        let (mut end, q) = (0, q.to_lowercase());
        let lines = self.text.split_inclusive('\n').enumerate().filter_map(|(before, line)| {
            let begin = end;
            end += line.len();
            (q.is_empty() || line.to_lowercase().contains(&q)).then_some((before + 1, begin..end))
        });
        lines.collect()
    }

    fn line(&self, number: Option<usize>, line: Range<usize>) -> Markup {
        let text = &self.text[line.clone()];
        let progress = text.strip_prefix("::ebb progress ").and_then(limits::progress);
        html! {
            i id=[number.map(|number| format!("L{number}"))] class=[progress.as_ref().map(|_| "progress")] {
                @if let Some(progress) = progress { (progress) @if text.ends_with('\n') { "\n" } } @else { (self.coloured(line)) }
            }
        }
    }

    fn coloured(&self, part: Range<usize>) -> Markup {
        let next = self.colours.partition_point(|(at, _)| *at <= part.start);
        let mut colour = next.checked_sub(1).map(|last| self.colours[last].1).unwrap_or_default();
        let inside = self.colours[next..].iter().copied().take_while(|(at, _)| *at < part.end);
        let (mut begin, mut spans) = (part.start, Vec::new());
        for (at, next) in inside.chain([(part.end, 0)]) {
            spans.push((&self.text[begin..at], colour));
            (begin, colour) = (at, next);
        }
        html! { @for (text, colour) in spans { @if colour == 0 || text.is_empty() { (text) } @else { span class={ "a" (colour) } { (text) } } } }
    }
}

/// Returns logs as a file: plain text, without sequences for terminals. Each log of a run has a head, and that of a unit none.
pub fn log_text(query: &LogQuery, logs: &[AttemptLogView]) -> String {
    let text = |AttemptLogView { unit, attempt, log, state, .. }: &AttemptLogView| match query.unit.is_empty() {
        false if !log.is_empty() => PlainLog::of(log, limits::LOG_TAIL).text,
        false => texts::plain_log(state),
        true => {
            let (log, state) = (PlainLog::of(log, RUN_LOG).text, texts::plain_log(state));
            format!("==> {unit}, attempt {attempt} <==\n{log}\n{state}\n")
        }
    };
    logs.iter().map(text).collect()
}

pub fn log(viewer: ConsoleViewer<'_>, view: &LogView<'_>) -> String {
    let LogView { run, target, query, logs, .. } = *view;
    let (unit, q) = (query.unit.as_str(), query.q.as_str());
    let attempt = query.attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
    let one = logs.first().filter(|_| !unit.is_empty());
    let (title, place) = match one {
        Some(one) => (format!("Log of {unit}"), paths::unit(target, (run, ""), unit, Some(one.attempt))),
        None => ("Logs of a run".to_owned(), paths::run(target, run, None)),
    };
    let run_facts = html! {
        @if let Some(one) = one { (facts(one)) span { a href=(paths::log(run, "", None)) { "All logs of the run" } } }
        span { a href=(place) { @if one.is_some() { "All attempts" } @else { "Run" } } }
        span { (texts::target(target.0, target.1)) }
    };
    let buttons = html! {
        @if one.is_some() && q.is_empty() { button type="button" hidden data-follow { "Follow" } }
        @if logs.iter().any(|one| !one.log.is_empty()) { a.button href=(paths::log_text(run, unit, one.map(|one| one.attempt))) { "Download" } }
    };
    let main = html! {
        (frame::head(&html! { (title) }, &run_facts, &buttons))
        form.filters role="search" {
            @for (name, value) in [("unit", unit), ("attempt", &*attempt)] { @if !value.is_empty() { input type="hidden" name=(name) value=(value); } }
            div { label for="search" { "Lines with" } input #search type="search" name="q" value=(q); }
            button { "Filter" }
            label { input #wrap type="checkbox" checked; " Wrap lines" }
            @if !q.is_empty() { a href=(paths::log(run, unit, query.attempt)) { "Reset" } }
        }
        @if let Some(one) = one { (listing("Log", one, query)) } @else {
            p.none { "The last " (MAX_LOGS) " attempts with a log, and the last " (RUN_LOG >> 10) " KiB of each." @if logs.is_empty() { " No unit has a log." } }
            @for one in logs {
                section {
                    h2 { a href=(paths::log(run, &one.unit, Some(one.attempt))) { (one.unit) } }
                    p.facts { (facts(one)) }
                    (listing(&format!("Log of {}, attempt {}", one.unit, one.attempt), one, query))
                }
            }
        }
    };
    let seconds = view.is_open.then_some(if one.is_some() { 3 } else { 5 });
    let renewal = PageRenewal { seconds, ..PageRenewal::NEVER };
    frame::page(viewer, paths::TARGETS, &title, renewal, &main)
}

fn facts(one: &AttemptLogView) -> Markup {
    html! {
        span { "attempt " (one.attempt) }
        @if let Some(started) = &one.started {
            span { "started " (texts::time(started)) }
            @if one.ended.is_none() { span { "runs for " span data-since=(started) { "some time" } } }
        }
        @if let Some(ended) = &one.ended { span { "ended " (texts::time(ended)) } }
    }
}

/// Returns the box of a log with the reasons for what it lacks. An open page of one log gets the lines after its mark.
pub(crate) fn listing(label: &str, one: &AttemptLogView, LogQuery { unit, q, after, .. }: &LogQuery) -> Markup {
    let is_run = unit.is_empty();
    let log = PlainLog::of(&one.log, if is_run { RUN_LOG } else { limits::LOG_TAIL });
    let mut lines = log.lines(q);
    let dropped = lines.len().saturating_sub(MAX_LINES);
    lines.drain(..dropped);
    let is_empty = lines.is_empty();
    let follows = !is_run && q.is_empty();
    let (mark, first) = (follows.then(|| mark(&log.text)), lines.first().map_or(1, |(number, _)| *number));
    let added = appended(&log.text, after).filter(|_| follows);
    lines.retain(|(_, line)| line.start >= log.text.len() - added.unwrap_or(&log.text).len());
    html! {
        @for line in texts::plain_log(&one.state).lines() { p.problem { (line) } }
        @if is_empty && one.state.is_empty() { p.none { @if one.log.is_empty() { "The log has no lines." } @else { "No line has the text." } } }
        @if log.is_cut && !is_run { p.none { "Earlier lines were dropped: a log keeps its last " (limits::LOG_TAIL >> 10) " KiB." } }
        @if dropped > 0 { p.none { (dropped) " earlier lines are not shown here." } }
        pre.listing.log tabindex="0" role="region" aria-label=(label)
            data-first=[mark.as_ref().map(|_| first)] data-mark=[mark] data-appends[added.is_some()] {
            @for (number, line) in lines { (log.line((!is_run).then_some(number), line)) }
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

    /// Each row has a log, a filter and the lines with their numbers.
    #[test]
    fn lines_have_numbers_and_colours() {
        let rows: Vec<[String; 3]> = serde_json::from_str(include_str!("../tests/log_lines.json")).unwrap();
        for [text, q, expected] in rows {
            let log = PlainLog::of(&text, limits::LOG_TAIL);
            let lines = log.lines(&q).into_iter().map(|(number, line)| log.line(Some(number), line).into_string());
            assert_eq!(lines.collect::<String>(), expected, "{text:?} {q:?}");
        }
        let PlainLog { text, is_cut, .. } = PlainLog::of("first\nsecond\n", 14);
        assert!(is_cut && text == "second\n");
    }

    #[test]
    fn a_page_of_a_log_is_less_than_twice_as_long() {
        for part in
            ["a line with an \u{1b}[33maverage\u{1b}[0m length of the log\n", "\n", "\u{1b}[31mx\u{1b}[32my", "x"]
        {
            let log = part.repeat(limits::LOG_TAIL / part.len());
            let (one, query) = (AttemptLogView { log, ..Default::default() }, LogQuery::default());
            let whole = listing("Log", &one, &LogQuery { unit: "a/b".to_owned(), ..query.clone() }).into_string();
            assert!(whole.len() < 2 * limits::LOG_TAIL, "{part:?}: {}", whole.len());
            assert_eq!(whole.contains("earlier lines are not shown here"), part == "\n", "{part:?}");
        }
    }
}
