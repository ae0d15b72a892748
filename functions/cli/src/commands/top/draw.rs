//! Draws the state of `ebb top`. Texts of others are drawn without control characters.

use console::measure_text_width;
use ebb_protocol::api::{TargetInfo, TargetState};
use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::state::{OpenTarget, TargetView, TopAnswer, TopState};
use crate::output::{plugin_name, printable};
use crate::progress::labels;
use crate::progress::tree::TreeLine;
use crate::target::TargetRef;
use crate::timing;

/// Maximum columns of a cell, except in the last column.
const CELL: usize = 40;
/// Minimum columns of the last cell.
const LAST_CELL: usize = 15;
/// The positions of the cells that a narrow screen lacks, the first one first: plugins, owner, and time in the phase.
const OPTIONAL: [usize; 3] = [4, 3, 2];
/// Phases in the order of the title.
const PHASES: [TargetState; 7] = [
    TargetState::Stuck,
    TargetState::Failed,
    TargetState::Starting,
    TargetState::Updating,
    TargetState::Stopping,
    TargetState::Ready,
    TargetState::Gone,
];

/// Draws the page with its title, messages and keys.
pub(super) fn draw(state: &TopState, now: Timestamp, frame: &mut Frame<'_>) {
    let (messages, keys) = (state.messages(), state.keys());
    let heights = [Constraint::Length(1), Constraint::Fill(1), length(messages.len()), length(keys.len())];
    let [title, page, below, last] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(Paragraph::new(title_of(state)).style(Modifier::BOLD), title);
    match &state.open {
        None => draw_list(state, now, frame, page),
        Some(open) => draw_target(state, open, now, frame, page),
    }
    let urgent = if state.is_urgent() { Style::new().fg(Color::Red) } else { Style::new() };
    frame.render_widget(paragraph(messages).style(urgent), below);
    frame.render_widget(paragraph(keys).style(Modifier::DIM), last);
}

fn title_of(state: &TopState) -> String {
    let Some(open) = &state.open else {
        let filter = state.selection.text.as_ref().map(|text| format!("  filter: {}", printable(text)));
        return format!("{}  {}{}", state.server, counted(&state.targets), filter.unwrap_or_default());
    };
    let target = printable(&TargetRef::from(&open.target).to_string());
    let view = match (open.view, &open.content) {
        (TargetView::Tree, _) => String::new(),
        (TargetView::Why, _) => "  why".to_owned(),
        (TargetView::Log, Some(TopAnswer::Log(log))) => log.units.get(log.shown).map_or(String::new(), |unit| {
            let (number, count) = (log.shown + 1, log.units.len());
            let unit = printable(&format!("{} {}", unit.hook, unit.unit));
            format!("  log of {unit}, attempt {} ({number} of {count})", log.attempt)
        }),
        (TargetView::Log, _) => "  log".to_owned(),
    };
    format!("{}  {target}{view}", state.server)
}

/// Returns the targets per phase, such as `2 targets: 1 failed, 1 ready`.
fn counted(targets: &[TargetInfo]) -> String {
    let counts = PHASES.iter().filter_map(|phase| {
        let count = targets.iter().filter(|target| target.phase == *phase).count();
        (count > 0).then(|| format!("{count} {}", labels::name(phase)))
    });
    let counts: Vec<String> = counts.collect();
    match targets.len() {
        0 => "no targets".to_owned(),
        1 => format!("1 target: {}", counts.join(", ")),
        all => format!("{all} targets: {}", counts.join(", ")),
    }
}

