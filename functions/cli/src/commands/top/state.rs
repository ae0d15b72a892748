//! The state of `ebb top`, and its change by an event. It has no clock, no terminal and no client.

use console::measure_text_width;
use ebb_protocol::api::{TargetDetail, TargetInfo, TargetPhase, TargetSelector, TargetWait, UnitState};
use ebb_protocol::limits;
use jiff::Timestamp;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::exit::Exit;
use crate::output::{joined_lines, plugin_name, printable};
use crate::progress::labels;
use crate::progress::tree::{ScreenSize, TreeLine, tree_lines};
use crate::target::TargetRef;

/// Maximum lines of messages below a page, except of a question.
const MESSAGE_LINES: usize = 4;
/// Maximum characters of a filter.
const FILTER_LENGTH: usize = 100;
/// Maximum characters of a reason, as in the API. A version is shorter.
const TEXT_LENGTH: usize = 500;
/// Maximum plugins that a question names.
const PLUGINS_NAMED: usize = 3;

const UNCHANGED: &str = "Nothing was changed";

/// Phases in the order of the title and of the list.
const PHASES: [TargetPhase; 7] = [
    TargetPhase::Stuck,
    TargetPhase::Failed,
    TargetPhase::Starting,
    TargetPhase::Updating,
    TargetPhase::Stopping,
    TargetPhase::Ready,
    TargetPhase::Gone,
];

/// The content of a page. It is requested every 2 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopPoll {
    List(TargetSelector),
    Tree(TargetRef),
    Why(TargetRef),
    /// The log of a unit. `None` lets the program choose the unit.
    Log(TargetRef, Option<LogUnit>),
}

/// A unit of a target whose log can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogUnit {
    /// The ID of the run.
    pub(super) run: String,
    pub(super) hook: String,
    /// `RESOURCE/UNIT`.
    pub(super) unit: String,
}

/// The log of one unit.
#[derive(Debug)]
pub(super) struct ShownLog {
    /// The phase of the target.
    pub(super) phase: TargetPhase,
    /// All units whose log can be read.
    pub(super) units: Vec<LogUnit>,
    /// The position of the unit in `units`.
    pub(super) shown: usize,
    pub(super) attempt: u32,
    pub(super) text: String,
}

/// The diagnosis of a target.
#[derive(Debug)]
pub(super) struct ShownWhy {
    /// The phase of the target.
    pub(super) phase: TargetPhase,
    /// The keys of the failed units of the present run.
    pub(super) failed: Vec<String>,
    pub(super) text: String,
}

/// The response to a [`TopPoll`].
#[derive(Debug)]
pub(super) enum TopAnswer {
    /// The targets and the warnings of the server.
    List(Vec<TargetInfo>, Vec<String>),
    Tree(Box<TargetDetail>),
    Why(ShownWhy),
    Log(ShownLog),
}

