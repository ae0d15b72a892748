//! Observes what exists at the sender of a source, over several sweeps, and ends the targets whose things are missing.
//!
//! 0. Before an observation, failed deliveries of a webhook are [fetched](super::replay).
//! 1. A sweep reads pages of the lists for [`SLICE`], and stores where it stopped. Each step claims the state by its version.
//! 2. A complete observation is judged by [`drift`](super::drift). One that fails, is incomplete or is about other targets
//!    changes nothing, and its reason is shown.
//! 3. A target that two complete observations lack, with the grace period between them, is asked for by `confirm`. Then it gets
//!    the desired state of a deletion, on condition that no event has changed that state since the first observation.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::EventSource;
use ebb_documents::event::listing::{ListedNames, ListedTarget, ListedThing};
use ebb_documents::event::{EventListing, EventOutcome};
use ebb_protocol::{ErrorCode, HistoryChange, Millis, TargetKey, Timestamp, limits, rfc3339, short_digest};
use ebb_store::{
    DesiredKey, DesiredTarget, ListFindings, ListPass, MissingTarget, SourceWatch, StoreError, TargetHead,
};
use futures::FutureExt as _;
use futures::future::{join_all, try_join_all};

use super::drift::{MAX_MISSING, Observation, ObservedDrift};
use super::fetch::{FetchProblem, RETRY};
use super::list::{self, MAX_AGE};
use super::{reconcile, record, replay};
use crate::instance::history::{self, Decision};
use crate::run::credential::{self, ConnectionUser};
use crate::telemetry::{self, Counter};
use crate::{Env, FlowError, FlowResult, RequestError};

/// The time in which a sweep reads pages and begins removals. It ends before the time of a function.
const SLICE: Millis = Millis(15_000);
/// The time after which another sweep continues an observation whose sweep has died.
const CLAIM: Millis = Millis(60_000);
/// Maximum pages of a list, and elements of all lists of a source.
const MAX_PAGES: u32 = 2_000;
const MAX_THINGS: u64 = 100_000;
/// Removals, and reads of targets, that happen at once.
const CONCURRENT: usize = 8;
const READS: usize = 32;
/// Maximum UIDs of a request.
const MAX_ACCEPTED: usize = 100;
/// The grace period of a source that has none.
pub const GRACE: Millis = Millis(600_000);

/// The result of a part of an observation.
enum ListStep {
    /// All pages of all lists were read.
    Complete,
    /// Time is left for no further page.
    Continue,
    /// The page must be asked for again after a while.
    Wait(String, Millis),
    /// The observation shows nothing.
    Refused(String),
}

/// Makes a source with `exists` or `replay` due. Its document is stored after that. A sweep that has read the earlier document,
/// which may have neither, deletes the state of the version that it has read.
pub async fn begin(env: &Env, name: &str) -> FlowResult<()> {
    for _ in 0..crate::ATTEMPTS {
        let (watch, findings) = match env.store.read_watch(name).await? {
            // No sweep can have read it as due.
            Some((watch, _)) if watch.due > env.now().plus(Millis(CLAIM.0 / 2)) => return Ok(()),
            found => found.unwrap_or_default(),
        };
        let due = if watch.version == 0 { env.now().plus(RETRY) } else { watch.due };
        let source = name.to_owned();
        if env.store.put_watch(&SourceWatch { source, due, version: watch.version + 1, ..watch }, &findings).await? {
            return Ok(());
        }
    }
    Err(FlowError::Contended(format!("the lists of source {name}")))
}

