//! Pages of an action on targets: its consequences for each one, and the outcomes.

use ebb_protocol::{NamedTarget, TargetAction, TargetDiagnosis, TargetPhase, WaitingParty, limits, words};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths};

/// The name of the field with a selected target. It is repeated.
pub(crate) const TARGET: &str = "target";
pub(crate) const ACTION: &str = "action";
/// The name of the field with the path of the page that has the targets: of the list, or of one target.
pub const BACK: &str = "back";
/// Maximum units that a consequence names.
const MAX_NAMED: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAction {
    Retry,
    Delete,
}

impl BulkAction {
    pub(crate) const ALL: [Self; 2] = [Self::Retry, Self::Delete];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == text)
    }

    pub(crate) fn name(self) -> &'static str {
        ["retry", "delete"][self as usize]
    }

    pub fn request(self) -> TargetAction {
        match self {
            Self::Retry => TargetAction::Retry { plugin: None },
            Self::Delete => TargetAction::Delete { allow_protected: false },
        }
    }

    pub(crate) fn verb(self) -> &'static str {
        ["Retry", "Delete"][self as usize]
    }
}

/// Parses a selected target in a form, `KIND/NAME UID` or `KIND/NAME UID RUN`. None of the parts contains a blank. The run is
/// that whose failed units the page of the consequences has shown. The list shows none.
pub fn selected_target(text: &str) -> Option<NamedTarget> {
    let (key, rest) = text.split_once(' ')?;
    let (kind, name) = key.split_once('/')?;
    let (uid, run) = rest.split_once(' ').map_or((rest, None), |(uid, run)| (uid, Some(run)));
    let is_complete = ![kind, name, uid].contains(&"");
    let (kind, name, run) = (kind.to_owned(), name.to_owned(), run.map(str::to_owned));
    is_complete.then(|| NamedTarget { kind, name, uid: Some(uid.to_owned()), run, generation: None })
}

/// Returns the value of a form that [`selected_target`] reads.
pub(crate) fn value(kind: &str, name: &str, uid: &str) -> String {
    format!("{kind}/{name} {uid}")
}

/// Returns the path of the page that confirms an action on a target, and leads back to the page of the target.
pub(crate) fn confirmation_path(action: &str, kind: &str, name: &str, uid: &str) -> String {
    let (selected, back) = (value(kind, name, uid), paths::target(kind, name));
    paths::with(paths::SELECTION, &[(ACTION, action), (TARGET, &selected), (BACK, &back)])
}

fn field(NamedTarget { kind, name, uid, run, .. }: &NamedTarget) -> String {
    let run = run.as_ref().map(|run| format!(" {run}")).unwrap_or_default();
    value(kind, name, uid.as_deref().unwrap_or_default()) + &run
}

/// A selected target with its consequences, or with its outcome. `Err` has the reason why the action is refused.
pub type BulkEntry = (NamedTarget, Result<String, String>);

/// Returns the consequences of an action on a target, or the reason why it has none. `waiting` is the UID of the instance
/// that waits for the name, and `source` the source that controls the target.
pub fn bulk_consequences(
    action: BulkAction,
    why: &TargetDiagnosis,
    waiting: Option<&str>,
    source: Option<&str>,
) -> Result<String, String> {
    match action {
        BulkAction::Retry => {
            if let Some(reason) = no_retry(why.phase) {
                return Err(reason.to_owned());
            }
            let units: Vec<&str> = why.failed.iter().map(|unit| unit.unit.as_str()).collect();
            let mut text = match words::first_named(&units, MAX_NAMED, units.len()) {
                none if none.is_empty() => "The units that have not ended well run again.".to_owned(),
                units => format!("These units run again: {units}."),
            };
            if why.phase == TargetPhase::Stuck {
                text.push_str(" The teardown continues, and removes what is left.");
                text.extend(
                    waiting.map(|uid| format!(" The instance {uid}, which waits for the name, starts after it.")),
                );
            }
            Ok(text)
        }
        BulkAction::Delete => {
            if let Some(reason) = no_deletion(why.phase) {
                return Err(reason.to_owned());
            }
            let units: Vec<&str> = why.remaining.iter().map(|effect| effect.unit.as_str()).collect();
            let mut text = match words::first_named(&units, MAX_NAMED, units.len()) {
                none if none.is_empty() => "No unit has made anything that has to be undone.".to_owned(),
                units => format!("What these units have made is undone: {units}."),
            };
            if let Some(update) = why.target_waits.iter().find(|wait| wait.waiter == WaitingParty::Update) {
                let generation = limits::printable(update.waiter_name.as_deref().unwrap_or_default());
                text.push_str(&format!(" The update to generation {generation}, which waits, is dropped."));
            }
            text.extend(waiting.map(|uid| format!(" The instance {uid}, which waits for the name, starts then.")));
            text.extend(source.map(|source| format!(" The next event of the source {source} can create it again.")));
            Ok(text)
        }
    }
}

/// Returns the reason why the deletion of a target in this phase has no effect.
pub fn no_deletion(phase: TargetPhase) -> Option<&'static str> {
    match phase {
        TargetPhase::Stopping => Some("Its teardown has begun already."),
        TargetPhase::Stuck => Some("Its teardown has begun already, and has failed: retry it."),
        TargetPhase::Gone => Some("It is gone."),
        _ => None,
    }
}