#[derive(Debug)]
pub(super) enum TopEvent {
    Key(KeyEvent),
    /// The terminal has pasted a text.
    Pasted(String),
    /// The terminal has another width and height.
    Resized(u16, u16),
    /// The server has answered a poll, or the text is the error.
    Answered(TopPoll, Result<TopAnswer, String>),
    /// The server has made a change, or the text is the error.
    Changed(Result<String, String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeVerb {
    Retry,
    /// A retry with the undos of a published version.
    RetryWith,
    Delete,
    ForceComplete,
    ForceDelete,
}

impl ChangeVerb {
    /// Returns the name of the text that the change needs.
    fn asks_for(self) -> Option<&'static str> {
        match self {
            Self::RetryWith => Some("version of the plugin, as NAME@VERSION"),
            Self::ForceComplete | Self::ForceDelete => Some("reason"),
            Self::Retry | Self::Delete => None,
        }
    }
}

/// A change of a target that a user has asked for.
#[derive(Clone, Debug)]
pub(super) struct TargetChange {
    pub(super) verb: ChangeVerb,
    pub(super) target: TargetInfo,
    /// The key of the unit that is marked as complete. Empty for other changes.
    pub(super) unit: String,
    /// The version or the reason. Empty for a change that needs none.
    pub(super) text: String,
}

/// The next keys belong to an input instead of the page.
#[derive(Clone, Debug)]
pub(super) enum TopInput {
    Filter(String),
    /// The user types the text of a change.
    Describe(Box<TargetChange>),
    Confirm(Box<TargetChange>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetView {
    Tree,
    Why,
    Log,
}

/// The page of one target.
#[derive(Debug)]
pub(super) struct OpenTarget {
    pub(super) target: TargetInfo,
    pub(super) view: TargetView,
    /// `None` until the server has answered.
    pub(super) content: Option<TopAnswer>,
    /// The unit that the user has chosen for the log.
    log_unit: Option<LogUnit>,
    /// The key of the failed unit that the user has chosen.
    failed_unit: Option<String>,
    /// The first shown line. `None` is the first line of a tree or text, and follows the end of a log.
    scroll: Option<usize>,
}

#[derive(Debug)]
pub(super) struct TopState {
    /// Host and port of the server.
    pub(super) server: String,
    pub(super) selection: TargetSelector,
    pub(super) size: ScreenSize,
    /// The time of the last event. The number of wrapped lines depends on it.
    pub(super) now: Timestamp,
    pub(super) targets: Vec<TargetInfo>,
    /// The position of the selected target.
    pub(super) selected: usize,
    /// The position of the first shown target.
    pub(super) first: usize,
    /// `None` shows the list.
    pub(super) open: Option<OpenTarget>,
    pub(super) input: Option<TopInput>,
    /// A change that is confirmed and not sent yet.
    pub(super) confirmed: Option<TargetChange>,
    /// The end of the program.
    pub(super) ended: Option<Exit>,
    /// The user wants the shell for a while.
    pub(super) suspends: bool,
    warnings: Vec<String>,
    /// The error of the last poll.
    error: Option<String>,
    /// The result of the last change, until the next key.
    note: Option<Result<String, String>>,
}

impl OpenTarget {
    fn new(target: TargetInfo, view: TargetView) -> Self {
        Self { target, view, content: None, log_unit: None, failed_unit: None, scroll: None }
    }

    /// Returns all lines of the page for a size.
    pub(super) fn lines(&self, size: ScreenSize, now: Timestamp) -> Vec<TreeLine> {
        let text = |text: &str| text.lines().flat_map(|line| wrapped(line, size.width)).map(TreeLine::from).collect();
        match &self.content {
            Some(TopAnswer::Tree(detail)) => {
                let others = TargetWait::of_others(&detail.info.waits);
                let others: Vec<TreeLine> = others.map(|wait| labels::target_wait(wait).into()).collect();
                let mut lines = tree_lines(detail, now, size.height.saturating_sub(others.len()));
                // The first line has the phase.
                lines.splice(1..1, others);
                lines.into_iter().flat_map(|line| wrapped_branch(line, size.width)).collect()
            }
            Some(TopAnswer::Why(why)) => text(&why.text),
            Some(TopAnswer::Log(log)) => text(&log.text),
            Some(TopAnswer::List(..)) | None => Vec::new(),
        }
    }

    /// Returns the position of the first line that is shown of `count` lines.
    pub(super) fn first_line(&self, count: usize, height: usize) -> usize {
        let last = count.saturating_sub(height);
        let usual = if self.view == TargetView::Log { last } else { 0 };
        self.scroll.map_or(usual, |first| first.min(last))
    }

    fn scroll_by(&mut self, step: isize, size: ScreenSize, now: Timestamp) {
        let count = self.lines(size, now).len();
        let last = count.saturating_sub(size.height);
        let first = self.first_line(count, size.height).saturating_add_signed(step).min(last);
        // At its end, a log is followed again.
        self.scroll = (self.view != TargetView::Log || first < last).then_some(first);
    }

    /// Chooses the unit before or after the shown one: of those with a log, or of those that have failed.
    fn choose_unit(&mut self, step: isize) {
        if let Some(TopAnswer::Log(log)) = &self.content {
            if let Some(unit) = log.shown.checked_add_signed(step).and_then(|at| log.units.get(at)) {
                (self.log_unit, self.scroll) = (Some(unit.clone()), None);
            }
        } else {
            let (at, units) = self.units().unwrap_or_default();
            let unit = at.checked_add_signed(step).and_then(|at| units.get(at)).map(|unit| (*unit).to_owned());
            if unit.is_some() {
                self.failed_unit = unit;
            }
        }
    }

    /// Returns the keys of the units that can be chosen, which are not empty, and the position of the chosen one.
    fn units(&self) -> Option<(usize, Vec<&str>)> {
        let units: Vec<&str> = match &self.content {
            Some(TopAnswer::Tree(detail)) => {
                let units = detail.runs.last().into_iter().flat_map(|run| &run.units);
                units.filter(|unit| unit.state == UnitState::Failed).map(|unit| unit.key.as_str()).collect()
            }
            Some(TopAnswer::Why(why)) => why.failed.iter().map(String::as_str).collect(),
            Some(TopAnswer::Log(log)) => log.units.get(log.shown).map(|unit| unit.unit.as_str()).into_iter().collect(),
            Some(TopAnswer::List(..)) | None => Vec::new(),
        };
        let chosen = units.iter().position(|unit| Some(*unit) == self.failed_unit.as_deref()).unwrap_or(0);
        (!units.is_empty()).then_some((chosen, units))
    }
}

impl TopState {
    pub(super) fn new(server: String, selection: TargetSelector, size: ScreenSize) -> Self {
        Self {
            server,
            selection,
            size,
            now: Timestamp::UNIX_EPOCH,
            targets: Vec::new(),
            selected: 0,
            first: 0,
            open: None,
            input: None,
            confirmed: None,
            ended: None,
            suspends: false,
            warnings: Vec::new(),
            error: None,
            note: None,
        }
    }

    /// Returns the state after an event.
    pub(super) fn update(mut self, event: TopEvent) -> Self {
        match event {
            TopEvent::Key(key) => self.press(key),
            TopEvent::Pasted(text) => self.paste(&text),
            TopEvent::Resized(width, height) => {
                self.size = ScreenSize { width: usize::from(width), height: usize::from(height) };
            }
            // The answer to another page is late.
            TopEvent::Answered(poll, _) if poll != self.poll() => {}
            TopEvent::Answered(_, Err(error)) => self.error = Some(error),
            TopEvent::Answered(_, Ok(answer)) => {
                self.error = None;
                self.show(answer);
            }
            TopEvent::Changed(result) => self.note = Some(result),
        }
        self.keep_selected_visible();
        self
    }

    /// Returns what the page shows.
    pub(super) fn poll(&self) -> TopPoll {
        let Some(open) = &self.open else { return TopPoll::List(self.selection.clone()) };
        let target = TargetRef::from(&open.target);
        match open.view {
            TargetView::Tree => TopPoll::Tree(target),
            TargetView::Why => TopPoll::Why(target),
            TargetView::Log => TopPoll::Log(target, open.log_unit.clone()),
        }
    }

    fn show(&mut self, answer: TopAnswer) {
        match (answer, &mut self.open) {
            (TopAnswer::List(mut targets, warnings), _) => {
                // Targets that need a person are visible without a filter. Those of a phase keep their order.
                targets.sort_by_key(|target| PHASES.iter().position(|phase| *phase == target.phase));
                // The selection stays on its target.
                let selected = self.targets.get(self.selected).map(TargetRef::from);
                let found = selected.and_then(|it| targets.iter().position(|target| TargetRef::from(target) == it));
                self.selected = found.unwrap_or(self.selected).min(targets.len().saturating_sub(1));
                (self.targets, self.warnings) = (targets, warnings);
            }
            (content, Some(open)) => {
                match &content {
                    TopAnswer::Tree(detail) => open.target = detail.info.clone(),
                    TopAnswer::Why(ShownWhy { phase, .. }) | TopAnswer::Log(ShownLog { phase, .. }) => {
                        open.target.phase = *phase;
                    }
                    TopAnswer::List(..) => {}
                }
                open.content = Some(content);
            }
            (_, None) => {}
        }
    }

    fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => self.ended = Some(Exit::Interrupted),
                KeyCode::Char('z') => self.suspends = true,
                _ => {}
            }
            return;
        }
        self.note = None;
        let is_yes = key.code == KeyCode::Char('y') && self.is_question_whole();
        match self.input.take() {
            Some(TopInput::Filter(text)) => self.type_filter(text, key.code),
            Some(TopInput::Describe(change)) => self.describe(change, key.code),
            Some(TopInput::Confirm(change)) if is_yes => self.confirmed = Some(*change),
            Some(TopInput::Confirm(_)) => self.note = Some(Ok(UNCHANGED.to_owned())),
            None => self.command(key.code),
        }
    }