fn draw_list(state: &TopState, now: Timestamp, frame: &mut Frame<'_>, area: Rect) {
    let header = ["  TARGET", "PHASE", "FOR", "OWNER", "PLUGINS", "FIRST CAUSE, WAITS FOR"].map(str::to_owned);
    let shown = state.targets.iter().enumerate().skip(state.first).take(state.rows());
    let rows: Vec<(bool, &TargetInfo, [String; 6])> = shown
        .map(|(number, target)| {
            let is_selected = number == state.selected;
            (is_selected, target, cells(target, is_selected, state.selection.kind.is_some(), now))
        })
        .collect();
    let mut widths = header.each_ref().map(|name| measure_text_width(name));
    for (_, _, cells) in &rows {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = measure_text_width(cell).min(CELL).max(*width);
        }
    }
    let last = header.len() - 1;
    let mut columns: Vec<usize> = (0..=last).collect();
    for optional in OPTIONAL {
        let used: usize = columns.iter().filter(|column| **column != last).map(|column| widths[*column] + 2).sum();
        if used + LAST_CELL > usize::from(area.width) {
            columns.retain(|column| *column != optional);
        }
    }
    let rows = rows.into_iter().map(|(is_selected, target, cells)| {
        let style = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
        let shown = cells.into_iter().enumerate().filter(|(column, _)| columns.contains(column));
        let shown = shown.map(|(column, text)| match column {
            1 => Cell::from(Span::styled(text, Style::new().fg(phase_colour(target.phase)))),
            _ => Cell::from(text),
        });
        Row::new(shown).style(style)
    });
    let names = columns.iter().map(|column| header[*column].as_str());
    let constraints =
        columns.iter().map(|column| if *column == last { Constraint::Fill(1) } else { length(widths[*column]) });
    let table = Table::new(rows, constraints).header(Row::new(names).style(Modifier::BOLD)).column_spacing(2);
    frame.render_widget(table, area);
}

/// Returns the cells of a target. Without the kind if all targets are of one kind.
fn cells(target: &TargetInfo, is_selected: bool, is_one_kind: bool, now: Timestamp) -> [String; 6] {
    let name = if is_one_kind { target.name.clone() } else { TargetRef::from(target).to_string() };
    let plugins: Vec<&str> = target.plugins.iter().map(|plugin| plugin_name(plugin)).collect();
    let last = target.first_cause.as_deref().or(target.waits_for.as_deref()).unwrap_or_default();
    [
        format!("{} {}", if is_selected { ">" } else { " " }, printable(&name)),
        labels::target_state(target),
        timing::since(&target.since, now).map(timing::length).unwrap_or_default(),
        printable(target.owner.as_deref().unwrap_or_default()),
        printable(&plugins.join(", ")),
        printable(last),
    ]
}

fn draw_target(state: &TopState, open: &OpenTarget, now: Timestamp, frame: &mut Frame<'_>, area: Rect) {
    if open.content.is_none() {
        frame.render_widget(Paragraph::new("loading…"), area);
        return;
    }
    let size = state.page();
    let lines = open.lines(size, now);
    let first = open.first_line(lines.len(), size.height);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(first).take(size.height).map(line).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

fn line(TreeLine { branch, sign, text }: TreeLine) -> Line<'static> {
    let sign = sign.map(|(sign, colour)| Span::styled(sign, Style::new().fg(terminal_colour(colour))));
    let parts = [Some(Span::raw(branch)), sign, Some(Span::raw(text))];
    Line::from(parts.into_iter().flatten().collect::<Vec<_>>())
}

fn paragraph(lines: Vec<String>) -> Paragraph<'static> {
    Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>())
}

fn length(cells: usize) -> Constraint {
    Constraint::Length(u16::try_from(cells).unwrap_or(u16::MAX))
}

fn phase_colour(phase: TargetState) -> Color {
    match phase {
        TargetState::Failed | TargetState::Stuck => Color::Red,
        TargetState::Ready => Color::Green,
        TargetState::Starting | TargetState::Updating | TargetState::Stopping => Color::Cyan,
        TargetState::Gone => Color::DarkGray,
    }
}

fn terminal_colour(colour: console::Color) -> Color {
    match colour {
        console::Color::Black => Color::Black,
        console::Color::Red => Color::Red,
        console::Color::Green => Color::Green,
        console::Color::Yellow => Color::Yellow,
        console::Color::Blue => Color::Blue,
        console::Color::Magenta => Color::Magenta,
        console::Color::Cyan => Color::Cyan,
        console::Color::White => Color::White,
        console::Color::Color256(number) => Color::Indexed(number),
        console::Color::TrueColor(red, green, blue) => Color::Rgb(red, green, blue),
    }
}
