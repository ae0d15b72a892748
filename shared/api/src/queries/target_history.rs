//! Reads the history of a target, and lists runs.

use std::collections::BTreeMap;

use ebb_engine::{HeadState, Timestamp};
use ebb_flow::instance::history::TTL;
use ebb_flow::{Env, FlowError, FlowResult, Run};
use ebb_protocol::api::{RunState, UndeliveredNotification};
use ebb_protocol::history::{
    HistoryChange, HistoryDetail, HistoryEntry, HistoryPage, HistoryRun, ListedRun, OpenNotification, RunPage,
};
use ebb_protocol::words::commands;
use ebb_protocol::{FieldError, RunId, TargetAccess, TargetKey, digest, lifecycle, parse_rfc3339, rfc3339};
use ebb_store::{
    HistoryItem, HistoryItems, ListPage, NamedDocument, NamedKind, RunFacts, RunHead, Store, TargetHead, TargetList,
};
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::HttpResult;
use crate::queries::{runs, subscriptions, targets, waits};

/// The receiver of the notifications of the platform.
const PLATFORM: &str = "platform";
/// Entries per page.
const ENTRIES: usize = 20;
/// Targets per page of runs. Each has a few runs.
const TARGETS: usize = 25;
/// Entries that are read for a page before it ends, if the caller may read few of them. A page that ended earlier would
/// count those of others.
const MAX_READ: usize = 1_000;
/// Runs that are read at the same time.
const READS: usize = 16;

/// Given-up notifications of an instance that are read of each subscription.
const GIVEN_UP: usize = 100;

pub(crate) fn is_entry_id(text: &str) -> bool {
    let is_part = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == b'-';
    text.len() <= 200 && text.as_bytes().first().is_some_and(u8::is_ascii_digit) && text.bytes().all(is_part)
}

/// Returns a page of the history of a target after the entry `after`. `only` is the instance that the caller may read; `None`
/// means all instances of the name.
pub(crate) async fn list(
    env: &Env,
    key: TargetKey<'_>,
    after: Option<&str>,
    only: Option<&str>,
) -> FlowResult<HistoryPage> {
    let store = &env.store;
    let HistoryItems { entries, next } = match only {
        Some(uid) => own_entries(store, key, after, uid).await?,
        None => store.list_history(key, after, ENTRIES).await?,
    };
    let shown = futures::stream::iter(entries).map(|entry| shown(env, entry)).buffered(READS);
    let entries: Vec<Option<HistoryDetail>> = shown.try_collect().await?;
    let entries = entries.into_iter().flatten().map(|detail| detail.entry).collect();
    Ok(HistoryPage { entries, next_token: next, notifications: Vec::new() })
}

/// Returns the entries of an instance after the entry `after`. They end at an entry of the instance, or after 1,000 entries.
async fn own_entries(store: &Store, key: TargetKey<'_>, after: Option<&str>, uid: &str) -> FlowResult<HistoryItems> {
    let mut own = HistoryItems { entries: Vec::new(), next: after.map(str::to_owned) };
    let mut read = 0;
    loop {
        let found = store.list_history(key, own.next.as_deref(), ENTRIES).await?;
        read += found.entries.len();
        own.entries.extend(found.entries.into_iter().filter(|entry| entry.uid == uid));
        own.next = found.next;
        // One more shows whether another page follows.
        if own.entries.len() > ENTRIES {
            own.entries.truncate(ENTRIES);
            own.next = own.entries.last().map(HistoryItem::id);
            return Ok(own);
        }
        if own.next.is_none() || read >= MAX_READ {
            return Ok(own);
        }
    }
}