    /// Adds a text to the one that is being typed, as one line. A page and a question take keys only.
    fn paste(&mut self, pasted: &str) {
        let (text, most) = match &mut self.input {
            Some(TopInput::Filter(text)) => (text, FILTER_LENGTH),
            Some(TopInput::Describe(change)) => (&mut change.text, TEXT_LENGTH),
            Some(TopInput::Confirm(_)) | None => return,
        };
        for character in pasted.trim_end().chars().take(most) {
            type_key(text, KeyCode::Char(if character.is_control() { ' ' } else { character }), most);
        }
    }

    fn type_filter(&mut self, mut text: String, key: KeyCode) {
        match key {
            KeyCode::Enter => {
                self.selection.text = Some(text).filter(|text| !text.is_empty());
                (self.selected, self.error) = (0, None);
                return;
            }
            KeyCode::Esc => return,
            key => type_key(&mut text, key, FILTER_LENGTH),
        }
        self.input = Some(TopInput::Filter(text));
    }

    fn describe(&mut self, mut change: Box<TargetChange>, key: KeyCode) {
        self.input = match key {
            KeyCode::Esc => {
                self.note = Some(Ok(UNCHANGED.to_owned()));
                None
            }
            KeyCode::Enter if !change.text.trim().is_empty() => Some(TopInput::Confirm(change)),
            key => {
                type_key(&mut change.text, key, TEXT_LENGTH);
                Some(TopInput::Describe(change))
            }
        };
    }