/// Returns the reason why a retry of a target in this phase has no effect.
pub(crate) fn no_retry(phase: TargetPhase) -> Option<&'static str> {
    match phase {
        TargetPhase::Failed | TargetPhase::Stuck => None,
        TargetPhase::Ready => Some("It is ready: no unit has failed."),
        TargetPhase::Gone => Some("It is gone."),
        _ => Some("Its run has not ended. A unit that fails can be retried after that."),
    }
}

/// Returns the consequence of a retry for units that wait for a time.
pub fn early_start(units: &[String]) -> String {
    let units: Vec<&str> = units.iter().map(String::as_str).collect();
    format!("These units wait for a time, and start now: {}.", words::first_named(&units, MAX_NAMED, units.len()))
}

/// Returns the run whose failed units a retry repeats, if one has failed.
pub fn failed_run(why: &TargetDiagnosis) -> Option<&str> {
    why.cause.as_ref().map(|cause| cause.run.as_str())
}

/// Returns the page that confirms an action on several targets. The form has those for which it is not refused. `back` is the
/// field of the form of the list.
pub fn bulk_confirmation(viewer: ConsoleViewer<'_>, action: BulkAction, entries: &[BulkEntry], back: &str) -> String {
    let back = paths::safe_next(back);
    let permitted: Vec<&BulkEntry> = entries.iter().filter(|(_, found)| found.is_ok()).collect();
    let refused: Vec<&BulkEntry> = entries.iter().filter(|(_, found)| found.is_err()).collect();
    let verb = action.verb();
    let title = match &permitted[..] {
        [] => format!("Nothing to {}", action.name()),
        [(NamedTarget { kind, name, .. }, _)] => format!("{verb} {kind}/{name}"),
        several => format!("{verb} {}", count(several.len())),
    };
    let main = html! {
        h1 { (title) @if !permitted.is_empty() { "?" } }
        @if !permitted.is_empty() {
            @if action == BulkAction::Delete {
                p { "The teardown begins. All data in its resources is deleted for good." }
            } @else {
                p { "The units after them follow. If the cause is still there, the units fail again." }
            }
            (table("Targets", "Consequences", &permitted))
        }
        @if !refused.is_empty() { (frame::section("Left out", &table("Left out", "Reason", &refused))) }
        form.confirmation method="post" action=(paths::CONFIRMED) {
            (frame::form_token(viewer))
            @for (target, _) in &permitted {
                input type="hidden" name=(TARGET) value=(field(target));
            }
            input type="hidden" name=(BACK) value=(back);
            @if permitted.is_empty() {
                a href=(back) { "Back" }
            } @else {
                button.dangerous[action == BulkAction::Delete] name=(ACTION) value=(action.name()) { (title) }
                a href=(back) { "Cancel" }
            }
        }
    };
    frame::page(viewer, paths::ROOT, &title, PageRenewal::NEVER, &main)
}

/// Returns the page with the outcome for each target. `back` is the field of the form of the list.
pub fn bulk_outcomes(viewer: ConsoleViewer<'_>, action: BulkAction, entries: &[BulkEntry], back: &str) -> String {
    let refused = entries.iter().filter(|(_, outcome)| outcome.is_err()).count();
    let title = format!("{}: {} of {} accepted", action.verb(), entries.len() - refused, count(entries.len()));
    let main = html! {
        h1 { (title) }
        (table("Targets", "Outcome", &entries.iter().collect::<Vec<_>>()))
        p { a href=(paths::safe_next(back)) { "Back" } }
    };
    frame::page(viewer, paths::ROOT, &title, PageRenewal::NEVER, &main)
}

fn count(number: usize) -> String {
    if number == 1 { "1 target".to_owned() } else { format!("{number} targets") }
}

fn table(label: &str, head: &str, entries: &[&BulkEntry]) -> Markup {
    let rows = entries.iter().map(|(NamedTarget { kind, name, uid, .. }, found)| {
        html! {
            th scope="row" { a href=(paths::target(kind, name)) { (kind) "/" (name) } }
            td { code { (uid.as_deref().unwrap_or_default()) } }
            td.problem[found.is_err()] {
                @match found {
                    Ok(text) => { (limits::printable(text)) }
                    Err(reason) => { "Refused: " (limits::printable(reason)) }
                }
            }
        }
    });
    frame::table(label, &["Target", "Instance", head], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selected_target_is_an_instance() {
        for text in ["sandbox/pr-1 u:1", "sandbox/pr-1 u:1 r-1-pre-start"] {
            let selected = selected_target(text).unwrap();
            assert_eq!((selected.kind.as_str(), selected.name.as_str()), ("sandbox", "pr-1"));
            assert_eq!(selected.uid.as_deref(), Some("u:1"));
            assert_eq!(selected.run.as_deref(), text.split(' ').nth(2));
            assert_eq!(field(&selected), text);
        }
        for text in ["", "sandbox/pr-1", "sandbox/pr-1 ", "/pr-1 u", "sandbox/ u", "pr-1 u"] {
            assert_eq!(selected_target(text), None, "{text:?}");
        }
    }
}
