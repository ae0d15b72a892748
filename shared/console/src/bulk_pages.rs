//! Pages of an action on targets: its consequences for each one, and the outcomes.

use ebb_protocol::{
    LifecycleResult, NamedTarget, TargetAction, TargetDiagnosis, TargetInfo, TargetOutcome, TargetPhase, TargetReceipt,
    WaitingParty, limits, words,
};
use maud::{Markup, html};

use crate::{ConsoleViewer, PageRenewal, frame, paths, texts};

/// The name of the field with a selected target. It is repeated.
pub(crate) const TARGET: &str = "target";
pub(crate) const ACTION: &str = "action";
/// The name of the field with the path of the page that has the targets: of the list, or of one target.
pub const BACK: &str = "back";
/// The name of the field with the reason of an override.
pub const REASON: &str = "reason";
/// Maximum units that a consequence names.
const MAX_NAMED: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAction<'a> {
    Retry,
    Delete,
    /// Continues the teardown of a stuck target with a version of a plugin, `NAME@VERSION`.
    RetryWith(&'a str),
    /// Gives living targets a version of a plugin, `NAME@VERSION`.
    Upgrade(&'a str),
    /// Overrides a failed unit of a stuck target.
    ForceComplete(&'a str),
    ForceDelete,
}

impl<'a> BulkAction<'a> {
    /// The actions of the list.
    pub(crate) const ALL: [Self; 2] = [Self::Retry, Self::Delete];

    pub fn parse(text: &'a str) -> Option<Self> {
        Some(match text.split_once(' ').unwrap_or((text, "")) {
            ("retry", "") => Self::Retry,
            ("delete", "") => Self::Delete,
            ("retry", plugin) => Self::RetryWith(plugin),
            ("upgrade", plugin) => Self::Upgrade(plugin),
            ("force-complete", unit) => Self::ForceComplete(unit),
            ("force-delete", "") => Self::ForceDelete,
            _ => return None,
        })
    }

    /// Returns the name, the version of a plugin or the unit, and the words between them on a page.
    fn words(self) -> (&'static str, &'a str, &'static str) {
        match self {
            Self::Retry => ("retry", "", ""),
            Self::Delete => ("delete", "", ""),
            Self::RetryWith(plugin) => ("retry", plugin, " with "),
            Self::Upgrade(plugin) => ("upgrade", plugin, " to "),
            Self::ForceComplete(unit) => ("force-complete", unit, ": "),
            Self::ForceDelete => ("force-delete", "", ""),
        }
    }

    /// Returns the text that [`Self::parse`] reads.
    pub(crate) fn field(self) -> String {
        let (name, subject, _) = self.words();
        format!("{name} {subject}").trim_end().to_owned()
    }

    /// Returns what a button says. `targets` names those of the action.
    pub(crate) fn label(self, targets: &str) -> String {
        let (name, subject, word) = self.words();
        texts::capitalized(name) + targets + word + subject
    }

    /// Returns the request to the API, or `None` for an override.
    pub fn request(self) -> Option<TargetAction> {
        Some(match self {
            Self::Retry => TargetAction::Retry { plugin: None },
            Self::RetryWith(plugin) => TargetAction::Retry { plugin: Some(plugin.to_owned()) },
            Self::Delete => TargetAction::Delete { allow_protected: false },
            Self::Upgrade(plugin) => TargetAction::Upgrade { plugin: plugin.to_owned(), allow_replace: None },
            Self::ForceComplete(_) | Self::ForceDelete => return None,
        })
    }

    /// Returns the unit of an override, which overrides all units without one.
    pub fn unit(self) -> Option<&'a str> {
        if let Self::ForceComplete(unit) = self { Some(unit) } else { None }
    }

    fn note(self) -> &'static str {
        match self {
            Self::Retry => "The units after them follow. If the cause is still there, the units fail again.",
            Self::Delete => "The teardown begins. All data in its resources is deleted for good.",
            Self::RetryWith(_) => "The teardown continues with the units of this version.",
            Self::Upgrade(_) => "All targets are updated at once.",
            Self::ForceComplete(_) => "The unit counts as complete. What it removes may still exist.",
            Self::ForceDelete => "The target is gone at once. What its units have made may still exist.",
        }
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
pub(crate) fn confirmation_path(action: BulkAction<'_>, TargetInfo { kind, name, uid, .. }: &TargetInfo) -> String {
    let (action, selected, back) = (action.field(), value(kind, name, uid), paths::target(kind, name));
    paths::with(paths::SELECTION, &[(ACTION, &action), (TARGET, &selected), (BACK, &back)])
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
    action: BulkAction<'_>,
    why: &TargetDiagnosis,
    waiting: Option<&str>,
    source: Option<&str>,
) -> Result<String, String> {
    let named = |units: Vec<&str>, none: &str, some: &str| match words::first_named(&units, MAX_NAMED, units.len()) {
        names if names.is_empty() => none.to_owned(),
        names => format!("{some}: {names}."),
    };
    match action {
        BulkAction::Retry => {
            no_retry(why.phase).map_or(Ok(()), |reason| Err(reason.to_owned()))?;
            let units = why.failed.iter().map(|unit| unit.unit.as_str()).collect();
            let mut text = named(units, "The units that have not ended well run again.", "These units run again");
            if why.phase == TargetPhase::Stuck {
                let starts = |uid: &str| format!(" The instance {uid}, which waits for the name, starts after it.");
                text.push_str(" The teardown continues, and removes what is left.");
                text.extend(waiting.map(starts));
            }
            Ok(text)
        }
        BulkAction::Delete => {
            no_deletion(why.phase).map_or(Ok(()), |reason| Err(reason.to_owned()))?;
            let units = why.remaining.iter().map(|effect| effect.unit.as_str()).collect();
            let none = "No unit has made anything that has to be undone.";
            let mut text = named(units, none, "What these units have made is undone");
            if let Some(update) = why.target_waits.iter().find(|wait| wait.waiter == WaitingParty::Update) {
                let generation = limits::printable(update.waiter_name.as_deref().unwrap_or_default());
                text.push_str(&format!(" The update to generation {generation}, which waits, is dropped."));
            }
            text.extend(waiting.map(|uid| format!(" The instance {uid}, which waits for the name, starts then.")));
            text.extend(source.map(|source| format!(" The next event of the source {source} can create it again.")));
            Ok(text)
        }
        // A dry run has the effects, and an override has none but its note.
        _ => Ok(String::new()),
    }
}

/// Returns the outcome of an action on a target, or of its dry run.
pub fn bulk_outcome(action: BulkAction<'_>, outcome: TargetOutcome) -> BulkEntry {
    let TargetOutcome { kind, name, uid, phase, error, update, retry, .. } = outcome;
    let accepted = match action {
        BulkAction::Delete => phase.and_then(no_deletion).unwrap_or("Accepted: its teardown begins."),
        BulkAction::ForceComplete(_) | BulkAction::ForceDelete => "Accepted.",
        BulkAction::RetryWith(_) => "Its failed units start again.",
        _ => "Accepted: its failed or waiting units start.",
    };
    let done = match (error, update, retry) {
        (Some(error), ..) => Err(error),
        (None, Some(update), _) => upgrade_effect(&update),
        (None, None, Some(retry)) if !retry.changes.is_empty() => {
            let units: Vec<&str> = retry.changes.iter().map(|undo| undo.unit.as_str()).collect();
            Ok(format!("These units change: {}.", words::first_named(&units, MAX_NAMED, units.len())))
        }
        _ => Ok(accepted.to_owned()),
    };
    (NamedTarget { kind, name, uid, ..NamedTarget::default() }, done)
}

fn upgrade_effect(TargetReceipt { result, resources, lost, .. }: &TargetReceipt) -> Result<String, String> {
    if *result == LifecycleResult::Unchanged {
        return Err("It has the version.".to_owned());
    }
    let changed = resources.iter().map(|(name, effect)| format!("{name} is {}", words::name(effect)));
    let names: [Vec<String>; 2] = [lost.iter().cloned().collect(), changed.collect()];
    let [losses, changes] = names.map(|names| words::first_named(&names, MAX_NAMED, names.len()));
    Ok(match (losses.as_str(), changes.as_str()) {
        (_, "") => "No resource changes.".to_owned(),
        ("", _) => format!("Units run: {changes}."),
        _ => format!("What these resources hold is lost: {losses}. Units run: {changes}."),
    })
}

pub fn no_deletion(phase: TargetPhase) -> Option<&'static str> {
    match phase {
        TargetPhase::Stopping => Some("Its teardown has begun already."),
        TargetPhase::Stuck => Some("Its teardown has begun already, and has failed: retry it."),
        TargetPhase::Gone => Some("It is gone."),
        _ => None,
    }
}

pub(crate) fn no_retry(phase: TargetPhase) -> Option<&'static str> {
    match phase {
        TargetPhase::Failed | TargetPhase::Stuck => None,
        TargetPhase::Ready => Some("It is ready: no unit has failed."),
        TargetPhase::Gone => Some("It is gone."),
        _ => Some("Its run has not ended. A unit that fails can be retried after that."),
    }
}