    fn command(&mut self, key: KeyCode) {
        let page = isize::try_from(self.page().height.saturating_sub(1)).unwrap_or(isize::MAX);
        match key {
            KeyCode::Char('q') => self.ended = Some(Exit::Done),
            KeyCode::Esc => self.go_back(),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(page),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Enter => self.go_to(TargetView::Tree),
            KeyCode::Char('w') => self.go_to(TargetView::Why),
            KeyCode::Char('l') => self.go_to(TargetView::Log),
            KeyCode::Left => self.open.iter_mut().for_each(|open| open.choose_unit(-1)),
            KeyCode::Right => self.open.iter_mut().for_each(|open| open.choose_unit(1)),
            KeyCode::Char('/') if self.open.is_none() => {
                self.input = Some(TopInput::Filter(self.selection.text.clone().unwrap_or_default()));
            }
            KeyCode::Char('r') => self.ask_for(ChangeVerb::Retry),
            KeyCode::Char('d') => self.ask_for(ChangeVerb::Delete),
            KeyCode::Char('p') => self.ask_for(ChangeVerb::RetryWith),
            KeyCode::Char('c') if self.open.is_some() => self.ask_for(ChangeVerb::ForceComplete),
            KeyCode::Char('f') => self.ask_for(ChangeVerb::ForceDelete),
            _ => {}
        }
    }

    /// Returns from a target to the list, from a filter to all targets, and otherwise ends the program.
    fn go_back(&mut self) {
        self.error = None;
        if self.open.take().is_none() && self.selection.text.take().is_none() {
            self.ended = Some(Exit::Done);
        }
    }

    fn go_to(&mut self, view: TargetView) {
        let Some(target) = self.chosen().cloned() else { return };
        if self.open.as_ref().is_none_or(|open| open.view != view) {
            (self.open, self.error) = (Some(OpenTarget::new(target, view)), None);
        }
    }

    fn step(&mut self, step: isize) {
        let (size, now) = (self.page(), self.now);
        match &mut self.open {
            Some(open) => open.scroll_by(step, size, now),
            None => {
                let last = self.targets.len().saturating_sub(1);
                self.selected = self.selected.saturating_add_signed(step).min(last);
            }
        }
    }