/// Continues the observation of a source, if it is due.
pub(crate) async fn observe(env: &Env, name: &str) -> FlowResult<()> {
    let Some((watch, findings)) = env.store.read_watch(name).await? else { return Ok(()) };
    if watch.due > env.now() {
        return Ok(());
    }
    let source = match super::find(env, name).await {
        Ok(source) => Some(source),
        Err(RequestError::Failed(error)) => return Err(error),
        Err(RequestError::Rejected(_)) => None,
    };
    let Some(source) = source.filter(|source| source.listing.is_some() || source.replay.is_some()) else {
        return Ok(env.store.delete_watch(name, watch.version).await?);
    };
    let claimed = SourceWatch { due: env.now().plus(CLAIM), version: watch.version + 1, ..watch };
    if !env.store.put_watch(&claimed, &findings).await? {
        return Ok(());
    }
    let (mut watch, mut findings, end) = (claimed, findings, env.now().plus(SLICE));
    if source.listing.is_none() {
        // What earlier lists have shown does not count.
        let SourceWatch { source, complete, replay, version, .. } = watch;
        watch = SourceWatch { source, complete, replay, version, ..SourceWatch::default() };
        findings = ListFindings { attempts: findings.attempts, ..ListFindings::default() };
    }
    let (is_continued, wait) = match &watch.pass {
        Some(pass) if (pass.part, pass.pages) != (0, 0) => (false, RETRY),
        _ => Box::pin(replay::replay(env, &source, (&mut watch.replay, &mut findings.attempts), end)).await?,
    };
    match &source.listing {
        Some(listing) if !is_continued => {
            let mut observer = Observer { env, source: &source, listing, watch, findings, end };
            Box::pin(observer.slice()).await
        }
        _ => {
            if !is_continued && watch.replay.as_ref().is_some_and(|replay| replay.problem.is_none()) {
                watch.complete = Some((env.now(), 0));
            }
            (watch.due, watch.version) = (env.now().plus(wait), watch.version + 1);
            env.store.put_watch(&watch, &findings).await?;
            Ok(())
        }
    }
}

/// Asks for the deletion of missing targets after the next observation that lacks them, which begins now.
///
/// # Errors
/// Refuses a UID that is not one of a missing target.
pub async fn accept(env: &Env, name: &str, uids: Vec<String>) -> Result<(), RequestError> {
    if uids.len() > MAX_ACCEPTED {
        let detail = format!("{} UIDs are given, at most {MAX_ACCEPTED} are allowed", uids.len());
        return Err(RequestError::refused(ErrorCode::InvalidQuery, detail));
    }
    for _ in 0..crate::ATTEMPTS {
        let Some((watch, mut findings)) = env.store.read_watch(name).await? else {
            return Err(RequestError::refused(ErrorCode::NotFound, format!("no source {name:?} lists what exists")));
        };
        let missing = || findings.missing.iter().chain(&findings.refused);
        if let Some(uid) = uids.iter().find(|uid| missing().all(|one| one.uid != **uid)) {
            let detail = format!("{}: it is not the UID of a missing target", limits::message(uid));
            return Err(RequestError::refused(ErrorCode::Outdated, detail));
        }
        findings.accepted.extend(uids.iter().cloned());
        let after = SourceWatch { due: env.now(), version: watch.version + 1, ..watch };
        if env.store.put_watch(&after, &findings).await? {
            return Ok(());
        }
    }
    Err(FlowError::Contended(format!("the lists of source {name}")).into())
}

struct Observer<'a> {
    env: &'a Env,
    source: &'a std::sync::Arc<EventSource>,
    listing: &'a EventListing,
    watch: SourceWatch,
    findings: ListFindings,
    /// The end of the time in which pages are read and removals begin.
    end: Timestamp,
}

