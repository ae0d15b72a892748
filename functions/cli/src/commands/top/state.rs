//! The state of `ebb top`, and its change by an event. It has no clock, no terminal and no client.

use ebb_protocol::{TargetInfo, TargetPhase, TargetSelector, limits};
use jiff::Timestamp;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::change::{ChangeVerb, TargetChange};
use super::page::{OpenTarget, PageUnit, TargetPage, TargetView};
use super::wrap::wrapped;
use crate::{Exit, ScreenSize, TargetRef, joined_lines, labels, printable};

/// Maximum lines of messages below a page, except of a question.
const MESSAGE_LINES: usize = 4;
/// Maximum characters of a filter.
const FILTER_LENGTH: usize = 100;
/// Maximum characters of a reason, as in the API. A version is shorter.
const TEXT_LENGTH: usize = 500;

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

/// The content of the screen. It is requested every 2 s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TopPoll {
    List(TargetSelector),
    /// The page of a target. Without a unit, the program chooses that of a log.
    Page(TargetRef, TargetView, Option<PageUnit>),
}

/// The response to a [`TopPoll`].
#[derive(Debug)]
pub(super) enum TopAnswer {
    /// The targets and the warnings of the server.
    List(Vec<TargetInfo>, Vec<String>),
    Page(Box<TargetPage>),
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

/// The next keys belong to an input instead of the page.
#[derive(Clone, Debug)]
pub(super) enum TopInput {
    Filter(String),
    /// The user types the text of a change.
    Describe(Box<TargetChange>),
    Confirm(Box<TargetChange>),
}

#[derive(Debug, Default)]
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

impl TopState {
    pub(super) fn new(server: String, selection: TargetSelector, size: ScreenSize) -> Self {
        Self { server, selection, size, ..Self::default() }
    }

