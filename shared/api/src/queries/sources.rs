//! Sources, as named documents, and the events that they have rejected.

use std::collections::BTreeMap;

use ebb_documents::{Diagnostics, DocumentVars, NoFiles, SourceDoc, compile, load};
use ebb_flow::source::{delivery, observe, reconcile};
use ebb_flow::{Env, FlowResult, offload};
use ebb_protocol::api::{
    DecidingEvent, ListingState, MissingThing, RejectedEvent, RejectionSummary, SourceDetail, SourceInfo, SourceList,
};
use ebb_protocol::{Millis, SourceResponse, SourceResult, TargetKey, rfc3339};
use ebb_store::{
    DesiredKey, DesiredTarget, ListFindings, MissingTarget, NamedDocument, NamedKind, SourceRejections, SourceWatch,
    Store, TargetHead,
};

use super::clusters;
use super::named_documents::{self, StoredKind};

/// Maximum missing targets of a source that a response has, and that a request names.
pub(crate) const SHOWN: usize = 100;

impl StoredKind for SourceDoc {
    const KIND: NamedKind = NamedKind::Source;
    type List = SourceList;
    type Detail = SourceDetail;

    fn checked(name: &str, text: &str) -> Result<NamedDocument, Diagnostics> {
        let source = load::event_source("document", text, &NoFiles, &DocumentVars::none())?;
        let checked = named_documents::check(name, (&source.name, &source.source), source.expanded.clone())?;
        compile::event_source(&source)?;
        Ok(checked)
    }

    /// A source without lists has nothing to observe: the next sweep drops the item.
    async fn prepare(env: &Env, new: &NamedDocument) -> FlowResult<()> {
        let is_observed = ["exists", "replay"].iter().any(|key| new.document.contains(key));
        if is_observed { observe::begin(env, &new.name).await } else { Ok(()) }
    }

    const LOSS: &str = "Without it, they stay until their `ttl` ends or a person deletes them";

    async fn users(env: &Env, name: &str) -> FlowResult<Option<Vec<String>>> {
        let is_own = |target: &TargetHead| target.phase.is_alive() && target.source.as_deref() == Some(name);
        clusters::users(env, is_own, |_| true).await
    }

    async fn list(env: &Env) -> FlowResult<SourceList> {
        let rejected = env.store.list_rejections().await?.into_iter();
        let mut rejected: BTreeMap<_, _> = rejected.map(|one| (one.source, one.events)).collect();
        let watches = env.store.list_watches().await?.into_iter();
        let mut watches: BTreeMap<_, _> = watches.map(|watch| (watch.source.clone(), watch)).collect();
        let sources = env.store.list_documents(Self::KIND).await?.into_iter();
        let about = |source: NamedDocument| SourceInfo {
            listing: watches.remove(&source.name).map(|watch| listing(&watch)),
            rejected: rejected.remove(&source.name).and_then(summary),
            name: source.name,
            changed: rfc3339(source.changed),
        };
        Ok(SourceList { sources: sources.map(about).collect() })
    }

    /// Returns a source with its last rejected events, the newest first.
    async fn detail(env: &Env, source: NamedDocument) -> FlowResult<SourceDetail> {
        let rejected =
            env.store.read_rejections(&source.name).await?.map_or_else(Vec::new, |rejections| rejections.events);
        let text = source.document.clone();
        let load = move || load::event_source("document", &text, &NoFiles, &DocumentVars::none()).ok();
        let loaded = offload(load).await?;
        let exists = loaded.as_ref().and_then(|source| source.exists.as_ref());
        let fetch = loaded.as_ref().and_then(|source| Some(&source.fetch.as_ref()?.connection));
        let replay = loaded.as_ref().and_then(|source| Some(&source.replay.as_ref()?.value.connection));
        let of_exists = exists.and_then(|exists| exists.value.connection.as_ref());
        let connections = fetch.into_iter().chain(of_exists).chain(replay);
        let mut problem = None;
        for connection in connections {
            let found = delivery::connection_problem(env, &source.name, &connection.value).await?;
            problem = problem.or(found);
        }
        let grace =
            exists.and_then(|exists| exists.value.grace.as_ref()).map_or(observe::GRACE, |at| Millis(at.value.0));
        Ok(SourceDetail {
            listing: match exists.is_some() || replay.is_some() {
                true => Some(drift(env, &source.name, grace).await?),
                false => None,
            },
            problem,
            path: format!("/v1/sources/{}", source.name),
            name: source.name,
            changed: rfc3339(source.changed),
            document: source.document,
            rejected,
        })
    }
}

