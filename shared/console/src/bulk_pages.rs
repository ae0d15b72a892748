//! Pages of an action on several targets: its consequences for each one, and the outcomes.

use ebb_protocol::api::{TargetDiagnosis, TargetState};
use ebb_protocol::limits;
use maud::{Markup, html};

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::{confirmations, paths};

/// The name of the field with a selected target. It is repeated.
pub(crate) const TARGET: &str = "target";
/// The name of the field with the action.
pub(crate) const ACTION: &str = "action";
/// The name of the field with the path of the page of the list that has the targets.
pub(crate) const BACK: &str = "back";
/// Maximum units that a consequence names.
const MAX_NAMED: usize = 5;

/// An action on targets that were selected in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BulkAction {
    Retry,
    Delete,
}

impl BulkAction {
    pub(crate) const ALL: [Self; 2] = [Self::Retry, Self::Delete];

    /// Returns the action of a form.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == text)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Retry => "Retry",
            Self::Delete => "Delete",
        }
    }
}

/// An instance of a target that was selected in the list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SelectedTarget {
    pub kind: String,
    pub name: String,
    pub uid: String,
    /// The run whose failed units the page of the consequences has shown. The list shows none.
    pub run: Option<String>,
}

impl SelectedTarget {
    /// Parses a value of a form, `KIND/NAME UID` or `KIND/NAME UID RUN`. None of the parts contains a blank.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, rest) = text.split_once(' ')?;
        let (kind, name) = key.split_once('/')?;
        let (uid, run) = rest.split_once(' ').map_or((rest, None), |(uid, run)| (uid, Some(run)));
        let is_complete = ![kind, name, uid].contains(&"");
        is_complete.then(|| Self {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            run: run.map(str::to_owned),
        })
    }
}

/// Returns the value of a form that [`SelectedTarget::parse`] reads.
pub(crate) fn value(kind: &str, name: &str, uid: &str, run: Option<&str>) -> String {
    let run = run.map(|run| format!(" {run}")).unwrap_or_default();
    format!("{kind}/{name} {uid}{run}")
}

/// A selected target with its consequences, or with its outcome. `Err` has the reason why the action is refused.
pub type BulkEntry = (SelectedTarget, Result<String, String>);

/// Returns the consequences of an action on a target, or the reason why it has none. `waiting` is the UID of the instance
/// that waits for the name, and `source` the source that controls the target.
pub fn bulk_consequences(
    action: BulkAction,
    why: &TargetDiagnosis,
    waiting: Option<&str>,
    source: Option<&str>,
) -> Result<String, String> {
    match action {
        BulkAction::Retry if why.failed.is_empty() => Err("No unit has failed.".to_owned()),
        BulkAction::Retry => {
            let mut text =
                format!("These units run again: {}.", named(why.failed.iter().map(|unit| unit.unit.as_str())));
            if why.phase == TargetState::Stuck {
                text.push_str(&format!(" {}", confirmations::TEARDOWN_CONTINUES));
                if let Some(uid) = waiting {
                    text.push_str(&format!(" The instance {uid}, which waits for the name, starts after it."));
                }
            }
            Ok(text)
        }
        BulkAction::Delete => {
            if let Some(reason) = confirmations::no_deletion(why.phase) {
                return Err(reason.to_owned());
            }
            let mut text = match why.remaining.is_empty() {
                true => confirmations::NOTHING_TO_UNDO.to_owned(),
                false => {
                    let units = named(why.remaining.iter().map(|effect| effect.unit.as_str()));
                    format!("What these units have made is undone: {units}.")
                }
            };
            if let Some(update) = confirmations::dropped_update(why) {
                text.push_str(&format!(" {update}"));
            }
            if let Some(uid) = waiting {
                text.push_str(&format!(" The instance {uid}, which waits for the name, starts then."));
            }
            if let Some(source) = source {
                text.push_str(&format!(" The next event of the source {source} can create it again."));
            }
            Ok(text)
        }
    }
}