    fn ask_for(&mut self, verb: ChangeVerb) {
        let Some(target) = self.chosen().cloned() else { return };
        let unit = self.open.as_ref().filter(|_| verb == ChangeVerb::ForceComplete).map(OpenTarget::units);
        let name = printable(&TargetRef::from(&target).to_string());
        let refusal = match (target.phase, verb.asks_for(), &unit) {
            (TargetPhase::Gone, ..) => Some(format!("{name} is gone")),
            (TargetPhase::Stuck, Some(_), Some(None)) => Some(format!("no failed unit of {name} is shown")),
            (TargetPhase::Stuck, ..) | (_, None, _) => None,
            (phase, Some(_), _) => {
                Some(format!("{name} ({}): this key is for a target whose teardown is stuck", labels::name(&phase)))
            }
        };
        if let Some(refusal) = refusal {
            self.note = Some(Err(refusal));
            return;
        }
        let unit = unit.flatten().map_or(String::new(), |(chosen, units)| units[chosen].to_owned());
        // The version is to be typed.
        let text = match target.plugins.as_slice() {
            [plugin] if verb == ChangeVerb::RetryWith => {
                plugin.split_inclusive('@').next().unwrap_or_default().to_owned()
            }
            _ => String::new(),
        };
        let change = Box::new(TargetChange { verb, target, unit, text });
        self.input = Some(match verb.asks_for() {
            Some(_) => TopInput::Describe(change),
            None => TopInput::Confirm(change),
        });
    }

    /// Returns the open target, or the selected one of the list.
    fn chosen(&self) -> Option<&TargetInfo> {
        self.open.as_ref().map(|open| &open.target).or_else(|| self.targets.get(self.selected))
    }

    /// Returns the lines above a page. Those above a question leave it their room.
    pub(super) fn title(&self) -> Vec<String> {
        wrapped(&self.title_text(), self.size.width).into_iter().take(self.most_lines()).collect()
    }

    fn title_text(&self) -> String {
        let Some(open) = &self.open else {
            let filter = self.selection.text.as_ref().map(|text| format!("  filter: {}", printable(text)));
            return format!("{}  {}{}", self.server, counted(&self.targets), filter.unwrap_or_default());
        };
        let target = printable(&TargetRef::from(&open.target).to_string());
        let failed = open.units().filter(|_| open.target.phase == TargetPhase::Stuck);
        let failed = failed.map_or(String::new(), |(chosen, units)| {
            format!("  unit {} ({} of {} failed)", printable(units[chosen]), chosen + 1, units.len())
        });
        let view = match (open.view, &open.content) {
            (TargetView::Tree, _) => failed,
            (TargetView::Why, _) => format!("  why{failed}"),
            (TargetView::Log, Some(TopAnswer::Log(log))) => log.units.get(log.shown).map_or(String::new(), |unit| {
                let (number, count) = (log.shown + 1, log.units.len());
                let unit = printable(&format!("{} {}", unit.hook, unit.unit));
                format!("  log of {unit}, attempt {} ({number} of {count})", log.attempt)
            }),
            (TargetView::Log, _) => "  log".to_owned(),
        };
        format!("{}  {target}{view}", self.server)
    }

    /// Returns the maximum lines of the title and of the keys.
    fn most_lines(&self) -> usize {
        match self.input {
            Some(TopInput::Confirm(_) | TopInput::Describe(_)) => 1,
            _ => (self.size.height / 3).max(1),
        }
    }

    /// Returns the size of the page between its title and the messages.
    pub(super) fn page(&self) -> ScreenSize {
        let used = self.title().len() + self.messages().len() + self.keys().len();
        ScreenSize { height: self.size.height.saturating_sub(used).max(1), ..self.size }
    }

    /// Returns the number of targets that the list shows below its header.
    pub(super) fn rows(&self) -> usize {
        self.page().height.saturating_sub(1).max(1)
    }

    fn keep_selected_visible(&mut self) {
        let rows = self.rows();
        self.first = self.first.min(self.selected).max(self.selected.saturating_sub(rows - 1));
    }

    /// Returns true if the messages are errors or questions.
    pub(super) fn is_urgent(&self) -> bool {
        self.error.is_some() || matches!(self.note, Some(Err(_))) || matches!(self.input, Some(TopInput::Confirm(_)))
    }

