//! Warns of sources whose targets would not end as expected.

use std::collections::BTreeSet;

use crate::event::{EntryAction, EventEntry, EventTarget, EventTree};
use crate::{Diagnostic, EventRule, Expression, ParsedText, SourceDoc, VerifyDoc};

/// Warns of entries above a `delete` that can hide the end of a target. `entries` are those of `doc.events`.
///
/// An entry decides by content that can change while the target lives. An entry that tests a field of the `delete`, such
/// as the action, is expected to exclude it.
pub(super) fn hidden_ends(doc: &SourceDoc, entries: &[EventEntry]) -> Vec<Diagnostic> {
    let mut warnings = Vec::new();
    for (at, (rule, entry)) in doc.events.iter().flatten().zip(entries).enumerate() {
        if matches!(entry.action, EntryAction::Delete(..)) {
            continue;
        }
        let read = entry.when.fields();
        let hides = |below: &EventEntry| {
            let EntryAction::Delete(target, _) = &below.action else { return None };
            if entry.when.text.trim() == "true" {
                return Some("holds for each event:".to_owned());
            }
            let (ends, identity) = (below.when.fields(), fields(&target.name));
            let is_shared = ends.iter().any(|field| !field.starts_with("headers") && read.contains(field));
            let changing = read.iter().find(|field| !identity.contains(*field) && can_change(field, &entry.when))?;
            (!ends.is_empty() && !is_shared).then(|| format!("decides by `{changing}`: when that changes,"))
        };
        let mut below = entries.iter().enumerate().skip(at + 1);
        if let Some((hidden, why)) = below.find_map(|(number, below)| Some((number + 1, hides(below)?))) {
            let message =
                format!("the entry is above the `delete` of entry {hidden} and {why} the end of a target is not seen");
            let warning = Diagnostic::warning("hidden-end", &doc.source, rule.when.at, message);
            let help = "put `delete` entries first: the deletion of a target that does not exist changes nothing";
            warnings.push(warning.help(help));
        }
    }
    warnings
}

/// The words in the names of fields that tell the kind of an event.
const KINDS: [&str; 6] = ["action", "event", "kind", "object", "topic", "type"];

/// Returns true for a field of the body that is not expected to be the kind of the event. A field directly in the body is
/// so by its name, or if the condition tests whether it is there. A deeper one is so by its name, or that of the part above
/// its `name`, if the condition compares it with constant texts.
fn can_change(field: &str, when: &Expression) -> bool {
    let body = field.strip_prefix("fetched.body").or_else(|| field.strip_prefix("body"));
    let Some(path) = body.and_then(|rest| rest.get(1..)) else { return false };
    let is_tested = when.text.contains(&format!("has({field})")) || when.text.contains(&format!("?{path}"));
    let name = path.rsplit(['.', '[', ']', '"']).find(|part| !matches!(*part, "" | "name")).unwrap_or_default();
    let is_kind = KINDS.iter().any(|word| name.to_ascii_lowercase().contains(word));
    match path.contains(['.', '[']) {
        true => !is_kind || !when.compared().contains(field),
        false => !is_kind && !is_tested,
    }
}

/// Warns of targets that nothing ends.
pub(super) fn no_end(doc: &SourceDoc, entries: &[EventEntry]) -> Option<Diagnostic> {
    let lives = |entry: &EventEntry| match &entry.action {
        EntryAction::Apply(_, EventTree::Map(document)) => {
            document.iter().all(|(key, value)| key != "ttl" || can_be_missing(value))
        }
        _ => false,
    };
    let is_endless =
        entries.iter().any(lives) && !entries.iter().any(|it| matches!(it.action, EntryAction::Delete(..)));
    let message = "nothing ends the targets: no entry has `delete`, and `document` has no `ttl` for each event";
    let warning = || Diagnostic::warning("no-end", &doc.source, doc.name.at, message);
    let help = "add a `ttl`, such as `ttl: 72h` or `${body.?ttl.orValue(\"72h\")}`, or an entry with `delete`";
    is_endless.then(|| warning().help(help))
}

/// Returns true for a time that an event without a field leaves out.
fn can_be_missing(ttl: &EventTree) -> bool {
    match ttl {
        EventTree::Map(entries) => entries.iter().any(|(_, value)| can_be_missing(value)),
        EventTree::Text(text, _) => text.whole().is_some_and(|expression| {
            let has_default = expression.text.replace("orValue(null)", "").contains("orValue(");
            let is_known = |field: &String| field.starts_with("with.") || field.starts_with("source.");
            !has_default && !expression.text.contains("has(") && !expression.fields().iter().all(is_known)
        }),
        _ => false,
    }
}

/// Returns the first entry whose events start a target whatever was received before.
///
/// An instance with a `uid` is created once in any case.
fn untimed<'a>(doc: &'a SourceDoc, entries: &[EventEntry]) -> Option<&'a EventRule> {
    let starts = |entry: &EventEntry| matches!(entry.action, EntryAction::Apply(..));
    let is_untimed = |entry: &EventEntry| starts(entry) && entry.time.is_none() && entry.uid.is_none();
    doc.events.iter().flatten().zip(entries).find(|(_, entry)| is_untimed(entry)).map(|(rule, _)| rule)
}

