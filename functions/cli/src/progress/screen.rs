//! Where progress is shown.

use std::time::Instant;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::TargetView;
use super::lines::{changes, stamped};
use super::tree::{ScreenSize, StateMarks, tree};
use crate::output;

/// Standard error, as a terminal that is drawn again and again or as lines.
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
    /// The screen that standard error is.
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

    /// Shows a view.
    pub(crate) fn show(&mut self, view: TargetView, now: Timestamp) {
        match &mut self.mode {
            ScreenMode::Terminal { term, multi, bars } => {
                let (height, width) = term.size();
                // The last column and line stay free: a full line would wrap, a full screen scroll.
                let room = ScreenSize {
                    width: usize::from(width).saturating_sub(1).max(20),
                    height: usize::from(height).saturating_sub(2).max(5),
                };
                let lines = tree(&view, now, room, marks());
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

    /// Says a line of its own, once.
    pub(crate) fn say(&self, line: &str) {
        match &self.mode {
            ScreenMode::Terminal { multi, .. } => multi.suspend(|| output::status_line(line)),
            ScreenMode::Lines => output::status_line(&stamped(line, self.begun.elapsed())),
        }
    }

    /// Leaves the last view where it is, in full. What is shown next goes below it.
    pub(crate) fn rest(&mut self, now: Timestamp) {
        if let ScreenMode::Terminal { term, multi, bars } = &mut self.mode {
            for bar in bars.drain(..) {
                multi.remove(&bar);
            }
            // A terminal that is gone has nothing to clear.
            let _ = multi.clear();
            if let Some(view) = self.last.take() {
                let (height, width) = term.size();
                let room = ScreenSize { width: usize::from(width), height: usize::from(height).max(40) };
                output::status_line(&tree(&view, now, room, marks()).join("\n"));
            }
        }
    }
}

fn marks() -> StateMarks {
    if console::colors_enabled_stderr() { StateMarks::Signs } else { StateMarks::Plain }
}
