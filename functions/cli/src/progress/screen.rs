//! Progress on standard error, as a terminal or as lines.

use std::time::Instant;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::TargetView;
use super::lines::{changes, stamped};
use super::tree::{ScreenSize, StateMarks, tree};
use crate::output;

/// The state of the display: a tree that is redrawn in a terminal, or lines.
pub(crate) struct ProgressScreen {
    begun: Instant,
    last: Option<TargetView>,
    mode: ScreenMode,
}

enum ScreenMode {
    Terminal { term: Term, multi: MultiProgress, bars: Vec<ProgressBar> },
    Lines,
}

impl ProgressScreen {
    /// Returns a display for standard error.
    pub(crate) fn new() -> Self {
        let term = Term::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let mode = if term.is_term() && !dumb {
            let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            ScreenMode::Terminal { term, multi, bars: Vec::new() }
        } else {
            ScreenMode::Lines
        };
        Self { begun: Instant::now(), last: None, mode }
    }

    /// Shows a view and keeps it for comparison.
    pub(crate) fn show(&mut self, view: TargetView, now: Timestamp) {
        match &mut self.mode {
            ScreenMode::Terminal { term, multi, bars } => {
                let (height, width) = term.size();
                // The last column and line stay free: a full line would wrap, a full screen would scroll.
                let size = ScreenSize {
                    width: usize::from(width).saturating_sub(1).max(20),
                    height: usize::from(height).saturating_sub(2).max(5),
                };
                let lines = tree(&view, now, size, marks());
                while bars.len() > lines.len() {
                    if let Some(bar) = bars.pop() {
                        multi.remove(&bar);
                    }
                }
                while bars.len() < lines.len() {
                    let style = ProgressStyle::with_template("{msg}").expect("a template of one known key");
                    bars.push(multi.add(ProgressBar::new_spinner().with_style(style)));
                }
                for (bar, line) in bars.iter().zip(lines) {
                    bar.set_message(line);
                }
            }
            ScreenMode::Lines => {
                for line in changes(self.last.as_ref(), &view, now) {
                    output::status_line(&stamped(&line, self.begun.elapsed()));
                }
            }
        }
        self.last = Some(view);
    }

    /// Prints one line in addition to the view.
    pub(crate) fn print(&self, line: &str) {
        match &self.mode {
            ScreenMode::Terminal { multi, .. } => multi.suspend(|| output::status_line(line)),
            ScreenMode::Lines => output::status_line(&stamped(line, self.begun.elapsed())),
        }
    }

    /// Prints the last view in full below earlier output and ends the display.
    pub(crate) fn finish(&mut self, now: Timestamp) {
        if let ScreenMode::Terminal { term, multi, bars } = &mut self.mode {
            for bar in bars.drain(..) {
                multi.remove(&bar);
            }
            // A closed terminal needs no clearing.
            let _ = multi.clear();
            if let Some(view) = self.last.take() {
                let (height, width) = term.size();
                let size = ScreenSize { width: usize::from(width), height: usize::from(height).max(40) };
                output::status_line(&tree(&view, now, size, marks()).join("\n"));
            }
        }
    }
}

fn marks() -> StateMarks {
    if console::colors_enabled_stderr() { StateMarks::Signs } else { StateMarks::Plain }
}