/// Returns the first names, and the number of the others.
fn named<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let others = names.len().saturating_sub(MAX_NAMED);
    let shown = names.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if others > 0 { format!("{shown} and {others} more") } else { shown }
}

/// Returns the page that confirms an action on several targets. The form has those for which it is not refused. `back` is the
/// field of the form of the list.
pub fn bulk_confirmation(viewer: ConsoleViewer<'_>, action: BulkAction, entries: &[BulkEntry], back: &str) -> String {
    let back = paths::safe_next(back);
    let permitted: Vec<&BulkEntry> = entries.iter().filter(|(_, found)| found.is_ok()).collect();
    let refused: Vec<&BulkEntry> = entries.iter().filter(|(_, found)| found.is_err()).collect();
    let verb = action.verb();
    let title = match permitted.len() {
        0 => format!("Nothing to {}", action.name()),
        number => format!("{verb} {}", count(number)),
    };
    let main = html! {
        h1 { (title) @if !permitted.is_empty() { "?" } }
        @if !permitted.is_empty() {
            @if action == BulkAction::Delete {
                p { "The teardown of each one begins. What its resources hold is lost, and no command brings it back." }
            } @else {
                p { "If the cause is still there, the units fail again." }
            }
            (table("Targets", "Consequences", &permitted))
        }
        @if !refused.is_empty() { (frame::section("Left out", &table("Left out", "Reason", &refused))) }
        form.confirmation method="post" action=(paths::CONFIRMED) {
            (frame::form_token(viewer))
            @for (target, _) in &permitted {
                input type="hidden" name=(TARGET) value=(value(&target.kind, &target.name, &target.uid, target.run.as_deref()));
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
    frame::page(viewer, paths::ROOT, &title, PageRenewal::Never, &main)
}

/// Returns the page with the outcome for each target. `back` is the field of the form of the list.
pub fn bulk_outcomes(viewer: ConsoleViewer<'_>, action: BulkAction, entries: &[BulkEntry], back: &str) -> String {
    let refused = entries.iter().filter(|(_, outcome)| outcome.is_err()).count();
    let title = format!("{}: {} of {} accepted", action.verb(), entries.len() - refused, count(entries.len()));
    let main = html! {
        h1 { (title) }
        (table("Targets", "Outcome", &entries.iter().collect::<Vec<_>>()))
        p { a href=(paths::safe_next(back)) { "Back to the list" } }
    };
    frame::page(viewer, paths::ROOT, &title, PageRenewal::Never, &main)
}

fn count(number: usize) -> String {
    if number == 1 { "1 target".to_owned() } else { format!("{number} targets") }
}

fn table(label: &str, head: &str, entries: &[&BulkEntry]) -> Markup {
    let rows: Vec<Markup> = entries
        .iter()
        .map(|(SelectedTarget { kind, name, uid, .. }, found)| {
            html! {
                th scope="row" { a href=(paths::target(kind, name)) { (kind) "/" (name) } }
                td { code { (uid) } }
                td.problem[found.is_err()] {
                    @match found {
                        Ok(text) => { (limits::printable(text)) }
                        Err(reason) => { "Refused: " (limits::printable(reason)) }
                    }
                }
            }
        })
        .collect();
    frame::table(label, &["Target", "Instance", head], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selected_target_is_an_instance() {
        for run in [None, Some("r-1-pre-start")] {
            let selected = SelectedTarget::parse(&value("sandbox", "pr-1", "u:1", run)).unwrap();
            let SelectedTarget { kind, name, uid, run: found } = &selected;
            assert_eq!((kind.as_str(), name.as_str(), uid.as_str()), ("sandbox", "pr-1", "u:1"));
            assert_eq!(found.as_deref(), run);
        }
        for text in ["", "sandbox/pr-1", "sandbox/pr-1 ", "/pr-1 u", "sandbox/ u", "pr-1 u"] {
            assert_eq!(SelectedTarget::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn consequences_name_some_units() {
        assert_eq!(named(["a", "b"].into_iter()), "a, b");
        assert_eq!(named(["a", "b", "c", "d", "e", "f", "g"].into_iter()), "a, b, c, d, e and 2 more");
    }
}
