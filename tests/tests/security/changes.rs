//! The feed of changed targets, and what polls cost.

use ebb_flow::instance::change_watch;
use ebb_protocol::ChangeList;
use ebb_store::suite::Meter;
use ebb_tests::virtual_clock::ManualClock;

use crate::harness::*;

const OPERATOR: &str = "an-operator-of-the-tests";
/// The milliseconds between two polls of a page.
const POLL: u64 = 15_000;

/// An instance of the function `api` with a clock of its own, whose requests to the table are counted.
pub(super) struct Watcher {
    http: reqwest::Client,
    env: Arc<Env>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) meter: Arc<Meter>,
    pub(super) url: String,
}

impl Watcher {
    /// Starts the instance 20 s after the present time.
    pub(super) async fn start(harness: &Harness) -> Self {
        let (clock, meter) = (Arc::new(ManualClock::at(now().0 + 20_000)), Arc::<Meter>::default());
        let store = Arc::new(harness.stack().store().observed(meter.clone()));
        let own = harness.stack().env();
        let settings = fakes::settings("http://127.0.0.1", None, Millis(1_000));
        let env = fakes::env(store, own.egress.clone(), own.queue.clone(), settings);
        let env = Arc::new(Env { clock: clock.clone(), ..env });
        let tokens = ApiTokens::new([(OPERATOR, ApiRole::Operator)]);
        let url = serve(ebb_api::api(harness.functions(env.clone(), tokens))).await;
        Self { http: harness.http.clone(), env, clock, meter, url }
    }

    async fn poll(&self, token: &str, since: Option<&str>) -> ApiReply {
        let query = since.map(|since| format!("?since={since}")).unwrap_or_default();
        ApiClient::new(&self.http, &self.url, token).get(&format!("/v1/changes{query}")).await
    }

    async fn changes(&self, token: &str, since: Option<&str>) -> ChangeList {
        self.poll(token, since).await.is(200).json()
    }
}

pub(crate) async fn the_feed_names_changed_targets() {
    let harness = Harness::simple().await;
    let ann = harness.token("ann", &["read:own", "targets:write:own"]).await;
    // The functions of the stack know of the watch that begins here.
    let first: ChangeList = harness.get("/v1/changes").await.is(200).json();
    assert_eq!((first.seq.as_str(), first.reload, first.targets.len()), ("0", true, 0));
    let watcher = Watcher::start(&harness).await;
    let (seen, own) = (watcher.changes(OPERATOR, None).await, watcher.changes(&ann, None).await);
    assert!(seen.reload && seen.seq != "0" && own.reload && own.seq != seen.seq, "{seen:?} {own:?}");
    harness.ready("a", "simple").await;
    watcher.clock.advance(1_500);
    let news = watcher.changes(OPERATOR, Some(&seen.seq)).await;
    assert_eq!((news.reload, news.targets.join(" ")), (false, "sandbox/a".to_owned()));
    let hidden = watcher.changes(&ann, Some(&own.seq)).await;
    assert!(!hidden.reload && hidden.targets.is_empty() && hidden.seq != news.seq, "{hidden:?}");
    harness.with_token(&ann, "POST /v1/targets", Some(simple_request("b", ""))).await.is(202);
    harness.phase("b", TargetPhase::Ready).await;
    watcher.clock.advance(1_500);
    assert_eq!(watcher.changes(&ann, Some(&own.seq)).await.targets.join(" "), "sandbox/b");
    for (token, since) in [(ann.as_str(), seen.seq.as_str()), (OPERATOR, own.seq.as_str()), (OPERATOR, "x")] {
        watcher.poll(token, Some(since)).await.is_problem(400, "invalid-query");
    }
    // After a pause, changes may be missing.
    watcher.clock.advance(300_000);
    let again = watcher.changes(OPERATOR, Some(&news.seq)).await;
    assert!(again.reload && again.seq == "0", "{again:?}");
    watcher.clock.advance(POLL);
    let settled = watcher.changes(OPERATOR, Some(&again.seq)).await;
    assert!(settled.reload && settled.seq != "0", "{settled:?}");
}

/// Polls without news share half a read unit, and transitions do not wait for each other's writes of the feed.
pub(crate) async fn the_feed_costs_little() {
    let harness = Harness::new().await;
    let watcher = Watcher::start(&harness).await;
    watcher.changes(OPERATOR, None).await;
    watcher.clock.advance(POLL);
    let seen = watcher.changes(OPERATOR, None).await;
    watcher.meter.take();
    for _ in 0..20 {
        watcher.clock.advance(POLL);
        for _ in 0..10 {
            assert_eq!(watcher.changes(OPERATOR, Some(&seen.seq)).await, ChangeList { reload: false, ..seen.clone() });
        }
    }
    let usage = watcher.meter.take();
    assert_eq!(usage.read_units, 10.0, "{usage:?}");
    // A watch is renewed every 30 s at most.
    assert!((1.0..=10.0).contains(&usage.write_units), "{usage:?}");
    let names: Vec<String> = (0..20).map(|number| format!("t{number}")).collect();
    for _ in 0..5 {
        let notes = names.iter().map(|name| change_watch::note(&watcher.env, TargetKey::new("sandbox", name)));
        futures::future::join_all(notes).await;
    }
    // A write that ends before the next change is noted is not shared.
    let usage = watcher.meter.take();
    assert!((5.0..100.0).contains(&(usage.write_units + usage.refused_write_units as f64)), "{usage:?}");
    watcher.clock.advance(1_500);
    assert_eq!(watcher.changes(OPERATOR, Some(&seen.seq)).await.targets.len(), 20);
}