fn listing(watch: &SourceWatch) -> ListingState {
    let of_replay = || watch.replay.as_ref()?.problem.as_ref();
    let problem = watch.problem.as_ref().or_else(of_replay);
    ListingState {
        complete: watch.complete.map(|(at, _)| rfc3339(at)),
        things: watch.complete.map(|(_, things)| things),
        problem_since: problem.map(|(since, _)| rfc3339(*since)),
        problem: problem.map(|(_, why)| why.clone()),
        missing_count: watch.missing,
        missing: Vec::new(),
    }
}

async fn drift(env: &Env, name: &str, grace: Millis) -> FlowResult<ListingState> {
    let Some((watch, findings)) = env.store.read_watch(name).await? else { return Ok(ListingState::default()) };
    let thing = |one: MissingTarget| MissingThing {
        target: TargetKey::new(&one.kind, &one.name).to_string(),
        uid: one.uid,
        since: rfc3339(one.first),
        ends_after: rfc3339(one.first.plus(grace)),
    };
    let ListFindings { missing, refused, accepted, .. } = findings;
    // Those that no person has asked for come first, so that a further request can name them.
    let (asked, others): (Vec<_>, Vec<_>) =
        missing.into_iter().chain(refused).partition(|one| accepted.contains(&one.uid));
    let missing = others.into_iter().chain(asked).take(SHOWN).map(thing).collect();
    Ok(ListingState { missing, ..listing(&watch) })
}

fn summary(events: Vec<RejectedEvent>) -> Option<RejectionSummary> {
    let (count, since) = (events.len(), rfc3339(events.last()?.time));
    Some(RejectionSummary { count, since, last: events.into_iter().next()? })
}

/// Returns the last rejected event of a target, with the name of its source and the later event that has ended the target.
pub(crate) async fn rejected_event_of(
    store: &Store,
    key: TargetKey<'_>,
) -> FlowResult<Option<(String, RejectedEvent, Option<String>)>> {
    let target = Some(key.to_string());
    let last = |SourceRejections { source, events, .. }: SourceRejections| {
        Some((source, events.into_iter().find(|event| event.target == target)?))
    };
    let found = store.list_rejections().await?.into_iter().filter_map(last).max_by_key(|(_, event)| event.time);
    let Some((source, event)) = found else { return Ok(None) };
    let uid = event.uid.clone().filter(|uid| !reconcile::is_derived(uid));
    let key = DesiredKey { source: source.clone(), kind: key.kind.to_owned(), name: key.name.to_owned(), uid };
    let is_end = |state: &DesiredTarget| state.is_delete && state.result_time > Some(event.time);
    let end = store.read_desired(&key).await?.filter(is_end).map(|state| state.delivery);
    Ok(Some((source, event, end)))
}

/// Returns the event that decided whether a target exists, if a source controls the target.
pub(crate) async fn deciding_event(store: &Store, target: &TargetHead) -> FlowResult<Option<DecidingEvent>> {
    let Some(source) = target.source.clone() else { return Ok(None) };
    let uid = (!reconcile::is_derived(&target.uid)).then(|| target.uid.clone());
    let key = DesiredKey { source, kind: target.kind.clone(), name: target.name.clone(), uid };
    // A deletion that was refused says nothing about a target that has ended since.
    let is_kept = |outcome: &SourceResponse| target.phase.is_alive() || outcome.result != SourceResult::Rejected;
    Ok(store.read_desired(&key).await?.map(|state| DecidingEvent {
        source: state.key.source,
        delivery: state.delivery,
        time: rfc3339(state.time),
        outcome: state.result.filter(is_kept),
    }))
}
