//! Pages that state the consequences of an action before it is taken.

use ebb_protocol::api::{TargetDetail, TargetDiagnosis, TargetState, WaitingParty};
use ebb_protocol::limits;
use maud::{Markup, html};

use crate::frame::{self, ConsoleViewer, PageRenewal};
use crate::paths;

/// The name of the field with the instance that the caller has seen.
const UID: &str = "uid";
/// The name of the field with the run whose failed units the caller has seen.
const RUN: &str = "run";
/// The consequence of the deletion of a target without remaining effects.
pub(crate) const NOTHING_TO_UNDO: &str = "No unit has made anything that has to be undone.";
/// The consequence of the retry of a stuck target.
pub(crate) const TEARDOWN_CONTINUES: &str = "The teardown continues, and removes what is left.";

/// Returns the consequence of a deletion for the update that waits, if there is one.
pub(crate) fn dropped_update(why: &TargetDiagnosis) -> Option<String> {
    let update = why.target_waits.iter().find(|wait| wait.waiter == WaitingParty::Update)?;
    let generation = limits::printable(update.waiter_name.as_deref().unwrap_or_default());
    Some(format!("The update to generation {generation}, which waits, is dropped."))
}

/// Returns the reason why the deletion of a target in this phase has no effect.
pub fn no_deletion(phase: TargetState) -> Option<&'static str> {
    match phase {
        TargetState::Stopping => Some("Its teardown has begun already."),
        TargetState::Stuck => Some("Its teardown has begun already, and has failed: retry it."),
        TargetState::Gone => Some("It is gone."),
        _ => None,
    }
}

/// Returns the reason why a retry of a target in this phase has no effect.
pub(crate) fn no_retry(phase: TargetState) -> Option<&'static str> {
    match phase {
        TargetState::Failed | TargetState::Stuck => None,
        TargetState::Ready => Some("It is ready: no unit has failed."),
        TargetState::Gone => Some("It is gone."),
        _ => Some("Its run has not ended. A unit that fails can be retried after that."),
    }
}

/// Returns the page that confirms the deletion of a target.
pub fn delete_confirmation(viewer: ConsoleViewer<'_>, detail: &TargetDetail, why: &TargetDiagnosis) -> String {
    let consequences = html! {
        ul {
            li { "Its teardown begins. What its resources hold is lost, and no command brings it back." }
            @if why.remaining.is_empty() {
                li { (NOTHING_TO_UNDO) }
            } @else {
                li { "What these units have made is undone: " (list(why.remaining.iter().map(|effect| effect.unit.as_str()))) "." }
            }
            @if let Some(update) = dropped_update(why) { li { (update) } }
            @if let Some(uid) = &detail.waiting_uid {
                li { "The instance " code { (uid) } ", which waits for the name, starts then." }
            }
            @if let Some(event) = &detail.decided_by {
                li { "The source " a href=(paths::source(&event.source)) { (event.source) } " controls it: its next event can create it again." }
            }
        }
    };
    let consequences = no_deletion(detail.info.phase).map_or(Ok(&consequences), Err);
    confirmation(viewer, detail, ("delete", "Delete", None), consequences)
}

/// Returns the page that confirms that failed units run again.
pub fn retry_confirmation(viewer: ConsoleViewer<'_>, detail: &TargetDetail, why: &TargetDiagnosis) -> String {
    let consequences = html! {
        ul {
            @if why.failed.is_empty() {
                li { "The units that have not ended well run again." }
            } @else {
                li { "These units run again: " (list(why.failed.iter().map(|failed| failed.unit.as_str()))) "." }
            }
            @if why.phase == TargetState::Stuck {
                li { (TEARDOWN_CONTINUES) }
                @if let Some(uid) = &detail.waiting_uid {
                    li { "The instance " code { (uid) } ", which waits for the name, starts after it." }
                }
            } @else {
                li { "The units after them follow. If all succeed, the target is ready." }
            }
            li { "If the cause is still there, they fail again." }
        }
    };
    let consequences = no_retry(why.phase).map_or(Ok(&consequences), Err);
    confirmation(viewer, detail, ("retry", "Retry", failed_run(why)), consequences)
}

/// Returns the run whose failed units a retry repeats, if one has failed.
pub fn failed_run(why: &TargetDiagnosis) -> Option<&str> {
    why.cause.as_ref().map(|cause| cause.run.as_str())
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the page of an action, with its consequences or the reason why it has no effect.
fn confirmation(
    viewer: ConsoleViewer<'_>,
    detail: &TargetDetail,
    (action, verb, run): (&str, &str, Option<&str>),
    consequences: Result<&Markup, &str>,
) -> String {
    let info = &detail.info;
    let name = format!("{}/{}", info.kind, info.name);
    let target = paths::target(&info.kind, &info.name);
    let main = html! {
        h1 { (verb) " " (name) "?" }
        @match consequences {
            Ok(consequences) => {
                (consequences)
                form.confirmation method="post" action=(paths::action(&info.kind, &info.name, action)) {
                    (frame::form_token(viewer))
                    input type="hidden" name=(UID) value=(info.uid);
                    @if let Some(run) = run { input type="hidden" name=(RUN) value=(run); }
                    button.dangerous[action == "delete"] { (verb) " " (name) }
                    a href=(target) { "Cancel" }
                }
            }
            Err(reason) => {
                p { (reason) }
                p { a href=(target) { "Back" } }
            }
        }
    };
    frame::page(viewer, paths::ROOT, &format!("{verb} {name}"), PageRenewal::Never, &main)
}
