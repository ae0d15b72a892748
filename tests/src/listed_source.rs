//! A source with many targets, and the server of its sender, in virtual time. The requests to the table are counted.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_egress::{CallResult, HttpRequest, HttpResponse};
use ebb_engine::{Millis, TargetPhase, Timestamp};
use ebb_flow::Env;
use ebb_flow::ports::Clock as _;
use ebb_store::suite::{Meter, TableUsage};
use ebb_store::{MemoryTable, NamedDocument, NamedKind, SourceWatch, Store, TargetHead, TargetTransition};
use serde_json::{Value, json};

use crate::fakes;
use crate::simulation::{KIND, lock};
use crate::virtual_clock::{ManualClock, ManualQueue};

/// 22 November 2026, in milliseconds since 1970.
const START: u64 = 1_795_305_600_000;
const MINUTE: u64 = 60_000;
const SOURCE: &str = "listed";
/// The things of a page.
pub const PAGE: usize = 100;
/// The time of a page, and that of the answer about one thing, in milliseconds.
const TIMES: [u64; 2] = [110, 3];

/// The server of a sender.
pub struct ListingSender {
    /// The names of the targets whose things are open.
    pub open: BTreeSet<String>,
    pub requests: u64,
    /// The percentage of the open things that the list contains. The list does not show that it is cut. With 0, the answer is 503.
    pub percent: usize,
}

/// A source whose targets have no resources.
pub struct ListedSource {
    pub store: Store,
    sender: Arc<Mutex<ListingSender>>,
    clock: Arc<ManualClock>,
    meter: Arc<Meter>,
    env: Env,
}

impl ListingSender {
    /// Returns the response to a request, and the time that it takes. No single thing is found.
    fn response(&mut self, url: &str) -> (u64, HttpResponse) {
        self.requests += 1;
        if url.contains("/things/") {
            return (TIMES[1], HttpResponse::new(404, ""));
        }
        let (place, page) = url.split_once("?page=").unwrap_or((url, "0"));
        let (page, shown) = (page.parse().unwrap_or(0), self.open.len() * self.percent / 100);
        let names = self.open.iter().take(shown).skip(page * PAGE).take(PAGE);
        let body: Value = names.map(|name| json!({ "name": name })).collect();
        let next = ((page + 1) * PAGE < shown).then(|| format!("<{place}?page={}>; rel=\"next\"", page + 1));
        let headers = next.map(|next| ("link".to_owned(), next)).into_iter().collect();
        let status = if self.percent > 0 { 200 } else { 503 };
        (TIMES[0], HttpResponse { headers, ..HttpResponse::new(status, body.to_string()) })
    }
}

impl ListedSource {
    /// Returns a source with so many targets, which are an hour old and whose things are open. It is due.
    pub async fn new(targets: usize) -> Self {
        let (clock, meter, store) = (Arc::new(ManualClock::at(START)), Arc::<Meter>::default(), MemoryTable::store());
        let open: BTreeSet<String> = (0..targets).map(|number| format!("n-{number:05}")).collect();
        for name in &open {
            let (source, phase) = (Some(SOURCE.to_owned()), TargetPhase::Ready);
            let head = TargetHead::new(KIND, name, &format!("u-{name}"), Timestamp(START - 60 * MINUTE));
            let head = TargetHead { source, phase, version: 1, ..head };
            assert!(store.move_target(&TargetTransition::new(head, None)).await.unwrap());
        }
        let (source, connection) = (include_str!("listed_source.yaml"), include_str!("listed_connection.yaml"));
        for (kind, name, text) in [(NamedKind::Source, SOURCE, source), (NamedKind::Connection, "sender", connection)] {
            let (name, document, changed) = (name.to_owned(), text.to_owned(), Timestamp(START));
            store.put_document(kind, &NamedDocument { name, document, changed }).await.unwrap();
        }
        let sender = Arc::new(Mutex::new(ListingSender { open, requests: 0, percent: 100 }));
        let (asked, time) = (Arc::clone(&sender), Arc::clone(&clock));
        let server = move |request: HttpRequest| -> CallResult<HttpResponse> {
            let (millis, response) = lock(&asked).response(&request.url);
            time.advance(millis);
            Ok(response)
        };
        let settings = fakes::settings("https://ebb.test", None, Millis(MINUTE));
        let (metered, queue) = (Arc::new(store.observed(meter.clone())), Arc::new(ManualQueue::new(clock.clone())));
        let env = Env { clock: clock.clone(), ..fakes::env(metered, Arc::new(server), queue, settings) };
        ebb_flow::source::observe::begin(&env, SOURCE).await.unwrap();
        Self { store, sender, clock, meter, env }
    }

    pub fn sender(&self) -> MutexGuard<'_, ListingSender> {
        lock(&self.sender)
    }

    /// Returns what its lists have shown.
    pub async fn watch(&self) -> SourceWatch {
        self.store.read_watch(SOURCE).await.unwrap().unwrap_or_default().0
    }

    /// Runs the sweep of each of the next minutes.
    pub async fn sweep(&self, minutes: u64) {
        for _ in 0..minutes {
            self.clock.advance(MINUTE - self.clock.now().0 % MINUTE);
            let swept = Box::pin(ebb_flow::sweep::sweep(&self.env, &self.store, std::future::pending())).await.unwrap();
            assert_eq!(swept.failed, 0);
        }
    }

    /// Runs sweeps until the next complete observation. Returns the number of requests to the sender, and those to the table and
    /// the bucket. The queries for due items are not counted.
    pub async fn observe(&self) -> (u64, TableUsage) {
        let before = self.watch().await.complete;
        self.sender().requests = 0;
        self.meter.take();
        while self.watch().await.complete == before {
            self.sweep(1).await;
            assert!(self.clock.now().0 < START + 1_000 * MINUTE, "there is no complete observation");
        }
        (self.sender().requests, self.meter.take())
    }
}
