//! `ebb top`: shows targets in the terminal while they change.
//!
//! The loop in this file is the only user of the terminal. `state` decides, `draw` draws, and `poll` and `change` send
//! requests.

mod change;
mod draw;
mod page;
mod poll;
mod state;
#[cfg(test)]
mod tests;
mod wrap;

use std::io::{self, IsTerminal as _};
use std::mem::ManuallyDrop;
use std::time::Duration;

use ebb_protocol::api::TargetSelector;
use nix::sys::signal::{Signal, raise};
use ratatui::DefaultTerminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::task::JoinSet;
use url::Position;

use self::state::{TopAnswer, TopEvent, TopPoll, TopState};
use crate::{ApiClient, CliError, Exit, InterruptCount, Result, ScreenSize, SelectorArgs, ServerArgs, connect, timing};

/// The pause after which ages are drawn again.
const REDRAW: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ebb top\n  ebb top --kind all --phase failed --phase stuck\n  ebb top --label team=payments"
)]
pub(crate) struct TopArgs {
    /// Kind of the targets, such as `routegroup`; `all` shows all kinds
    #[arg(long, value_name = "KIND", default_value = "sandbox")]
    kind: String,
    #[command(flatten)]
    selector: SelectorArgs,
    /// Select targets that use this plugin
    #[arg(long, value_name = "NAME[@VERSION]")]
    plugin: Option<String>,
}

impl TopArgs {
    pub(crate) async fn run(self, server: &ServerArgs) -> Result<Exit> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(CliError::broken("`ebb top` needs a terminal for its input and its output")
                .with_hint("ebb get sandboxes, ebb get sandbox NAME --watch"));
        }
        let client = connect(server)?;
        let kind = (self.kind != "all").then_some(self.kind.as_str());
        let selection = self.selector.selection(kind, self.plugin.as_deref());
        // A wrong address or token is an error of the command, before the screen is cleared.
        let first = poll::ask(&client, &TopPoll::List(selection.clone())).await?;
        let ended = match ratatui::try_init() {
            Ok(terminal) => {
                // The drop of a terminal and `ratatui::restore` print errors. That panics if the terminal has closed.
                let mut terminal = ManuallyDrop::new(terminal);
                // Otherwise the characters of a pasted text are keys, such as `d` and `y`.
                let _ = execute!(io::stdout(), EnableBracketedPaste);
                let ended = Box::pin(show(client, selection, first, &mut terminal)).await;
                let _ = execute!(io::stdout(), DisableBracketedPaste);
                let _ = terminal.show_cursor();
                ended
            }
            Err(error) => Err(unusable(error)),
        };
        let _ = ratatui::try_restore();
        ended
    }
}

/// Shows the targets of a selection until the user ends the program. `first` is the first list of them.
async fn show(
    client: ApiClient,
    selection: TargetSelector,
    first: TopAnswer,
    terminal: &mut DefaultTerminal,
) -> Result<Exit> {
    let interrupts = InterruptCount::listen()?;
    let url = &client.server.url;
    let server = url[Position::BeforeHost..Position::AfterPort].to_owned();
    let size = terminal.size().map_err(unusable)?;
    let size = ScreenSize { width: usize::from(size.width), height: usize::from(size.height) };
    let state = TopState::new(server, selection, size);
    let list = state.poll();
    let mut state = state.update(TopEvent::Answered(list, Ok(first)));
    let mut input = read_input();
    let (sender, mut answers) = mpsc::unbounded_channel();
    let (wanted, polls) = watch::channel(state.poll());
    tokio::spawn(poll::poll(client.clone(), polls, sender));
    let mut changes = JoinSet::new();
    loop {
        terminal.draw(|frame| draw::draw(&state, timing::now(), frame)).map_err(unusable)?;
        let event = tokio::select! {
            event = input.recv() => event.ok_or_else(|| CliError::broken("the terminal has closed"))?,
            Some(event) = answers.recv() => event,
            Some(Ok(event)) = changes.join_next() => event,
            () = tokio::time::sleep(REDRAW) => continue,
            () = interrupts.more_than(0) => return Ok(Exit::Interrupted),
        };
        let is_changed = matches!(event, TopEvent::Changed(_));
        state.now = timing::now();
        state = state.update(event);
        if let Some(exit) = state.ended {
            // A confirmed change is sent in full, except after an interrupt.
            while exit == Exit::Done
                && let Some(sent) = changes.join_next().await
            {
                if let Ok(TopEvent::Changed(Err(error))) = sent {
                    return Err(CliError::failed(error));
                }
            }
            return Ok(exit);
        }
        if std::mem::take(&mut state.suspends) {
            suspend(terminal).map_err(unusable)?;
            // A stopped program gets no event about a new size.
            let size = terminal.size().map_err(unusable)?;
            state = state.update(TopEvent::Resized(size.width, size.height));
        }
        if let Some(change) = state.confirmed.take() {
            let sent = change.send(client.clone());
            changes.spawn(async move { TopEvent::Changed(sent.await) });
        }
        wanted.send_if_modified(|poll| {
            let next = state.poll();
            let is_other = *poll != next;
            *poll = next;
            is_other || is_changed
        });
    }
}

/// Leaves the terminal to the shell until the shell continues the program.
fn suspend(terminal: &mut DefaultTerminal) -> io::Result<()> {
    execute!(io::stdout(), DisableBracketedPaste)?;
    terminal.show_cursor()?;
    ratatui::try_restore()?;
    // In raw mode, the terminal sends no signal for Ctrl-Z.
    raise(Signal::SIGTSTP)?;
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
    // The screen is empty. `clear` would ask the terminal for its cursor, and the thread of the keys would get the answer.
    *terminal = DefaultTerminal::new(CrosstermBackend::new(io::stdout()))?;
    Ok(())
}

/// Reads keys, pasted texts and sizes of the terminal in a thread, which ends with the program. The channel is closed when
/// the terminal is.
fn read_input() -> UnboundedReceiver<TopEvent> {
    let (sender, input) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let event = match event {
                Event::Key(key) if key.is_press() => TopEvent::Key(key),
                Event::Paste(text) => TopEvent::Pasted(text),
                Event::Resize(width, height) => TopEvent::Resized(width, height),
                _ => continue,
            };
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    input
}

fn unusable(error: io::Error) -> CliError {
    CliError::broken("cannot use the terminal").with_causes(&error)
}