/// Returns the notifications about the present instance that their receivers have not accepted. What was accepted has left
/// no item.
pub(crate) async fn open_notifications(store: &Store, target: &TargetHead) -> FlowResult<Vec<OpenNotification>> {
    let platform = waits::delivery(target).map(|delivery| OpenNotification {
        time: rfc3339(target.since),
        phase: delivery.notification,
        to: PLATFORM.to_owned(),
        given_up: false,
        reason: delivery.reason,
        next: delivery.next,
    });
    let mut open: Vec<OpenNotification> = platform.into_iter().collect();
    let mut failed = target.outbox.failed.clone();
    for notice in target.outbox.notices.iter().filter(|notice| !notice.is_for_platform()) {
        for name in &notice.to {
            // Only the first notification of a subscription is sent.
            let state = failed.remove(name);
            open.push(OpenNotification {
                time: rfc3339(notice.at),
                phase: notice.phase.name().to_owned(),
                to: format!("subscription {name}"),
                given_up: false,
                next: state.as_ref().map(|state| rfc3339(state.next)),
                reason: state.map(|state| state.reason).filter(|reason| !reason.is_empty()),
            });
        }
    }
    let subscriptions = store.list_documents(NamedKind::Subscription).await?;
    let instance = target.instance_key();
    let instance = instance.as_str();
    let read = futures::stream::iter(subscriptions).map(|NamedDocument { name, .. }| async move {
        let found = store.list_undelivered(&format!("{name}/{instance}-"), GIVEN_UP).await?;
        Ok::<_, FlowError>((name, found))
    });
    let read: Vec<(String, Vec<NamedDocument>)> = read.buffered(READS).try_collect().await?;
    for (name, found) in read {
        let given_up = found.iter().map(subscriptions::undelivered).filter(|given_up| !given_up.phase.is_empty());
        open.extend(given_up.map(|UndeliveredNotification { phase, at: time, reason, .. }| {
            let to = format!("subscription {name}");
            OpenNotification { time, phase, to, given_up: true, reason: Some(reason), next: None }
        }));
    }
    open.sort_by(|one, other| other.time.cmp(&one.time));
    Ok(open)
}

/// Returns a note for each subscription whose receiver has not accepted notifications about the present instance.
pub(crate) async fn unaccepted(store: &Store, target: &TargetHead) -> FlowResult<Vec<String>> {
    let name = commands::target_arguments(&target.kind, &target.name);
    let mut of_receivers: BTreeMap<String, (String, usize)> = BTreeMap::new();
    // The newest is the first. The platform is a wait of the target.
    for OpenNotification { phase, to, given_up, reason, .. } in open_notifications(store, target).await? {
        let (Some(reason), true) = (reason, to != PLATFORM) else { continue };
        let state = if given_up { "was given up" } else { "waits" };
        let note = format!("the notification `{phase}` for {to} {state}: {reason}");
        of_receivers.entry(to).or_insert((note, 0)).1 += 1;
    }
    let retry = |to: &str| to.replacen("subscription", "ebb subscription retry", 1);
    let shown = |(to, (note, count)): (String, (String, usize))| {
        format!("{note}; {count} in all, see `ebb history {name}`; to send again: `{}`", retry(&to))
    };
    Ok(of_receivers.into_iter().map(shown).collect())
}

/// Returns an entry with its document, or `None` if it does not exist or belongs to another instance than `only`.
pub(crate) async fn get(
    env: &Env,
    key: TargetKey<'_>,
    id: &str,
    only: Option<&str>,
) -> FlowResult<Option<HistoryDetail>> {
    let found = if is_entry_id(id) { env.store.read_history(key, id).await? } else { None };
    match found.filter(|entry| only.is_none_or(|uid| entry.uid == uid)) {
        Some(entry) => shown(env, entry).await,
        None => Ok(None),
    }
}

/// Returns an entry for people, or `None` if its run has not begun at its time, or was removed.
async fn shown(env: &Env, item: HistoryItem) -> FlowResult<Option<HistoryDetail>> {
    let (id, mut change, mut by, mut run) = (item.id(), item.change, item.by, None);
    if let Some(of) = &item.run {
        let present = env.store.read_run(of).await?;
        let Some(present) = present.filter(|run| run.facts.started == item.at) else { return Ok(None) };
        by.clone_from(&present.facts.by);
        if matches!(change, HistoryChange::Deleted | HistoryChange::Expired) {
            let is_ttl = by.as_deref() == Some(TTL);
            change = if is_ttl { HistoryChange::Expired } else { HistoryChange::Deleted };
        }
        run = Some(summary(env, of, &present.head).await);
    }
    let entry = HistoryEntry {
        id,
        time: rfc3339(item.at),
        change,
        by,
        by_name: None,
        uid: item.uid,
        generation: item.generation,
        run,
        reason: item.reason,
        units: item.units,
        plugins: item.plugins,
        document: item.document.as_ref().map(|text| digest(text.as_bytes())),
    };
    Ok(Some(HistoryDetail { entry, text: item.document }))
}

