//! Draws the state of `ebb top`. Texts of others are drawn without control characters.

use console::measure_text_width;
use ebb_protocol::api::{TargetInfo, TargetPhase};
use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::page::OpenTarget;
use super::state::TopState;
use crate::{TargetRef, TreeLine, labels, plugin_name, printable, timing};

/// Maximum columns of a cell, except in the last column.
const CELL: usize = 40;
/// Minimum columns of the last cell.
const LAST_CELL: usize = 15;
/// The positions of the cells that a narrow screen lacks, the first one first: plugins, owner, and time in the phase.
const OPTIONAL: [usize; 3] = [4, 3, 2];

pub(super) fn draw(state: &TopState, now: Timestamp, frame: &mut Frame<'_>) {
    let (title, messages, keys) = (state.title(), state.messages(), state.keys());
    let heights = [length(title.len()), Constraint::Fill(1), length(messages.len()), length(keys.len())];
    let [above, page, below, last] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(paragraph(title).style(Modifier::BOLD), above);
    match &state.open {
        None => draw_list(state, now, frame, page),
        Some(open) => draw_target(state, open, now, frame, page),
    }
    let urgent = if state.is_urgent() { Style::new().fg(Color::Red) } else { Style::new() };
    frame.render_widget(paragraph(messages).style(urgent), below);
    frame.render_widget(paragraph(keys).style(Modifier::DIM), last);
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
    let width = usize::from(area.width);
    for (_, _, cells) in &rows {
        for (column, cell) in cells.iter().enumerate() {
            let most = if column == 0 { CELL.max(width / 3) } else { CELL };
            widths[column] = measure_text_width(cell).min(most).max(widths[column]);
        }
    }
    // The phase is shown beside a long name.
    widths[0] = widths[0].min(width.saturating_sub(widths[1] + 4));
    let last = header.len() - 1;
    let mut columns: Vec<usize> = (0..=last).collect();
    for optional in OPTIONAL {
        let used: usize = columns.iter().filter(|column| **column != last).map(|column| widths[*column] + 2).sum();
        if used + LAST_CELL > width {
            columns.retain(|column| *column != optional);
        }
    }
    let rows = rows.into_iter().map(|(is_selected, target, cells)| {
        let style = if is_selected { Modifier::REVERSED } else { Modifier::empty() };
        let shown = cells.into_iter().enumerate().filter(|(column, _)| columns.contains(column));
        let shown = shown.map(|(column, text)| match column {
            0 => Cell::from(without_middle(text, widths[0])),
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

/// Returns a text of at most `width` characters, without its middle: long names often differ at their end.
fn without_middle(text: String, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text;
    }
    let tail = width.saturating_sub(1) / 2;
    let head = text.chars().take(width.saturating_sub(tail + 1));
    head.chain(['…']).chain(text.chars().skip(count - tail)).collect()
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
    if open.page.is_none() {
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
    let sign = sign.map(|(sign, colour)| Span::styled(sign, Style::new().fg(Color::Indexed(colour))));
    let parts = [Some(Span::raw(branch)), sign, Some(Span::raw(text))];
    Line::from(parts.into_iter().flatten().collect::<Vec<_>>())
}

fn paragraph(lines: Vec<String>) -> Paragraph<'static> {
    Paragraph::new(lines.into_iter().map(Line::from).collect::<Vec<_>>())
}

fn length(cells: usize) -> Constraint {
    Constraint::Length(u16::try_from(cells).unwrap_or(u16::MAX))
}

fn phase_colour(phase: TargetPhase) -> Color {
    match phase {
        TargetPhase::Failed | TargetPhase::Stuck => Color::Red,
        TargetPhase::Ready => Color::Green,
        TargetPhase::Starting | TargetPhase::Updating | TargetPhase::Stopping => Color::Cyan,
        TargetPhase::Gone => Color::DarkGray,
    }
}
