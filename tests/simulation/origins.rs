//! What exists at the senders of sources. Some sources have a document that lists it, and some things are closed without an
//! event.

use ebb_protocol::TargetStopCause;
use ebb_store::{ListFindings, SourceWatch};

use super::*;
use crate::fakes::SECRET;

/// The URL of all senders, before the name of a source.
pub(super) const SENDERS: &str = "https://sender.test/";
/// The begin of the delivery by which a list ends a target.
pub(super) const MISSING: &str = "missing ";
/// The things of a page.
const PAGE: usize = 3;
const RESPONSE_MS: u64 = 20;
/// The longest time for which lists are away, and the longest wait until the next request.
const AWAY_MS: u64 = 3_600_000;
const LIMITED_SECONDS: u64 = 90;
/// The event that opens a thing arrives within this time.
const ARRIVAL_MS: u64 = 120_000;

#[derive(Clone, Default)]
pub(super) struct SimOrigins {
    /// Since when each thing is open, or `None` if it is closed.
    pub(super) things: BTreeMap<DesiredKey, Option<u64>>,
    away_until: u64,
    /// The number of targets that lists have ended.
    pub(super) ended: u64,
}

impl SimOrigins {
    /// Opens or closes a thing. One with a UID is an instance, which stays closed.
    pub(super) fn note(&mut self, key: &DesiredKey, opened: Option<u64>) {
        let thing = self.things.entry(key.clone()).or_insert(opened);
        let is_over = thing.is_none() && key.uid.is_some();
        *thing = opened.filter(|_| !is_over).map(|at| thing.unwrap_or(at));
    }
}

/// Returns true if a thing is that of a target.
fn is_of(key: &DesiredKey, target: &TargetHead) -> bool {
    let is_named = key.uid.as_ref().is_none_or(|uid| *uid == target.uid);
    is_named && key.name == target.name && target.source.as_ref() == Some(&key.source)
}

impl Ledger {
    /// A list ends an instance only if its thing is closed, or was until just now.
    pub(super) fn check_listed(&self, state: &TableState, seen: &TargetHead, target: &TargetHead) {
        let ends = seen.uid == target.uid && seen.phase.is_alive() && !target.phase.is_alive();
        let decides = |one: &&DesiredTarget| one.delivery.starts_with(MISSING) && one.result.is_none();
        let mut lists = state.desired.values().filter(decides).map(|list| &list.key);
        let list = lists.find(|key| ends && target.stop_cause == TargetStopCause::Deleted && is_of(key, seen));
        let Some(key) = list else { return };
        let mut ledger = self.state();
        ledger.origins.ended += 1;
        let opened = ledger.origins.things.get(key).copied().flatten();
        drop(ledger);
        if opened.is_some_and(|at| self.runtime.elapsed() > at + ARRIVAL_MS) {
            self.report_violation(format!("a list of {} ends {}, whose thing is open", key.source, seen.uid));
        }
    }
}

/// Returns the living targets of sources whose things are closed, except those whose deletion was refused.
pub(super) fn orphans(simulation: &Simulation) -> Vec<String> {
    let (table, ledger) = (simulation.table.state(), simulation.ledger.state());
    let lives = |key: &DesiredKey| {
        let target = table.targets.get(&key.name).filter(|target| target.phase.is_alive() && is_of(key, target));
        let is_wanted = table.desired.get(key).is_none_or(|state| !state.is_delete);
        is_wanted && target.is_some_and(|target| target.refused_deletion.is_none())
    };
    let closed = ledger.origins.things.iter().filter(|(key, opened)| opened.is_none() && lives(key));
    closed.map(|(key, _)| format!("{key:?} lives, and its thing is closed")).collect()
}