    /// Returns the lines of the question, or of the result of the last change, the error and the first warning.
    pub(super) fn messages(&self) -> Vec<String> {
        let messages = match &self.input {
            Some(TopInput::Filter(text)) => vec![format!("filter: {}_", typed(text))],
            Some(TopInput::Describe(change)) => vec![self.prompt(change)],
            Some(TopInput::Confirm(change)) => vec![self.question(change)],
            None => {
                let note = self.note.as_ref().map(|note| match note {
                    Ok(text) => joined_lines(text),
                    Err(error) => format!("error: {}", joined_lines(error)),
                });
                let error = self.error.as_ref().map(|error| format!("error: {}; trying again", joined_lines(error)));
                let more = match self.warnings.len() {
                    0 | 1 => String::new(),
                    count => format!(" (and {} more)", count - 1),
                };
                let warning = self.warnings.first().filter(|_| self.open.is_none());
                let warning = warning.map(|warning| format!("warning: {}{more}", joined_lines(warning)));
                [note, error, warning].into_iter().flatten().collect()
            }
        };
        let lines: Vec<String> = messages.iter().flat_map(|message| wrapped(message, self.size.width)).collect();
        let hidden = match self.input {
            // The end of a text that is being typed is visible.
            Some(TopInput::Filter(_) | TopInput::Describe(_)) => lines.len().saturating_sub(self.most_messages()),
            Some(TopInput::Confirm(_)) | None => 0,
        };
        lines.into_iter().skip(hidden).take(self.most_messages()).collect()
    }

    /// A question has the screen below the title and above the keys.
    fn most_messages(&self) -> usize {
        match self.input {
            Some(TopInput::Confirm(_) | TopInput::Describe(_)) => self.size.height.saturating_sub(2),
            _ => MESSAGE_LINES,
        }
    }

    /// Returns true if the end of the question is visible. It has the consequence.
    fn is_question_whole(&self) -> bool {
        let Some(TopInput::Confirm(change)) = &self.input else { return false };
        wrapped(&self.question(change), self.size.width).len() <= self.most_messages()
    }

    /// Returns the line in which the text of a change is typed.
    fn prompt(&self, change: &TargetChange) -> String {
        let (action, asked) = (self.action(change), change.verb.asks_for().unwrap_or_default());
        format!("{action}: {asked}: {}_", typed(&change.text))
    }

    /// Returns what a change does, with the target and the server.
    fn action(&self, TargetChange { verb, target, unit, .. }: &TargetChange) -> String {
        let (name, phase) = (printable(&TargetRef::from(target).to_string()), labels::name(&target.phase));
        let target = format!("{name} ({phase}) on {}", self.server);
        match verb {
            ChangeVerb::Retry | ChangeVerb::RetryWith => format!("Retry {target}"),
            ChangeVerb::Delete => format!("Delete {target}"),
            ChangeVerb::ForceComplete => format!("Mark {} as complete in {target}", printable(unit)),
            ChangeVerb::ForceDelete => format!("Force-delete {target}"),
        }
    }

    /// Returns the question before a change, with its consequences.
    fn question(&self, change: &TargetChange) -> String {
        let (action, target, text) = (self.action(change), &change.target, printable(change.text.trim()));
        match change.verb {
            ChangeVerb::Retry => {
                format!("{action}? Its failed units run again and repeat their scripts and requests.")
            }
            ChangeVerb::RetryWith => format!(
                "{action} with {text}? The undo scripts and requests of this version replace those of the target, and \
                 its failed units run again."
            ),
            ChangeVerb::Delete if target.phase == TargetPhase::Stuck => {
                format!("{action}? Its teardown has failed, and a deletion does not run it again: r does.")
            }
            ChangeVerb::Delete => {
                let of = plugins_named(target);
                format!("{action}? Its resources{of} are removed with their data. This cannot be undone.")
            }
            ChangeVerb::ForceComplete => format!(
                "{action}, reason: {text}? Its teardown continues without the unit, and what the unit has to remove may \
                 remain. This cannot be undone."
            ),
            ChangeVerb::ForceDelete => {
                let of = plugins_named(target);
                format!(
                    "{action}, reason: {text}? Its teardown is given up, and its resources{of} may remain. An instance \
                     that waits for its name is deleted, too. This cannot be undone."
                )
            }
        }
    }

