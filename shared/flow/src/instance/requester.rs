//! The sender of a request about a target, and the targets that it may change.

use std::collections::BTreeMap;

use ebb_documents::compile::PlanUpdate;
use ebb_documents::plan::Plan;
use ebb_engine::{RequestSender, ResourceEffect, TargetPhase, Timestamp};
use ebb_protocol::{ErrorCode, TargetAccess};
use ebb_store::TargetHead;

use crate::Rejection;
use crate::instance::due;
use crate::instance::rejection::other_owner;

/// The sender of a request, with the limits of a caller of the API.
#[derive(Clone, Copy, Debug)]
pub struct Requester<'a> {
    pub sender: RequestSender<'a>,
    /// `None` if the sender alone decides.
    pub(crate) access: Option<&'a TargetAccess>,
    /// True if the request may not remove or replace complete resources.
    pub(crate) keeps_resources: bool,
    /// The most targets of the sender that live at once, if it is a source with a limit.
    pub(crate) most_living: Option<u32>,
}

impl<'a> From<RequestSender<'a>> for Requester<'a> {
    fn from(sender: RequestSender<'a>) -> Self {
        Self { sender, access: None, keeps_resources: false, most_living: None }
    }
}

impl<'a> Requester<'a> {
    /// Returns a caller of the API, which may change what `access` covers.
    pub fn api(access: &'a TargetAccess) -> Self {
        Self { access: Some(access), ..RequestSender::Api(&access.caller).into() }
    }

    /// Returns a requester that removes and replaces no complete resource, if `keeps_resources` is true.
    #[must_use]
    pub(crate) fn keeping(self, keeps_resources: bool) -> Self {
        Self { keeps_resources, ..self }
    }

    /// Returns a requester that changes an instance of a source.
    #[must_use]
    pub(crate) fn of_source(self, source: &'a str) -> Self {
        Self { sender: RequestSender::Source(source), ..self }
    }

    /// Returns the name of the requester in the history: of the caller, or of the sender without one.
    pub(crate) fn name(self) -> Option<String> {
        self.access.map(|access| access.caller.clone()).or_else(|| self.sender.owner())
    }

    /// Checks that the requester may create or change the instance `uid` of a target that was read. A new instance needs a
    /// name that no other owner has. One that is gone is not checked, because it is not changed.
    pub(crate) fn check(self, target: &TargetHead, uid: &str) -> Result<(), Rejection> {
        let Some(access) = self.access else { return Ok(()) };
        let is_known = (target.uid == uid && target.phase != TargetPhase::Gone) || target.has_waiting(uid);
        match if is_known { covers_instance(access, target, uid) } else { covers_name(access, target) } {
            true => Ok(()),
            false => Err(other_owner(target.target_key())),
        }
    }

    /// Checks that the requester may give an instance of `owner` a document with these labels.
    pub(crate) fn check_labels(self, owner: Option<&str>, labels: &BTreeMap<String, String>) -> Result<(), Rejection> {
        let Some(access) = self.access else { return Ok(()) };
        if access.covers(owner, &TargetHead::stored_labels(labels)) {
            return Ok(());
        }
        let text = format!(
            "{} may change {} only, and the document has other labels: give it such a label",
            access.caller,
            access.description()
        );
        Err(Rejection::Refused(ErrorCode::Forbidden, text))
    }
}

/// Checks that an update of a living target loses no resource that is protected, or none at all if `keeps_resources` is true,
/// and that only `protect: false` ends a protection. If the TTL of the new document, which was requested at `since`,
/// ends by `now`, the target loses all its resources.
pub(crate) fn check_losses(
    target: &TargetHead,
    current: &Plan,
    update: &PlanUpdate,
    (keeps_resources, since, now): (bool, Timestamp, Timestamp),
) -> Result<(), Rejection> {
    let named = |names: &[&String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let refused = |code, text: String| Err(Rejection::Refused(code, format!("{}: {text}", target.target_key())));
    let (protected, all): (Vec<&String>, Vec<&String>) = (current.protected().collect(), update.lost.iter().collect());
    let end = due::end_of_ttl(&update.plan.target, target.created, target.active.max(Some(since)));
    if end.is_some_and(|end| end <= now) && (keeps_resources || !protected.is_empty()) {
        let (code, cause) = match &protected[..] {
            [] => (ErrorCode::ResourceLost, "what it holds would be lost".to_owned()),
            protected => (ErrorCode::Protected, format!("{} has `protect: true`", named(protected))),
        };
        return refused(code, format!("the `ttl` of the document has ended, and {cause}"));
    }
    let lost: Vec<&String> = all.iter().copied().filter(|name| protected.contains(name)).collect();
    if !lost.is_empty() {
        let text = "which has `protect: true`; change its document to `protect: false` for it first, and nothing else";
        return refused(ErrorCode::Protected, format!("the update would remove or replace {}, {text}", named(&lost)));
    }
    // Neither a missing line nor another version of the plugin ends a protection.
    let is_ended = |name: &&String| {
        let stays = update.resources.get(*name) != Some(&ResourceEffect::Replaced);
        stays && update.plan.resources.get(*name).is_some_and(|after| after.protect.is_none())
    };
    let ended: Vec<&String> = protected.iter().copied().filter(is_ended).collect();
    if !ended.is_empty() {
        let text = "would end: write `protect: false` for it into the document, or `protect: true` to keep it";
        return refused(ErrorCode::Protected, format!("the protection of {} {text}", named(&ended)));
    }
    if keeps_resources && !all.is_empty() {
        let text = format!("the update would remove or replace {}, and what it holds would be lost", named(&all));
        return refused(ErrorCode::ResourceLost, text);
    }
    Ok(())
}

/// Returns true if the access covers the instance that has the name of a target, and the one that waits for it. A gone
/// instance leaves its name to others.
fn covers_name(access: &TargetAccess, target: &TargetHead) -> bool {
    let is_free = target.phase == TargetPhase::Gone;
    let covers_waiting = target.waiting.as_ref().is_none_or(|one| access.covers(one.owner.as_deref(), &one.labels));
    covers_waiting && (is_free || covers_present(access, target))
}

/// Returns true if the access covers the instance that has the name of a target, now and after the update that waits. That
/// update may give the target to others.
pub fn covers_present(access: &TargetAccess, target: &TargetHead) -> bool {
    let covers = |labels: &BTreeMap<String, String>| access.covers(target.owner.as_deref(), labels);
    covers(&target.labels) && target.pending_update.as_ref().is_none_or(|update| covers(&update.labels))
}

/// Returns true if the access covers the instance `uid` of a target. An instance that the target does not know is covered
/// by unlimited access only.
pub(crate) fn covers_instance(access: &TargetAccess, target: &TargetHead, uid: &str) -> bool {
    let waiting = target.waiting.as_ref().filter(|waiting| waiting.uid == uid);
    match waiting {
        Some(waiting) => access.covers(waiting.owner.as_deref(), &waiting.labels),
        None if target.uid == uid => covers_present(access, target),
        None => !access.is_limited(),
    }
}
