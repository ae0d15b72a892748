//! Warns of sources whose targets would not end as expected.

use std::collections::BTreeSet;

use crate::cel::Expression;
use crate::diagnostic::Diagnostic;
use crate::event::{EntryAction, EventEntry, EventTarget};
use crate::model::{SourceDoc, VerifyDoc};
use crate::template::ParsedText;

/// Warns of entries above a `delete` that can hide the end of a target. `entries` are those of `doc.events`.
///
/// An entry decides by content that can change while the target lives. An entry that tests a field of the `delete`, such
/// as the action, is expected to exclude it. A field directly in the body is expected to be the kind of the event.
pub(super) fn hidden_ends(doc: &SourceDoc, entries: &[EventEntry]) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for (at, (rule, entry)) in doc.events.iter().flatten().zip(entries).enumerate() {
        if matches!(entry.action, EntryAction::Delete(..)) {
            continue;
        }
        let read = entry.when.fields();
        let Some(changing) = read.iter().find(|field| is_nested(field)) else { continue };
        let hides = |below: &EventEntry| {
            let ends = below.when.fields();
            let is_shared = ends.iter().any(|field| !field.starts_with("headers") && read.contains(field));
            matches!(below.action, EntryAction::Delete(..)) && !ends.is_empty() && !is_shared
        };
        if let Some(hidden) = entries.iter().skip(at + 1).position(hides) {
            let message = format!(
                "the entry is above the `delete` of entry {} and decides by `{changing}`: when that changes, the end of a \
                 target is not seen",
                at + hidden + 2
            );
            let warning = Diagnostic::warning("hidden-end", &doc.source, rule.when.at, message);
            let help = "put `delete` entries first: the deletion of a target that does not exist changes nothing";
            warnings.push(warning.help(help));
        }
    }
    warnings
}

/// Warns of an entry whose events have neither an ID nor a time, so that equal bodies are one delivery. `entries` are
/// those of `doc.events`.
///
/// The bodies of schemes for one platform have times. An instance with a `uid` is created once in any case.
pub(super) fn equal_bodies(doc: &SourceDoc, verify: &VerifyDoc, entries: &[EventEntry]) -> Option<Diagnostic> {
    let is_general = matches!(
        verify,
        VerifyDoc::Hmac(_) | VerifyDoc::Jws(_) | VerifyDoc::Bearer(_) | VerifyDoc::Basic(_) | VerifyDoc::Url(_)
    );
    let mut rules = doc.events.iter().flatten().zip(entries);
    let (rule, _) = rules.find(|(_, entry)| {
        is_general && matches!(entry.action, EntryAction::Apply(..)) && entry.time.is_none() && entry.uid.is_none()
    })?;
    let message = "the events have neither `id` nor `time`, so a body that equals an earlier one is a repetition: after \
                   `delete`, the same body creates no target again";
    let warning = Diagnostic::warning("equal-bodies", &doc.source, rule.when.at, message);
    Some(warning.help("add an `id` that differs for each event, or a `time`, from a field of the body or a header"))
}

/// The tolerance of the time of a signature, in milliseconds, above which a source gets a warning.
const LONG_TOLERANCE: u64 = 3_600_000;

/// Warns of signatures that are accepted for long.
pub(super) fn long_tolerance(doc: &SourceDoc) -> Option<Diagnostic> {
    let VerifyDoc::Hmac(hmac) = doc.verify.as_ref()? else { return None };
    let time = hmac.timestamp.as_ref()?;
    time.tolerance.filter(|tolerance| tolerance.0 > LONG_TOLERANCE)?;
    let message = "a request that somebody has read can be sent again within `tolerance`, which is above 1 h";
    let warning = Diagnostic::warning("long-tolerance", &doc.source, time.header.at, message);
    Some(warning.help("write at most 1 h, or leave `tolerance` out: the default is 5 min"))
}

/// Warns of an entry whose `time` is another field than that of an entry above it with the same target. `entries` are those
/// of `doc.events`.
///
/// Fields with one name, such as `updated_at` of a deployment and of its status, are expected to have one meaning.
pub(super) fn differing_times(doc: &SourceDoc, entries: &[EventEntry]) -> Option<Diagnostic> {
    let mut timed: Vec<(usize, &EventTarget, BTreeSet<String>)> = Vec::new();
    let names = |read: &BTreeSet<String>| -> BTreeSet<String> {
        read.iter().filter_map(|field| field.rsplit('.').next().map(str::to_owned)).collect()
    };
    for (number, (rule, entry)) in (1..).zip(doc.events.iter().flatten().zip(entries)) {
        let (EntryAction::Apply(target, _) | EntryAction::Delete(target, _)) = &entry.action else { continue };
        let (Some(time), Some(written)) = (&entry.time, &rule.time) else { continue };
        let read = fields(time);
        let Some(field) = read.first().cloned() else { continue };
        let above = timed.iter().find(|(_, of, above)| *of == target && names(above).is_disjoint(&names(&read)));
        if let Some((other, above)) = above.and_then(|(number, _, above)| Some((number, above.first()?))) {
            let message = format!(
                "`time` is `{field}` here and `{above}` in entry {other}: if the fields mean different times, a newer event \
                 can count as outdated"
            );
            let warning = Diagnostic::warning("times-differ", &doc.source, written.at, message);
            let help =
                "read one field in all entries of a target, or leave `time` out of all, so that the arrival counts";
            return Some(warning.help(help));
        }
        timed.push((number, target, read));
    }
    None
}

/// Returns true for a field of an event below the first level of its body.
fn is_nested(field: &str) -> bool {
    let body = field.strip_prefix("fetched.body").or_else(|| field.strip_prefix("body"));
    body.and_then(|rest| rest.get(1..)).is_some_and(|rest| rest.contains(['.', '[']))
}

/// Warns of a target that replaces the target of a preset whose entries keep their `uid`. `of_preset` is the name of
/// the replaced target, `entries` are those of the preset.
pub(super) fn uid_of_preset(
    doc: &SourceDoc,
    own: &ParsedText,
    of_preset: &ParsedText,
    entries: &[EventEntry],
) -> Option<Diagnostic> {
    let (preset, target) = (doc.preset.as_ref()?, doc.target.as_ref()?);
    let uids = || entries.iter().filter_map(|entry| entry.uid.as_ref());
    let uid = fields(uids().next()?).into_iter().next()?;
    let identity: BTreeSet<String> = uids().chain([of_preset]).flat_map(fields).collect();
    if fields(own).iter().any(|field| identity.contains(field)) {
        return None;
    }
    let message = format!(
        "`target` is another one than that of preset `{}`, whose entries keep `uid` with `{uid}`: an event with another \
         `{uid}` waits until the instance of the target is gone",
        preset.value
    );
    let warning = Diagnostic::warning("uid-of-preset", &doc.source, target.name.at, message);
    Some(warning.help("write `events` of your own, without `uid` or with one that fits the target"))
}

fn fields(text: &ParsedText) -> BTreeSet<String> {
    text.expressions().flat_map(Expression::fields).collect()
}
