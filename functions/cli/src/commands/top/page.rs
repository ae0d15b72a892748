//! The page of one target in `ebb top`: its tree, its diagnosis or a log.

use ebb_protocol::{RunDetail, TargetDetail, TargetInfo, TargetPhase, TargetWait, UnitDetail, UnitState, words};
use jiff::Timestamp;

use super::wrap::{wrapped, wrapped_branch};
use crate::{ScreenSize, TreeLine, printable, timing, tree_lines};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetView {
    Tree,
    Why,
    Log,
}

/// A unit of a target that a user can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageUnit {
    /// The ID of the run.
    pub(super) run: String,
    pub(super) hook: String,
    /// `RESOURCE/UNIT`.
    pub(super) key: String,
}

/// The answer of the server about the target of a page.
#[derive(Debug)]
pub(super) struct TargetPage {
    pub(super) detail: TargetDetail,
    pub(super) content: PageContent,
}

/// The content of a page in addition to the target.
#[derive(Debug)]
pub(super) enum PageContent {
    Tree,
    Why(String),
    Log {
        /// The position of the unit in [`readable`].
        shown: usize,
        attempt: u32,
        text: String,
    },
}

#[derive(Debug)]
pub(super) struct OpenTarget {
    pub(super) target: TargetInfo,
    pub(super) view: TargetView,
    /// `None` until the server has answered.
    pub(super) page: Option<TargetPage>,
    /// The unit that the user has chosen.
    pub(super) unit: Option<PageUnit>,
    /// The first shown line. `None` is the first line of a tree or text, and follows the end of a log.
    scroll: Option<usize>,
}

impl OpenTarget {
    pub(super) fn new(target: TargetInfo, view: TargetView) -> Self {
        Self { target, view, page: None, unit: None, scroll: None }
    }

    pub(super) fn lines(&self, size: ScreenSize, now: Timestamp) -> Vec<TreeLine> {
        let Some(TargetPage { detail, content }) = &self.page else { return Vec::new() };
        match content {
            PageContent::Tree => {
                let others = TargetWait::of_others(&detail.info.waits);
                let others: Vec<TreeLine> =
                    others.map(|wait| timing::clocks(&words::target_wait(wait)).into()).collect();
                let mut lines = tree_lines(detail, now, size.height.saturating_sub(others.len()));
                // The first line has the phase.
                lines.splice(1..1, others);
                lines.into_iter().flat_map(|line| wrapped_branch(line, size.width)).collect()
            }
            PageContent::Why(text) | PageContent::Log { text, .. } => {
                text.lines().flat_map(|line| wrapped(line, size.width)).map(TreeLine::from).collect()
            }
        }
    }

    /// Returns the position of the first line that is shown of `count` lines.
    pub(super) fn first_line(&self, count: usize, height: usize) -> usize {
        let last = count.saturating_sub(height);
        let usual = if self.view == TargetView::Log { last } else { 0 };
        self.scroll.map_or(usual, |first| first.min(last))
    }

    pub(super) fn scroll_by(&mut self, step: isize, size: ScreenSize, now: Timestamp) {
        let count = self.lines(size, now).len();
        let last = count.saturating_sub(size.height);
        let first = self.first_line(count, size.height).saturating_add_signed(step).min(last);
        // At its end, a log is followed again.
        self.scroll = (self.view != TargetView::Log || first < last).then_some(first);
    }

    /// Chooses the unit before or after the present one.
    pub(super) fn choose_unit(&mut self, step: isize) {
        let (at, units) = self.units().unwrap_or_default();
        if let Some(unit) = at.checked_add_signed(step).and_then(|at| units.into_iter().nth(at)) {
            self.unit = Some(unit);
            if self.view == TargetView::Log {
                self.scroll = None;
            }
        }
    }

    /// Returns the units that can be chosen, which are not empty, and the position of the present one: those with a log on the
    /// page of a log, and otherwise those that have failed.
    pub(super) fn units(&self) -> Option<(usize, Vec<PageUnit>)> {
        let TargetPage { detail, content } = self.page.as_ref()?;
        let (units, shown) = match content {
            PageContent::Log { shown, .. } => (readable(detail), Some(*shown)),
            PageContent::Tree | PageContent::Why(_) => (failed(detail), None),
        };
        let units: Vec<PageUnit> = units.into_iter().map(PageUnit::from).collect();
        let chosen = || units.iter().position(|unit| Some(unit) == self.unit.as_ref());
        let at = shown.or_else(chosen).unwrap_or(0);
        (!units.is_empty()).then_some((at, units))
    }

    /// Returns what follows the name of the target in the title.
    pub(super) fn title(&self) -> String {
        let unit = self.units().map(|(at, units)| (units[at].clone(), at + 1, units.len()));
        match (&self.page, unit) {
            (
                Some(TargetPage { content: PageContent::Log { attempt, .. }, .. }),
                Some((PageUnit { hook, key, .. }, number, count)),
            ) => {
                let unit = printable(&format!("{hook} {key}"));
                format!("  log of {unit}, attempt {attempt} ({number} of {count})")
            }
            (_, unit) => {
                let view = match self.view {
                    TargetView::Tree => "",
                    TargetView::Why => "  why",
                    TargetView::Log => "  log",
                };
                let unit = unit.filter(|_| self.target.phase == TargetPhase::Stuck);
                let unit = unit.map_or(String::new(), |(PageUnit { key, .. }, number, count)| {
                    format!("  unit {} ({number} of {count} failed)", printable(&key))
                });
                format!("{view}{unit}")
            }
        }
    }
}

impl From<(&RunDetail, &UnitDetail)> for PageUnit {
    fn from((run, unit): (&RunDetail, &UnitDetail)) -> Self {
        Self { run: run.id.clone(), hook: run.hook.clone(), key: unit.key.clone() }
    }
}

/// Returns the units whose log may be read, in the order of the runs.
pub(super) fn readable(detail: &TargetDetail) -> Vec<(&RunDetail, &UnitDetail)> {
    let units = detail.runs.iter().flat_map(|run| run.units.iter().map(move |unit| (run, unit)));
    let has_started =
        |unit: &UnitDetail| !matches!(unit.state, UnitState::Waiting | UnitState::Blocked | UnitState::Skipped);
    units.filter(|(_, unit)| unit.log || (unit.kind == "pod" && has_started(unit))).collect()
}

/// Returns the failed units of the last run.
fn failed(detail: &TargetDetail) -> Vec<(&RunDetail, &UnitDetail)> {
    let units = detail.runs.last().into_iter().flat_map(|run| run.units.iter().map(move |unit| (run, unit)));
    units.filter(|(_, unit)| unit.state == UnitState::Failed).collect()
}
