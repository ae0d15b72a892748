//! The rejections of requests about targets.

use ebb_protocol::{ErrorCode, LifecycleData, TargetKey, limits};

use crate::Rejection;

/// Returns the rejection of a webhook for an instance that has ended or is not the present one.
pub(crate) fn stale(event: &LifecycleData) -> Rejection {
    let text = format!(
        "the {} {:?} with uid {:?} has ended, or was deleted before it was created; create it with a new uid or \
         idempotency key",
        event.kind, event.name, event.uid
    );
    Rejection::Refused(ErrorCode::Stale, text)
}

/// Returns the rejection of an event for an instance that waits for its name.
pub(crate) fn not_begun(event: &LifecycleData) -> Rejection {
    let text = format!(
        "the {} {:?} with uid {:?} waits for its name, and an event needs an instance that has begun; send the event again \
         when it has",
        event.kind, event.name, event.uid
    );
    Rejection::Refused(ErrorCode::Stale, text)
}

/// Returns the refusal of a request that names the instance `uid` of a target, which has another one: `present`, if the
/// caller may know it.
pub fn other_instance(key: TargetKey<'_>, uid: &str, present: Option<&str>) -> Rejection {
    let got = present.map(|present| format!(", got {present:?}")).unwrap_or_default();
    let detail = format!("{key} has another instance now: expected {:?}{got}; read it again", limits::message(uid));
    Rejection::Refused(ErrorCode::Outdated, detail)
}

/// Returns the refusal of a request about a target, or its instance `uid`, that does not exist.
pub(crate) fn missing_instance(key: TargetKey<'_>, uid: Option<&str>) -> Rejection {
    let unknown = || Rejection::Refused(ErrorCode::NotFound, format!("{} {:?} does not exist", key.kind, key.name));
    uid.map_or_else(unknown, |uid| other_instance(key, uid, None))
}

/// Returns the rejection of a request about an instance of another sender. It names no instance, because a sender must not
/// learn about those of others. `source` is its source, if the caller may know it.
pub(crate) fn foreign(target: TargetKey<'_>, source: Option<&str>) -> Rejection {
    let (owner, change) = match source {
        Some(source) => (format!("the source {source}"), "correct the document of this source, "),
        None => ("another sender".to_owned(), ""),
    };
    let text = format!(
        "{target} belongs to {owner}, and only its creator changes it: {change}give the target another name, or let a \
         person delete it by `ebb delete {} {}` and send the request again",
        target.kind, target.name
    );
    Rejection::Refused(ErrorCode::OtherOwner, text)
}

/// Returns the rejection of a request for a name that a target of another owner has. It names no owner, because a caller
/// must not learn about the targets of others.
pub(crate) fn other_owner(target: TargetKey<'_>) -> Rejection {
    let text = format!("{target} belongs to another owner: give the target another name");
    Rejection::Refused(ErrorCode::OtherOwner, text)
}