pub fn early_start(units: &[String]) -> String {
    format!("These units wait for a time, and start now: {}.", words::first_named(units, MAX_NAMED, units.len()))
}

/// Returns the page that confirms an action on several targets. The form has those for which it is not refused. `back` is the
/// field of the form of the list.
pub fn bulk_confirmation(
    viewer: ConsoleViewer<'_>,
    action: BulkAction<'_>,
    entries: &[BulkEntry],
    back: &str,
) -> String {
    let back = paths::safe_next(back);
    let (permitted, refused): (Vec<&BulkEntry>, _) = entries.iter().partition(|(_, found)| found.is_ok());
    let title = match &permitted[..] {
        [] => format!("Nothing to {}", action.words().0),
        [(NamedTarget { kind, name, .. }, _)] => action.label(&format!(" {kind}/{name}")),
        several => action.label(&format!(" {}", count(several.len()))),
    };
    let is_override = matches!(action, BulkAction::ForceComplete(_) | BulkAction::ForceDelete);
    let is_dangerous = is_override || action == BulkAction::Delete;
    let main = html! {
        h1 { (title) @if !permitted.is_empty() { "?" } }
        @if !permitted.is_empty() { p { (action.note()) } (table("Targets", "Consequences", &permitted)) }
        @if !refused.is_empty() { (frame::section("Left out", &table("Left out", "Reason", &refused))) }
        form.confirmation method="post" action=(paths::CONFIRMED) {
            (frame::form_token(viewer))
            @for (target, _) in &permitted { input type="hidden" name=(TARGET) value=(field(target)); }
            input type="hidden" name=(BACK) value=(back);
            @if permitted.is_empty() { a href=(back) { "Back" } } @else {
                @if is_override { label for="reason" { "Reason" } input #reason name=(REASON) required maxlength="500"; }
                button.primary[!is_dangerous].danger[is_dangerous] name=(ACTION) value=(action.field()) { (title) }
                a href=(back) { "Cancel" }
            }
        }
    };
    frame::page(viewer, paths::TARGETS, &title, PageRenewal::NEVER, &main)
}

/// Returns the page with the outcome for each target. `back` is the field of the form of the list.
pub fn bulk_outcomes(viewer: ConsoleViewer<'_>, action: BulkAction<'_>, entries: &[BulkEntry], back: &str) -> String {
    let refused = entries.iter().filter(|(_, outcome)| outcome.is_err()).count();
    let title = format!("{}: {} of {} accepted", action.label(""), entries.len() - refused, count(entries.len()));
    let main = html! {
        h1 { (title) }
        (table("Targets", "Outcome", &entries.iter().collect::<Vec<_>>()))
        p { a href=(paths::safe_next(back)) { "Back" } }
    };
    frame::page(viewer, paths::TARGETS, &title, PageRenewal::NEVER, &main)
}

fn count(number: usize) -> String {
    if number == 1 { "1 target".to_owned() } else { format!("{number} targets") }
}

fn table(label: &str, head: &str, entries: &[&BulkEntry]) -> Markup {
    let rows = entries.iter().map(|(NamedTarget { kind, name, uid, .. }, found)| {
        html! {
            th scope="row" { (texts::target(kind, name)) }
            td { code { (uid.as_deref().unwrap_or_default()) } }
            td.problem[found.is_err()] { @match found { Ok(text) => (limits::printable(text)), Err(reason) => { "Refused: " (limits::printable(reason)) } } }
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
