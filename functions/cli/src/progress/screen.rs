//! Where progress is shown.

use std::time::Instant;

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::View;
use super::lines::{changes, stamped};
use super::tree::{Marks, Room, tree};
use crate::output;

/// Standard error, as a terminal that is drawn again and again or as lines.
pub(crate) struct Screen {
    begun: Instant,
    last: Option<View>,
    way: Way,
}

enum Way {
    Terminal { term: Term, multi: MultiProgress, bars: Vec<ProgressBar> },
    Lines,
}

impl Screen {
    /// The screen that standard error is.
    pub(crate) fn new() -> Self {
        let term = Term::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let way = if term.is_term() && !dumb {
            let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            Way::Terminal { term, multi, bars: Vec::new() }
        } else {
            Way::Lines
        };
        Self { begun: Instant::now(), last: None, way }
    }

    /// Shows a view.
    pub(crate) fn show(&mut self, view: View, now: Timestamp) {
        match &mut self.way {
            Way::Terminal { term, multi, bars } => {
                let (height, width) = term.size();
                // The last column and line stay free: a full line would wrap, a full screen scroll.
                let room = Room {
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
            Way::Lines => {
                for line in changes(self.last.as_ref(), &view, now) {
                    output::tell(&stamped(&line, self.begun.elapsed()));
                }
            }
        }
        self.last = Some(view);
    }

    /// Says a line of its own, once.
    pub(crate) fn say(&self, line: &str) {
        match &self.way {
            Way::Terminal { multi, .. } => multi.suspend(|| output::tell(line)),
            Way::Lines => output::tell(&stamped(line, self.begun.elapsed())),
        }
    }

    /// Leaves the last view where it is, in full. What is shown next goes below it.
    pub(crate) fn rest(&mut self, now: Timestamp) {
        if let Way::Terminal { term, multi, bars } = &mut self.way {
            for bar in bars.drain(..) {
                multi.remove(&bar);
            }
            // A terminal that is gone has nothing to clear.
            let _ = multi.clear();
            if let Some(view) = self.last.take() {
                let (height, width) = term.size();
                let room = Room { width: usize::from(width), height: usize::from(height).max(40) };
                output::tell(&tree(&view, now, room, marks()).join("\n"));
            }
        }
    }
}

fn marks() -> Marks {
    if console::colors_enabled_stderr() { Marks::Signs } else { Marks::Plain }
}