impl Simulation {
    /// Stores the documents of sources that list what exists at their senders, and makes the sources due.
    pub fn observe_sources(&self, sources: &[&str]) {
        if sources.is_empty() {
            return;
        }
        let changed = self.runtime.now();
        let put = |kind, name: &str, document: String| {
            let document = NamedDocument { name: name.to_owned(), document, changed };
            self.table.put_documents(kind, std::iter::once(document));
        };
        let (origin, names) = (SENDERS.trim_end_matches('/'), sources.join(", "));
        let connection = format!(
            "apiVersion: ebb.dev/v1\nkind: Connection\nname: origin\norigin: {origin}\n\
             auth: {{bearer: {{secret: {SECRET}}}}}\nsources: [{names}]\n"
        );
        put(NamedKind::Connection, "origin", connection);
        for source in sources {
            put(NamedKind::Source, source, include_str!("origin.yaml").replace("NAME", source));
            let source = (*source).to_owned();
            let watch = SourceWatch { source, due: changed, version: 1, ..SourceWatch::default() };
            self.table.edit(|store| async move { store.put_watch(&watch, &ListFindings::default()).await });
        }
    }

    /// Opens the thing of a target at the sender of a source, or closes it without an event.
    pub fn set_thing(&self, source: &str, name: &str, is_open: bool) {
        if !is_open {
            self.platform.will_delete(source, name, None);
        }
        let (source, kind, name) = (source.to_owned(), KIND.to_owned(), name.to_owned());
        let opened = is_open.then(|| self.runtime.elapsed());
        self.ledger.state().origins.note(&DesiredKey { source, kind, name, uid: None }, opened);
    }
}

impl SimExecutor {
    /// Responds to a request to a URL that begins with [`SENDERS`], as the server of the sender.
    pub(super) async fn show_origin(&self, path: &str) -> CallResult<HttpResponse> {
        let response = self.shown(path);
        let HttpResponse { status, body, .. } = &response;
        self.ledger.trace(|| format!("{status} for {path} of senders: {}", String::from_utf8_lossy(body)));
        self.runtime.sleep(RESPONSE_MS).await;
        self.answer(FaultKind::ResponseLost, response).await
    }

    fn shown(&self, path: &str) -> HttpResponse {
        let mut state = self.ledger.state();
        if self.is_away(FaultKind::ListAway, &mut state.origins.away_until, AWAY_MS) {
            return HttpResponse::new(503, "");
        }
        if let Some(seconds) = self.inject_below(FaultKind::ListLimited, LIMITED_SECONDS) {
            return retry_after(429, seconds);
        }
        let (place, page) = path.split_once("?page=").unwrap_or((path, "0"));
        let thing = |key: &DesiredKey, state: &str| json!({ "name": key.name, "uid": key.uid, "state": state });
        let mut things = state.origins.things.iter();
        if let [source, name, uid] = place.split('/').collect::<Vec<_>>()[..] {
            let is_meant = |key: &DesiredKey| key.uid.as_deref().is_none_or(|of| of == uid) && key.name == name;
            // Closed things of some names are not found.
            return match things.find(|(key, _)| key.source == source && is_meant(key)) {
                Some((key, Some(_))) => HttpResponse::new(200, thing(key, "open").to_string()),
                Some((key, None)) if name < "t2" => HttpResponse::new(200, thing(key, "closed").to_string()),
                _ => HttpResponse::new(404, ""),
            };
        }
        let is_foreign = self.faults.should_inject(FaultKind::ListForeign);
        let is_cut = self.faults.should_inject(FaultKind::ListCut);
        let open = things.filter(|(key, opened)| opened.is_some() && (key.source == place) != is_foreign);
        let page: usize = page.parse().unwrap_or(0);
        let rest: Vec<Value> = open.map(|(key, _)| thing(key, "open")).skip(page * PAGE).collect();
        let has_next = rest.len() > PAGE && !is_cut;
        let count = if is_cut { rest.len().min(PAGE) / 2 } else { PAGE };
        let body = Value::from_iter(rest.into_iter().take(count));
        let link = has_next.then(|| format!("<{SENDERS}{place}?page={}>; rel=\"next\"", page + 1));
        let headers = link.map(|link| ("link".to_owned(), link)).into_iter().collect();
        HttpResponse { headers, ..HttpResponse::new(200, body.to_string()) }
    }
}