impl Observer<'_> {
    async fn slice(&mut self) -> FlowResult<()> {
        let now = self.env.now();
        let parts = match self.parts() {
            Ok(parts) => parts,
            Err(problem) => return self.refuse(now, problem).await,
        };
        let user = ConnectionUser::Source(&self.source.name);
        let credential = match credential::of_user(self.env, &self.listing.connection, user).await? {
            Ok((origin, credential)) => format!("{origin} {:?}", credential.digest(self.env)),
            Err(why) => return self.refuse(now, why).await,
        };
        let question = self.question(&parts, &credential);
        if self.watch.question != question {
            let attempts = std::mem::take(&mut self.findings.attempts);
            self.findings = ListFindings { attempts, ..ListFindings::default() };
            let SourceWatch { source, problem, replay, version, .. } = std::mem::take(&mut self.watch);
            self.watch = SourceWatch { source, question, problem, replay, version, ..SourceWatch::default() };
        }
        let document = short_digest(&["source", &format!("{:?}", self.source)], 24);
        // A change begins again.
        self.watch.pass.take_if(|pass| pass.document != document);
        if self.watch.pass.as_ref().is_some_and(|pass| pass.begun.plus(MAX_AGE) < now) {
            telemetry::count(Counter::IncompleteLists, 1);
            self.note(Some("the lists were not read within 2 hours".to_owned()));
            self.watch.pass = None;
        }
        // An observation begins with its first page.
        if self.watch.pass.as_ref().is_none_or(|pass| (pass.part, pass.pages) == (0, 0)) {
            self.findings.things.clear();
            self.watch.pass = Some(ListPass { begun: now, document, ..ListPass::default() });
        }
        let begun = self.watch.pass.as_ref().map_or(now, |pass| pass.begun);
        match self.read(&parts).await? {
            ListStep::Complete => self.end(begun, &parts).await,
            ListStep::Refused(problem) => self.refuse(begun, problem).await,
            ListStep::Continue => self.store(self.env.now().plus(Millis(1_000))).await,
            ListStep::Wait(problem, wait) => {
                telemetry::count(Counter::IncompleteLists, 1);
                self.note(Some(problem));
                self.store(self.env.now().plus(wait)).await
            }
        }
    }

    fn parts(&self) -> Result<Vec<(String, ListedNames)>, String> {
        let parts = self.source.list_parts(self.listing).map_err(|error| error.to_string())?;
        let names = parts.into_iter().map(|part| {
            let names = self.source.list_names(self.listing, &part).map_err(|error| error.to_string())?;
            Ok((part, names))
        });
        names.collect()
    }

    /// Returns a digest of what is asked for, and of which targets.
    fn question(&self, parts: &[(String, ListedNames)], credential: &str) -> String {
        let asked = format!("{parts:?} {:?} {:?}", self.listing, self.source.list_kinds());
        short_digest(&["exists", &asked, credential], 24)
    }

    /// Reads pages until the end of the lists or of the time.
    async fn read(&mut self, parts: &[(String, ListedNames)]) -> FlowResult<ListStep> {
        let Some(mut pass) = self.watch.pass.clone() else { return Ok(ListStep::Complete) };
        let living = match self.listing.create {
            true => Some(self.covered(parts).await?.into_iter().collect::<BTreeSet<_>>()),
            false => None,
        };
        while let Some((part, names)) = parts.get(pass.part) {
            if self.env.now() >= self.end {
                self.watch.pass = Some(pass);
                return Ok(ListStep::Continue);
            }
            let (things, next) = match list::page(self.env, self.source, (self.listing, part), &pass).await {
                Ok(page) => page,
                Err(problem) => match problem.shown()? {
                    (why, Some(wait)) => {
                        self.watch.pass = Some(pass);
                        return Ok(ListStep::Wait(why, wait));
                    }
                    (why, None) => return Ok(ListStep::Refused(why)),
                },
            };
            // What is made does not have to fit into the time.
            self.watch.pass = Some(pass.clone());
            pass.seen += things.len() as u64;
            pass.total += things.len() as u64;
            if pass.total > MAX_THINGS {
                return Ok(ListStep::Refused(format!("the lists have more than {MAX_THINGS} elements")));
            }
            for one in things {
                let ListedThing { kind, name, uid, outcome } = &one;
                if !names.covers(name) || !self.source.list_kinds().contains(kind.as_str()) {
                    let name = limits::message(name);
                    return Ok(ListStep::Refused(format!("the list has {kind}/{name}, which `names` does not cover")));
                }
                // The thing exists, and has no target any more.
                if !matches!(outcome, EventOutcome::Delete { .. }) {
                    self.findings.things.insert(thing(kind, name, uid.as_deref()));
                }
                if living.as_ref().is_some_and(|living| !living.contains(&(kind.clone(), name.clone()))) {
                    if self.env.now() >= self.end {
                        return Ok(ListStep::Continue);
                    }
                    self.make(one, pass.begun).await?;
                }
            }
            pass.pages += 1;
            pass = match next {
                Some(_) if pass.pages >= MAX_PAGES => {
                    return Ok(ListStep::Refused(format!("a list has more than {MAX_PAGES} pages")));
                }
                Some(next) => ListPass { url: Some(next), ..pass },
                None => ListPass { url: None, seen: 0, pages: 0, part: pass.part + 1, ..pass },
            };
        }
        self.watch.pass = Some(pass);
        Ok(ListStep::Complete)
    }

    /// Makes the target of a thing, unless an event has decided about it later, or it has ended by itself.
    async fn make(&self, one: ListedThing, begun: Timestamp) -> FlowResult<()> {
        let EventOutcome::Apply { kind, name, uid, time_ms, order, document } = one.outcome else { return Ok(()) };
        let key = DesiredKey { source: self.source.name.clone(), kind, name, uid };
        let (seen, sent) = (self.env.store.read_desired(&key).await?, time_ms.map(Timestamp));
        // Another thing has had the name.
        let is_other = |head: TargetHead| !head.phase.is_alive() && key.uid.as_ref().is_some_and(|of| *of != head.uid);
        let is_lost = match &seen {
            None => self.env.store.read_target(key.target_key()).await?.is_none_or(is_other),
            Some(seen) => {
                let is_later = |ended: Timestamp| ended.plus(Millis(self.listing.grace_ms)) < begun;
                // A list without times has the thing long after its end.
                let is_again = key.uid.is_none() && seen.result_time.is_some_and(is_later);
                seen.is_delete && seen.sent.zip(sent).map_or(is_again, |(known, sent)| sent > known)
            }
        };
        if is_lost {
            let (delivery, document) = (format!("listed {}", rfc3339(begun)), Some(document));
            let is_limited = self.source.limit.is_some();
            let event = DesiredTarget { delivery, key, sent, order, document, is_limited, ..DesiredTarget::default() };
            record::record_after(self.env, &event, seen.map_or(0, |seen| seen.version)).await?;
            self.apply(&event.key).await?;
        }
        Ok(())
    }

    async fn apply(&self, key: &DesiredKey) -> FlowResult<()> {
        let (_, follow_ups) = reconcile::apply(self.env, key).await?;
        for follow_up in follow_ups {
            follow_up.finish(self.env).await?;
        }
        Ok(())
    }

    /// Judges a complete observation, and ends the targets that it and an earlier one lack, until the end of the time.
    async fn end(&mut self, begun: Timestamp, parts: &[(String, ListedNames)]) -> FlowResult<()> {
        let pass = self.watch.pass.take().unwrap_or_default();
        let covered = self.covered(parts).await?;
        let shown: BTreeSet<&str> = self.findings.things.iter().filter_map(|one| one.split(' ').next()).collect();
        let is_shown = |(kind, name): &&(String, String)| shown.contains(thing(kind, name, None).as_str());
        let listed = covered.iter().filter(is_shown).count();
        let absent = self.absent(&covered, &shown, listed).await?;
        self.watch.has_shown |= listed > 0;
        let observation = Observation {
            begun,
            now: self.env.now(),
            // Targets of others that the lists lack do not count.
            covered: (listed + absent.len()) as u64,
            shrink: self.listing.shrink,
            grace: Millis(self.listing.grace_ms),
            is_confirmed: self.listing.has_confirmation(),
            has_shown: self.watch.has_shown,
            accepted: &self.findings.accepted,
        };
        let ObservedDrift { missing, ended } = match observation.judge(&absent, &self.findings.missing) {
            Ok(drift) => drift,
            Err((problem, refused)) => {
                self.findings.refused = refused;
                self.findings.refused.retain(|one| !self.findings.missing.contains(one));
                let mut missing = std::mem::take(&mut self.findings.missing);
                missing.retain(|one| !self.is_listed(&shown, (&one.kind, &one.name, &one.uid)));
                self.findings.missing = missing;
                self.watch.missing = (self.findings.missing.len() + self.findings.refused.len()) as u64;
                return self.refuse(begun, problem).await;
            }
        };
        let next = observation.next(Millis(self.listing.every_ms), &missing);
        let ListFindings { things, attempts, accepted, .. } = std::mem::take(&mut self.findings);
        self.findings = ListFindings { missing, attempts, accepted, ..ListFindings::default() };
        self.watch.complete = Some((begun, pass.total));
        let heads: BTreeMap<_, _> = absent.iter().map(|(head, _)| ((&head.kind, &head.name), head)).collect();
        let known = ended.iter().filter_map(|one| Some((one, *heads.get(&(&one.kind, &one.name))?)));
        let mut ended: Vec<_> = known.collect();
        let place = |one: &MissingTarget| thing(&one.kind, &one.name, None);
        ended.sort_by_key(|(one, _)| place(one));
        // An earlier sweep has asked for those up to a place.
        ended.retain(|(one, _)| pass.url.as_ref().is_none_or(|last| place(one) > *last));
        let mut problem = self.watch.problem.as_ref().filter(|_| pass.url.is_some()).map(|(_, why)| why.clone());
        let (mut asked, mut limit) = (0, None::<Millis>);
        for some in ended.chunks(CONCURRENT) {
            let ends = some.iter().map(|(one, head)| self.remove(head, one, begun, parts).boxed());
            let results = join_all(ends).await;
            asked += some.len();
            for ((one, _), result) in some.iter().zip(results) {
                match result {
                    // It ends, or its thing exists.
                    Ok(Ok(())) => self.findings.missing.retain(|other| other != *one),
                    Ok(Err(found)) => {
                        let is_limit = found.is_limit();
                        let (why, wait) = found.shown()?;
                        limit = limit.max(wait.filter(|_| is_limit));
                        problem = Some(format!("{place}: {why}", place = place(one)));
                    }
                    Err(error) if error.is_retryable() => return Err(error),
                    Err(error) => problem = Some(format!("{place}: {error}", place = place(one))),
                }
            }
            if limit.is_some() || self.env.now() >= self.end {
                break;
            }
        }
        let is_continued = limit.is_none() && asked < ended.len();
        let due = if is_continued { self.env.now().plus(Millis(1_000)) } else { next };
        let due = due.max(self.env.now().plus(limit.unwrap_or_default()));
        if is_continued {
            let url = ended[..asked].last().map(|(one, _)| place(one));
            (self.watch.pass, self.findings.things) = (Some(ListPass { url, ..pass }), things);
        }
        self.note(problem);
        self.watch.missing = self.findings.missing.len() as u64;
        let missing: BTreeSet<&String> = self.findings.missing.iter().map(|one| &one.uid).collect();
        self.findings.accepted.retain(|uid| missing.contains(uid));
        self.store(due).await
    }

    /// Returns the keys of the living targets that the lists are about, by kind and name.
    async fn covered(&self, parts: &[(String, ListedNames)]) -> FlowResult<Vec<(String, String)>> {
        let mut covered = Vec::new();
        for kind in self.source.list_kinds() {
            let names = self.env.store.living_names(kind).await?.into_iter();
            let names = names.filter(|name| parts.iter().any(|(_, of)| of.covers(name)));
            covered.extend(names.map(|name| (kind.to_owned(), name)));
        }
        Ok(covered)
    }

    /// Returns the living targets of the source that the lists lack, each with the version of its desired state. `listed`
    /// targets are in the lists. If far too many are absent, some of them are enough.
    async fn absent(
        &self,
        covered: &[(String, String)],
        shown: &BTreeSet<&str>,
        listed: usize,
    ) -> FlowResult<Vec<(TargetHead, u64)>> {
        let has_uids = self.findings.things.iter().any(|thing| thing.contains(' '));
        let is_suspect = |kind: &str, name: &str| has_uids || !shown.contains(thing(kind, name, None).as_str());
        let suspects: Vec<_> = covered.iter().filter(|(kind, name)| is_suspect(kind, name)).collect();
        let most = (listed + suspects.len()) * self.listing.shrink as usize / 100;
        let enough = most.max(MAX_MISSING) + self.findings.accepted.len();
        let mut absent = Vec::new();
        for some in suspects.chunks(READS) {
            let reads = some.iter().map(|(kind, name)| self.absent_one((kind, name), shown).boxed());
            absent.extend(try_join_all(reads).await?.into_iter().flatten());
            if absent.len() > enough {
                break;
            }
        }
        Ok(absent)
    }

    async fn absent_one(
        &self,
        (kind, name): (&str, &str),
        shown: &BTreeSet<&str>,
    ) -> FlowResult<Option<(TargetHead, u64)>> {
        let head = match self.env.store.read_target(TargetKey::new(kind, name)).await {
            // It stays, and others do not wait for it.
            Err(StoreError::Broken { reason, .. }) => {
                tracing::warn!(kind, name, reason, "a target cannot be read");
                None
            }
            head => head?,
        };
        let Some(head) = head else { return Ok(None) };
        if self.is_listed(shown, (kind, name, &head.uid))
            || !head.phase.is_alive()
            || head.source.as_deref() != Some(self.source.name.as_str())
        {
            return Ok(None);
        }
        let desired = self.env.store.read_desired(&self.key_of(&head)).await?;
        // A deletion is wanted already, or is refused because the target is protected.
        if desired.as_ref().is_some_and(|desired| desired.is_delete) {
            return Ok(None);
        }
        Ok(Some((head, desired.map_or(0, |desired| desired.version))))
    }

    fn is_listed(&self, shown: &BTreeSet<&str>, (kind, name, uid): (&str, &str, &str)) -> bool {
        let (things, by_name) = (&self.findings.things, thing(kind, name, None));
        match reconcile::is_derived(uid) {
            // Its sender has not named the instance.
            true => shown.contains(by_name.as_str()),
            false => things.contains(&by_name) || things.contains(&thing(kind, name, Some(uid))),
        }
    }

    fn key_of(&self, head: &TargetHead) -> DesiredKey {
        let uid = Some(head.uid.clone()).filter(|uid| !reconcile::is_derived(uid));
        DesiredKey { source: self.source.name.clone(), kind: head.kind.clone(), name: head.name.clone(), uid }
    }

    /// Asks for the thing of a missing target, and ends the target if it does not exist. `Err` is the reason why the thing has to
    /// be asked for again.
    async fn remove(
        &self,
        head: &TargetHead,
        one: &MissingTarget,
        second: Timestamp,
        parts: &[(String, ListedNames)],
    ) -> FlowResult<Result<(), FetchProblem>> {
        // The wrong list would answer about another thing.
        let mut of = parts.iter().filter(|(_, names)| names.covers(&head.name)).map(|(part, _)| part.as_str());
        let part = of.next().filter(|_| of.next().is_none()).unwrap_or_default();
        // The sender has nothing with a UID that it has not named.
        let uid = Some(head.uid.clone()).filter(|uid| !reconcile::is_derived(uid)).unwrap_or_default();
        let (kind, name) = (head.kind.clone(), head.name.clone());
        let target = ListedTarget { kind, name, uid, labels: head.labels.clone() };
        let confirmed = match self.source.confirmation(self.listing, part, &target) {
            Err(error) => Err(FetchProblem::Wrong(error.to_string())),
            Ok(None) => Ok(Some("it is in no list".to_owned())),
            Ok(Some(request)) => list::confirm(self.env, self.source, (self.listing, part), &target, request).await,
        };
        let why = match confirmed {
            Err(FetchProblem::Failed(error)) => return Err(error),
            Err(problem) => return Ok(Err(problem)),
            // The list lacks what exists.
            Ok(None) => return Ok(Ok(())),
            Ok(Some(why)) => why,
        };
        let key = self.key_of(head);
        let seen = self.env.store.read_desired(&key).await?;
        if seen.as_ref().map_or(0, |seen| seen.version) != one.version {
            return Ok(Ok(()));
        }
        // The clock of the sender may be ahead.
        let sent = seen.and_then(|seen| seen.sent).max(Some(one.first));
        let (first, second) = (rfc3339(one.first), rfc3339(second));
        let reason = format!("its thing is missing at the sender since {first} and at {second}: {why}");
        let by = format!("source {}", self.source.name);
        let decision = Decision { change: HistoryChange::Missing, by: Some(&by), reason: Some(&reason) };
        history::note_decision(self.env, head, decision, []).await?;
        let event = DesiredTarget {
            delivery: format!("missing {first} {second}"),
            key,
            sent,
            order: u8::MAX,
            is_delete: true,
            ..DesiredTarget::default()
        };
        record::record_after(self.env, &event, one.version).await?;
        self.apply(&event.key).await?;
        Ok(Ok(()))
    }

    /// Ends an observation that shows nothing.
    async fn refuse(&mut self, begun: Timestamp, problem: String) -> FlowResult<()> {
        self.watch.pass = None;
        self.findings.things.clear();
        telemetry::count(Counter::IncompleteLists, 1);
        self.note(Some(problem));
        self.store(begun.plus(Millis(self.listing.every_ms)).max(self.env.now().plus(RETRY))).await
    }

    fn note(&mut self, problem: Option<String>) {
        let since = self.watch.problem.as_ref().map_or(self.env.now(), |(since, _)| *since);
        self.watch.problem = problem.map(|problem| (since, limits::message(&problem)));
    }

    /// Writes the state. Another sweep that has taken it over keeps its own.
    async fn store(&mut self, due: Timestamp) -> FlowResult<()> {
        (self.watch.due, self.watch.version) = (due, self.watch.version + 1);
        self.env.store.put_watch(&self.watch, &self.findings).await?;
        Ok(())
    }
}

fn thing(kind: &str, name: &str, uid: Option<&str>) -> String {
    uid.map_or_else(|| format!("{kind}/{name}"), |uid| format!("{kind}/{name} {uid}"))
}