    /// Returns the lines that name the keys.
    pub(super) fn keys(&self) -> Vec<String> {
        let is_stuck = self.chosen().is_some_and(|target| target.phase == TargetPhase::Stuck);
        let keys = match (&self.input, &self.open) {
            (Some(TopInput::Filter(_)), _) => "Enter apply  Esc cancel",
            (Some(TopInput::Describe(_)), _) => "Enter continue  Esc cancel",
            (Some(TopInput::Confirm(_)), _) if self.is_question_whole() => "y yes  any other key: no",
            (Some(TopInput::Confirm(_)), _) => "any key: no (the screen is too small for the question)",
            (None, None) => "↑↓ select  Enter open  w why  l logs  r retry  d delete  / filter  q quit",
            (None, Some(open)) => match open.view {
                TargetView::Tree => "↑↓ scroll  w why  l logs  r retry  d delete  Esc back  q quit",
                TargetView::Why => "↑↓ scroll  Enter tree  l logs  r retry  d delete  Esc back  q quit",
                TargetView::Log => "↑↓ scroll  ←→ unit  Enter tree  w why  r retry  d delete  Esc back  q quit",
            },
        };
        let keys = match (&self.input, &self.open) {
            (None, None) if is_stuck => keys.replace("  d delete", "  p repair  d delete  f force-delete"),
            (None, Some(_)) if is_stuck => {
                let keys = keys.replace("  ←→ unit", "").replace("scroll", "scroll  ←→ unit");
                keys.replace("  d delete", "  p repair  c complete  d delete  f force-delete")
            }
            _ => keys.to_owned(),
        };
        // A line ends after a key with its word.
        let keys: Vec<String> = keys.split("  ").map(|key| key.replacen(' ', "\u{a0}", 1)).collect();
        let lines = wrapped(&keys.join("  "), self.size.width).into_iter().take(self.most_lines());
        lines.map(|line| line.replace('\u{a0}', " ")).collect()
    }
}

/// Changes a text by a key. It has at most `most` characters.
fn type_key(text: &mut String, key: KeyCode, most: usize) {
    match key {
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(character) if text.chars().count() < most => text.push(character),
        _ => {}
    }
}

/// Returns a text that is being typed as one line, like [`printable`], but with its last spaces.
fn typed(text: &str) -> String {
    limits::printable(text).replace('\n', " ")
}

/// Returns the plugins of a target after the word `of`, or nothing without plugins.
fn plugins_named(target: &TargetInfo) -> String {
    let plugins: Vec<&str> = target.plugins.iter().map(|plugin| plugin_name(plugin)).collect();
    let of = match plugins.split_at_checked(PLUGINS_NAMED) {
        _ if plugins.is_empty() => String::new(),
        Some((named, more @ [_, ..])) => format!(" of {} and {} more", named.join(", "), more.len()),
        _ => format!(" of {}", plugins.join(", ")),
    };
    printable(&of)
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

/// Divides a line of a tree like [`wrapped`]. The state of a unit is continued below it.
fn wrapped_branch(TreeLine { branch, sign, text }: TreeLine, width: usize) -> Vec<TreeLine> {
    let signed = sign.map_or(0, |(sign, _)| measure_text_width(branch) + measure_text_width(sign));
    let below = if branch.starts_with('├') { "│ " } else { "  " };
    let lines = wrapped(&text, width.saturating_sub(signed)).into_iter().enumerate();
    let line = |(number, text): (usize, String)| match number {
        0 => TreeLine { branch, sign, text },
        _ if signed == 0 => text.into(),
        _ => TreeLine { branch: below, sign: None, text: format!(" {text}") },
    };
    lines.map(line).collect()
}

/// Divides a line into lines of at most `width` columns, at spaces where possible. The continuation of an indented line is
/// indented by two columns more.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let line = line.replace('\t', "    ");
    let further = match line.len() - line.trim_start_matches(' ').len() {
        0 => 0,
        indent => (indent + 2).min(width / 2),
    };
    let (mut lines, mut rest, mut indent) = (Vec::new(), line.as_str(), String::new());
    loop {
        let mut used = indent.len();
        let end = rest.char_indices().find_map(|(at, character)| {
            used += if character.is_ascii() { 1 } else { measure_text_width(character.encode_utf8(&mut [0; 4])) };
            (used > width && at > 0).then_some(at)
        });
        let Some(end) = end else {
            lines.push(indent + rest);
            return lines;
        };
        let space = rest[..end].rfind(' ').map(|at| at + 1);
        let (shown, more) = rest.split_at(space.filter(|at| at * 2 > end).unwrap_or(end));
        lines.push((indent + shown).trim_end().to_owned());
        (rest, indent) = (more, " ".repeat(further));
    }
}
