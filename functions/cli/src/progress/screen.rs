//! Progress on standard error, as a terminal or as lines, or as data on standard output.

use std::time::Instant;

use console::Term;
use ebb_protocol::api::{RunDetail, RunState, TargetDetail};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use super::lines::{changes, stamped};
use super::tree::{ScreenSize, tree};
use crate::{OutputArgs, Result, output};

/// The state of the display: a tree that is redrawn in a terminal, lines, or data.
pub(crate) struct ProgressScreen {
    begun: Instant,
    last: Option<TargetDetail>,
    /// The runs that ended before the request whose effect is shown.
    former: Vec<RunDetail>,
    mode: ScreenMode,
}

enum ScreenMode {
    Terminal {
        term: Term,
        bar: ProgressBar,
    },
    Lines,
    /// Each changed view is data for programs.
    Data(OutputArgs),
}

impl ProgressScreen {
    pub(crate) fn new() -> Self {
        let term = Term::stderr();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let mode =
            if term.is_term() && !dumb { ScreenMode::Terminal { term, bar: text_bar() } } else { ScreenMode::Lines };
        Self { begun: Instant::now(), last: None, former: Vec::new(), mode }
    }

    /// Returns a display that writes each changed view to standard output, in the selected format.
    pub(crate) fn data(output: OutputArgs) -> Self {
        Self { begun: Instant::now(), last: None, former: Vec::new(), mode: ScreenMode::Data(output) }
    }

    /// Leaves out those of the runs before a request that have ended and do not change.
    pub(crate) fn without(mut self, before: Vec<RunDetail>) -> Self {
        let is_open = |run: &RunDetail| matches!(run.state, RunState::Running | RunState::Cancelling);
        self.former = before.into_iter().filter(|run| !is_open(run)).collect();
        self
    }

    /// Returns true if views are written as the server returns them.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self.mode, ScreenMode::Data(_))
    }

    /// Returns true if the display is redrawn in a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.mode, ScreenMode::Terminal { .. })
    }

    /// Shows a view and keeps it for comparison. Fails if standard output cannot be written.
    pub(crate) fn show(&mut self, mut view: TargetDetail, now: Timestamp) -> Result<()> {
        view.runs.retain(|run| !self.former.iter().any(|old| is_unchanged(old, run)));
        match &self.mode {
            ScreenMode::Terminal { term, bar } => {
                let (height, width) = term.size();
                // The last column and line stay free, because a full line would wrap and a full screen would scroll.
                let size = ScreenSize {
                    width: usize::from(width).saturating_sub(1).max(20),
                    height: usize::from(height).saturating_sub(2).max(5),
                };
                bar.set_message(tree(&view, now, size).join("\n"));
            }
            ScreenMode::Lines => {
                for line in changes(self.last.as_ref(), &view, now) {
                    output::status_line(&stamped(&line, self.begun.elapsed()));
                }
            }
            ScreenMode::Data(output) => {
                if self.last.as_ref().map(without_ages) != Some(without_ages(&view)) {
                    output.write_change(&view)?;
                }
            }
        }
        self.last = Some(view);
        Ok(())
    }

    /// Prints one line in addition to the view.
    pub(crate) fn print(&self, line: &str) {
        match &self.mode {
            ScreenMode::Terminal { bar, .. } => bar.suspend(|| output::status_line(line)),
            ScreenMode::Lines => output::status_line(&stamped(line, self.begun.elapsed())),
            ScreenMode::Data(_) => output::status_line(line),
        }
    }

    /// Prints the last view in full below earlier output and ends the display.
    pub(crate) fn finish(&mut self, now: Timestamp) {
        if let ScreenMode::Terminal { term, bar } = &mut self.mode {
            std::mem::replace(bar, text_bar()).finish_and_clear();
            if let Some(view) = self.last.take() {
                let (height, width) = term.size();
                let size = ScreenSize { width: usize::from(width), height: usize::from(height).max(40) };
                output::status_drawn(&tree(&view, now, size).join("\n"));
            }
        }
    }
}

/// Returns a view without the times that relays report as ages. They differ a little between two responses.
fn without_ages(view: &TargetDetail) -> TargetDetail {
    let mut view = view.clone();
    view.first_wait = None;
    for resource in view.resources.values_mut() {
        resource.since.clear();
    }
    for unit in view.runs.iter_mut().flat_map(|run| &mut run.units) {
        (unit.started, unit.deadline, unit.heartbeat) = (None, None, None);
        for wait in &mut unit.waits {
            (wait.since, wait.fails_at) = (None, None);
        }
    }
    view
}

/// Returns true if a run that had ended was not continued.
fn is_unchanged(old: &RunDetail, run: &RunDetail) -> bool {
    let attempts = |run: &RunDetail| run.units.iter().map(|unit| (unit.state, unit.attempt)).collect::<Vec<_>>();
    (&old.id, old.state) == (&run.id, run.state) && attempts(old) == attempts(run)
}

/// Returns a bar that shows only its message, which has several lines.
fn text_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg}").expect("a template of one known key");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::fixtures::{NOW, target};

    #[test]
    fn an_age_is_no_change_of_a_view() {
        let [view, later, other] = ["waiting", "later", "busy"].map(|name| without_ages(&target(name)));
        assert_eq!(view, later);
        assert_ne!(view, other);
    }

    #[test]
    fn runs_before_a_request_are_left_out_until_they_change() {
        let ended = target("done");
        let mut retried = ended.clone();
        retried.runs[0].units[4].attempt = 4;
        for (before, after, expected) in [
            // The run of a teardown goes on.
            (&ended, &ended, vec!["postStop"]),
            (&ended, &retried, vec!["preStart", "postStop"]),
            // The request was made while the run was open.
            (&target("busy"), &ended, vec!["preStart", "postStop"]),
        ] {
            let mut screen = ProgressScreen::new().without(before.runs.clone());
            screen.show(after.clone(), NOW.parse().unwrap()).unwrap();
            let shown: Vec<&str> =
                screen.last.iter().flat_map(|view| &view.runs).map(|run| run.hook.as_str()).collect();
            assert_eq!(shown, expected);
        }
    }
}