    pub(super) fn update(mut self, event: TopEvent) -> Self {
        match event {
            TopEvent::Key(key) => self.press(key),
            // As one line. A page and a question take keys only.
            TopEvent::Pasted(text) => {
                for character in text.trim_end().chars().take(TEXT_LENGTH) {
                    self.type_key(KeyCode::Char(if character.is_control() { ' ' } else { character }));
                }
            }
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
        let rows = self.rows();
        self.first = self.first.min(self.selected).max(self.selected.saturating_sub(rows - 1));
        self
    }

    pub(super) fn poll(&self) -> TopPoll {
        let Some(open) = &self.open else { return TopPoll::List(self.selection.clone()) };
        let unit = open.unit.clone().filter(|_| open.view == TargetView::Log);
        TopPoll::Page(TargetRef::from(&open.target), open.view, unit)
    }

    fn show(&mut self, answer: TopAnswer) {
        match (answer, &mut self.open) {
            (TopAnswer::List(mut targets, warnings), _) => {
                // Targets that need a person are visible without a filter. Those of a phase keep their order.
                targets.sort_by_key(|target| PHASES.iter().position(|phase| *phase == target.phase));
                // The selection stays on its target.
                let selected = self.targets.get(self.selected).map(TargetRef::from);
                let present = targets.iter().position(|target| Some(TargetRef::from(target)) == selected);
                self.selected = present.unwrap_or(self.selected).min(targets.len().saturating_sub(1));
                (self.targets, self.warnings) = (targets, warnings);
            }
            (TopAnswer::Page(page), Some(open)) => {
                open.target = page.detail.info.clone();
                open.page = Some(*page);
            }
            (TopAnswer::Page(_), None) => {}
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
        match (self.input.take(), key.code) {
            (None, key) => self.command(key),
            (Some(TopInput::Confirm(change)), _) if is_yes => self.confirmed = Some(*change),
            (Some(TopInput::Filter(_)), KeyCode::Esc) => {}
            (Some(TopInput::Confirm(_)), _) | (Some(TopInput::Describe(_)), KeyCode::Esc) => {
                self.note = Some(Ok(UNCHANGED.to_owned()));
            }
            (Some(TopInput::Filter(text)), KeyCode::Enter) => {
                self.selection.text = Some(text).filter(|text| !text.is_empty());
                (self.selected, self.error) = (0, None);
            }
            (Some(TopInput::Describe(change)), KeyCode::Enter) if !change.text.trim().is_empty() => {
                self.input = Some(TopInput::Confirm(change));
            }
            (input, key) => {
                self.input = input;
                self.type_key(key);
            }
        }
    }

    /// Changes the text that is being typed, if there is one.
    fn type_key(&mut self, key: KeyCode) {
        let (text, most) = match &mut self.input {
            Some(TopInput::Filter(text)) => (text, FILTER_LENGTH),
            Some(TopInput::Describe(change)) => (&mut change.text, TEXT_LENGTH),
            Some(TopInput::Confirm(_)) | None => return,
        };
        match key {
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(character) if text.chars().count() < most => text.push(character),
            _ => {}
        }
    }

    fn command(&mut self, key: KeyCode) {
        let page = isize::try_from(self.page().height.saturating_sub(1)).unwrap_or(isize::MAX);
        match key {
            KeyCode::Char('q') => self.ended = Some(Exit::Done),
            // From a target to the list, from a filter to all targets, and otherwise out of the program.
            KeyCode::Esc => {
                self.error = None;
                if self.open.take().is_none() && self.selection.text.take().is_none() {
                    self.ended = Some(Exit::Done);
                }
            }
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
        let unit = unit.flatten().map_or(String::new(), |(at, units)| units[at].key.clone());
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
        let (what, rest) = match &self.open {
            Some(open) => (printable(&TargetRef::from(&open.target).to_string()), open.title()),
            None => {
                let filter = self.selection.text.as_ref().map(|text| format!("  filter: {}", printable(text)));
                (counted(&self.targets), filter.unwrap_or_default())
            }
        };
        let text = format!("{}  {what}{rest}", self.server);
        wrapped(&text, self.size.width).into_iter().take(self.most_lines()).collect()
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

    /// Returns true if the messages are errors or questions.
    pub(super) fn is_urgent(&self) -> bool {
        self.error.is_some() || matches!(self.note, Some(Err(_))) || matches!(self.input, Some(TopInput::Confirm(_)))
    }

    /// Returns the lines of the question, or of the result of the last change, the error and the first warning.
    pub(super) fn messages(&self) -> Vec<String> {
        let messages = match &self.input {
            Some(TopInput::Filter(text)) => vec![format!("filter: {}_", typed(text))],
            Some(TopInput::Describe(change)) => {
                let (action, asked) = (change.action(&self.server), change.verb.asks_for().unwrap_or_default());
                vec![format!("{action}: {asked}: {}_", typed(&change.text))]
            }
            Some(TopInput::Confirm(change)) => vec![change.question(&self.server)],
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
        wrapped(&change.question(&self.server), self.size.width).len() <= self.most_messages()
    }

    pub(super) fn keys(&self) -> Vec<String> {
        let keys = match &self.input {
            Some(TopInput::Filter(_)) => vec!["Enter apply", "Esc cancel"],
            Some(TopInput::Describe(_)) => vec!["Enter continue", "Esc cancel"],
            Some(TopInput::Confirm(_)) if self.is_question_whole() => vec!["y yes", "any other key: no"],
            Some(TopInput::Confirm(_)) => vec!["any key: no (the screen is too small for the question)"],
            None => self.page_keys(),
        };
        // A line ends after a key with its word.
        let keys: Vec<String> = keys.iter().map(|key| key.replacen(' ', "\u{a0}", 1)).collect();
        let lines = wrapped(&keys.join("  "), self.size.width).into_iter().take(self.most_lines());
        lines.map(|line| line.replace('\u{a0}', " ")).collect()
    }

    fn page_keys(&self) -> Vec<&'static str> {
        let view = self.open.as_ref().map(|open| open.view);
        let is_stuck = self.chosen().is_some_and(|target| target.phase == TargetPhase::Stuck);
        let (is_list, has_units) = (view.is_none(), is_stuck || view == Some(TargetView::Log));
        let keys = [
            (is_list, "↑↓ select"),
            (!is_list, "↑↓ scroll"),
            (!is_list && has_units, "←→ unit"),
            (is_list, "Enter open"),
            (!is_list && view != Some(TargetView::Tree), "Enter tree"),
            (view != Some(TargetView::Why), "w why"),
            (view != Some(TargetView::Log), "l logs"),
            (true, "r retry"),
            (is_stuck, "p repair"),
            (is_stuck && !is_list, "c complete"),
            (true, "d delete"),
            (is_stuck, "f force-delete"),
            (is_list, "/ filter"),
            (!is_list, "Esc back"),
            (true, "q quit"),
        ];
        keys.into_iter().filter_map(|(is_shown, key)| is_shown.then_some(key)).collect()
    }
}

/// Returns a text that is being typed as one line, like [`printable`], but with its last spaces.
fn typed(text: &str) -> String {
    limits::printable(text).replace('\n', " ")
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