async fn summary(env: &Env, run: &RunId, head: &HeadState) -> HistoryRun {
    let (id, hook, notified) = (run.to_string(), run.hook().to_string(), head.notified.map(rfc3339));
    // Only the plan shows which failures are tolerated. Without it, none is.
    let loaded = if head.failed.is_empty() { None } else { Run::load(env, run).await.ok().flatten() };
    let graph = loaded.map(|run| run.graph().clone()).unwrap_or_default();
    HistoryRun { id, hook, state: runs::state(&graph, head), notified }
}

/// The runs of a list that are requested. The default selects all of living targets.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub(crate) struct RunFilter {
    /// The kind of the targets. By default all kinds.
    #[param(pattern = "^[a-z][a-z0-9-]{0,62}$")]
    kind: Option<String>,
    /// The name of a target. Needs `kind`.
    name: Option<String>,
    /// Lists runs of gone targets instead of active ones.
    gone: bool,
    /// Lists only runs in this state.
    state: Option<RunState>,
    /// Lists only runs of this hook, such as `preStart`, `update-2` or the name of an event.
    hook: Option<String>,
    /// Lists only runs that began at this time or later, as in RFC 3339.
    #[param(format = DateTime)]
    since: Option<String>,
    /// The `nextToken` of the previous page.
    pub(crate) next_token: Option<String>,
}

impl RunFilter {
    fn earliest(&self) -> Result<Timestamp, FieldError> {
        let Some(since) = &self.since else { return Ok(Timestamp(0)) };
        let problem = || FieldError { field: "since", problem: "is not a time as in RFC 3339".to_owned() };
        parse_rfc3339(since).ok_or_else(problem)
    }

    fn selects(&self, run: &HistoryRun) -> bool {
        self.state.is_none_or(|state| run.state == state) && self.hook.as_ref().is_none_or(|hook| run.hook == *hook)
    }
}

/// Returns runs of the present instances of a page of the targets that `access` covers. `token` is the `nextToken` of the
/// previous page in clear. A wrong parameter is rejected.
pub(crate) async fn runs(
    env: &Env,
    filter: &RunFilter,
    access: &TargetAccess,
    token: Option<&str>,
) -> HttpResult<RunPage> {
    let (kind, store) = (filter.kind.as_deref(), &env.store);
    let earliest = filter.earliest()?;
    let covers = |target: &TargetHead| access.covers(target.owner.as_deref(), &target.labels);
    let list = if filter.gone { TargetList::Gone } else { TargetList::Active };
    let ListPage { targets: own, next, .. } = match (kind, filter.name.as_deref()) {
        (Some(kind), Some(name)) => {
            lifecycle::kind(kind)?;
            token.map(targets::cursor).transpose()?;
            let targets = store.read_target(TargetKey::new(kind, name)).await?.into_iter().filter(covers).collect();
            ListPage { targets, ..ListPage::default() }
        }
        (None, Some(_)) => {
            let problem = "needs the parameter `kind`".to_owned();
            return Err(FieldError { field: "name", problem }.into());
        }
        (_, None) => targets::selected(store, (list, kind), token, TARGETS, covers).await?,
    };
    let ids = own.iter().flat_map(targets::runs_of).collect::<Vec<RunId>>();
    let read = futures::stream::iter(ids).map(|id| async move {
        let Some(RunHead { head, facts }) = store.read_run(&id).await? else { return Ok(None) };
        let run = summary(env, &id, &head).await;
        if !filter.selects(&run) || facts.started < earliest {
            return Ok(None);
        }
        let RunFacts { kind, name, uid, started, by, .. } = facts;
        Ok::<_, FlowError>(Some(ListedRun { kind, name, uid, started: rfc3339(started), by, run }))
    });
    let listed: Vec<Option<ListedRun>> = read.buffered(READS).try_collect().await?;
    Ok(RunPage {
        runs: listed.into_iter().flatten().collect(),
        next_token: next.map(|(kind, name)| format!("{kind}/{name}")),
    })
}