/// Warns of an entry whose events have neither an ID nor a time, so that equal bodies are one delivery. `entries` are
/// those of `doc.events`.
///
/// The bodies of schemes for one platform have times.
pub(super) fn equal_bodies(doc: &SourceDoc, verify: &VerifyDoc, entries: &[EventEntry]) -> Option<Diagnostic> {
    let is_general = matches!(
        verify,
        VerifyDoc::Hmac(_) | VerifyDoc::Jws(_) | VerifyDoc::Bearer(_) | VerifyDoc::Basic(_) | VerifyDoc::Url(_)
    );
    let rule = untimed(doc, entries).filter(|_| is_general)?;
    let message = "the events have neither `id` nor `time`, so a body that equals an earlier one is a repetition: after \
                   `delete`, the same body creates no target again";
    let warning = Diagnostic::warning("equal-bodies", &doc.source, rule.when.at, message);
    Some(warning.help("add a `time`, or an `id` that differs for each event, from a field that the signature covers"))
}

/// Warns of an entry whose events decide by their arrival, although `replay` receives them late. `entries` are those of
/// `doc.events`.
pub(super) fn untimed_replay(doc: &SourceDoc, entries: &[EventEntry]) -> Option<Diagnostic> {
    doc.replay.as_ref()?;
    let is_untimed = |entry: &EventEntry| {
        !matches!(entry.action, EntryAction::Ignore(_)) && entry.time.is_none() && entry.uid.is_none()
    };
    let (rule, _) = doc.events.iter().flatten().zip(entries).find(|(_, entry)| is_untimed(entry))?;
    let message = "`replay` receives failed deliveries late, and this entry has no `time`: a former event can end or start a \
                   target";
    let warning = Diagnostic::warning("untimed-replay", &doc.source, rule.when.at, message);
    Some(warning.help("add a `time`, such as `${body.pull_request.updated_at}`"))
}

/// Warns of an ID in a header that the signature does not cover. `entries` are those of `doc.events`.
pub(super) fn unsigned_id(
    doc: &SourceDoc,
    verify: &VerifyDoc,
    id: Option<&ParsedText>,
    entries: &[EventEntry],
) -> Option<Diagnostic> {
    let signed = match verify {
        VerifyDoc::Hmac(hmac) if hmac.timestamp.is_none() => hmac.signed.as_ref().map_or("", |signed| &signed.value),
        VerifyDoc::Github(_) | VerifyDoc::Gitea(_) | VerifyDoc::Vercel(_) | VerifyDoc::E2b(_) | VerifyDoc::Jws(_) => "",
        _ => return None,
    };
    let (signed, read) = (signed.to_ascii_lowercase(), fields(id?));
    let mut headers = read.iter().filter_map(|field| field.strip_prefix("headers."));
    let header = headers.find(|header| !signed.contains(&format!("${{headers.{header}}}")))?;
    let at = untimed(doc, entries).and(doc.id.as_ref())?.at;
    let message = format!(
        "the signature does not cover the header `{header}`: a person who has read a request can send it again with another \
         ID, also after `delete`"
    );
    let help = "read the ID from the body, add the header to `signed`, or add `time` to the entries";
    Some(Diagnostic::warning("unsigned-id", &doc.source, at, message).help(help))
}

/// The tolerance of the time of a signature, in milliseconds, above which a source gets a warning.
const LONG_TOLERANCE: u64 = 3_600_000;

/// Warns of signatures that are accepted for long.
pub(super) fn long_tolerance(doc: &SourceDoc) -> Option<Diagnostic> {
    let VerifyDoc::Hmac(hmac) = doc.verify.as_ref()? else { return None };
    let time = hmac.timestamp.as_ref()?;
    time.tolerance.filter(|tolerance| tolerance.0 > LONG_TOLERANCE)?;
    let message = "a request that another person has read can be sent again within `tolerance`, which is above 1 h";
    let warning = Diagnostic::warning("long-tolerance", &doc.source, time.header.at, message);
    Some(warning.help("write at most 1 h, or leave `tolerance` out: the default is 5 min"))
}

/// Warns of two entries with the same target whose `time` is another field, or is given in one of them only. `entries` are
/// those of `doc.events`.
pub(super) fn differing_times(doc: &SourceDoc, entries: &[EventEntry]) -> Option<Diagnostic> {
    let mut above: Vec<(usize, &EventTarget, BTreeSet<String>)> = Vec::new();
    let shown = |read: &BTreeSet<String>| read.first().map_or("missing".to_owned(), |field| format!("`{field}`"));
    for (number, (rule, entry)) in (1..).zip(doc.events.iter().flatten().zip(entries)) {
        let (EntryAction::Apply(target, _) | EntryAction::Delete(target, _)) = &entry.action else { continue };
        let read = entry.time.as_ref().map(fields).unwrap_or_default();
        let differs = |other: &BTreeSet<String>| *other != read && other.is_disjoint(&read);
        if let Some((other, _, known)) = above.iter().find(|(_, of, known)| *of == target && differs(known)) {
            let (here, there) = (shown(&read), shown(known));
            let message = format!(
                "`time` is {here} here and {there} in entry {other}: if these are different times, a newer event can count \
                 as outdated"
            );
            let at = rule.time.as_ref().unwrap_or(&rule.when).at;
            let help =
                "read one field in all entries of a target, or leave `time` out of all, so that the arrival counts";
            return Some(Diagnostic::warning("times-differ", &doc.source, at, message).help(help));
        }
        above.push((number, target, read));
    }
    None
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
