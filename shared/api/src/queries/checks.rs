//! Checks table, indexes, bucket, queue, schedule, secrets and relays by using them as the functions do.
//!
//! `sweep` is another function. It writes a mark at each message of the check and at each event of the schedule. The
//! check reads these marks.

use std::fmt::Display;
use std::time::Duration;

use ebb_documents::{ConnectionDoc, SourceDoc};
use ebb_protocol::api::{CheckList, HealthCheck, SourceDetail};
use ebb_store::{ClusterFaultKind, HealthMark, NamedKind, Store, TargetList};
use tokio::time::Instant;

use crate::queries::named_documents::StoredKind as _;
use crate::queries::{clusters, connections};
use ebb_flow::env::Env;
use ebb_flow::instance::outbox;
use ebb_flow::source::delivery;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Age in milliseconds from which the last sweep, or a due item, is late. The schedule has an event per minute.
const LATE_MS: u64 = 300_000;
/// Maximum time in milliseconds from a message to the mark of `sweep`, with a cold start.
const MAX_DELIVERY_MS: u64 = 8_000;
const MARK_INTERVAL: Duration = Duration::from_millis(200);
/// The time within which the plans of targets are read. The others are not checked.
const PLANS_TIMEOUT: Duration = Duration::from_secs(5);
const OBJECT: &str = "checks/check";

/// Runs all checks at the same time.
pub async fn all(env: &Env, store: &Store) -> CheckList {
    let now = env.now();
    let results = futures::join!(
        check("table", async {
            store.put_mark(HealthMark::Table, now).await.map_err(reason)?;
            // A concurrent check may have written a later mark.
            if store.read_mark(HealthMark::Table).await.map_err(reason)?.is_some_and(|read| read >= now) {
                Ok("written and read".to_owned())
            } else {
                Err("a read does not return the item that was written".to_owned())
            }
        }),
        check("list-index", async {
            let found = store.list_page(TargetList::Active, None, None, 1).await.map_err(reason)?.targets;
            Ok(if found.is_empty() { "answers; no targets" } else { "answers" }.to_owned())
        }),
        check("due-index", async {
            let due = store.query_due(now, 1).await.map_err(reason)?;
            Ok(if due.is_empty() { "answers; nothing is due" } else { "answers" }.to_owned())
        }),
        check("sweep", async {
            let ago = store.read_mark(HealthMark::Schedule).await.map_err(reason)?.map(|at| now.since(at).0);
            let ago =
                ago.ok_or("the schedule has not invoked it yet; repeat the check a minute after the deployment")?;
            if ago >= LATE_MS {
                return Err(format!(
                    "the schedule has not invoked it for {} s; check the schedule and the log of `sweep`",
                    ago / 1000
                ));
            }
            let due = store.query_due(now, 1).await.map_err(reason)?;
            let late = due.first().map_or(0, |(due, _)| now.0.saturating_sub(due.0));
            let seconds = late / 1000;
            match late {
                0 => Ok("invoked each minute; nothing is overdue".to_owned()),
                late if late < LATE_MS => Ok(format!("invoked each minute; overdue by {seconds} s")),
                _ => Err(format!("overdue by {seconds} s; check the log of `sweep`")),
            }
        }),
        check("bucket", async {
            store.bucket.put_object(OBJECT, now.0.to_string().into_bytes()).await.map_err(reason)?;
            let read = store.bucket.get_object(OBJECT).await.map_err(reason)?;
            let read = read.and_then(|read| String::from_utf8_lossy(&read).parse::<u64>().ok());
            // A concurrent check may have written a later time.
            if read.is_some_and(|read| read >= now.0) {
                Ok("written and read".to_owned())
            } else {
                Err("a read does not return the object that was written".to_owned())
            }
        }),
        check("queue", async {
            env.queue.check().await?;
            while store.read_mark(HealthMark::Queue).await.map_err(reason)?.is_none_or(|at| at < now) {
                if env.now().since(now).0 > MAX_DELIVERY_MS {
                    let seconds = MAX_DELIVERY_MS / 1000;
                    return Err(format!(
                        "`sweep` did not receive a message within {seconds} s; check its log and the dead-letter queue"
                    ));
                }
                tokio::time::sleep(MARK_INTERVAL).await;
            }
            Ok("`sweep` received a message".to_owned())
        }),
        check("secrets", Box::pin(secrets(env, store))),
        relays(env, store),
    );
    let (table, list, due, sweep, bucket, queue, secrets, relays) = results;
    CheckList {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now_ms: env.now().0,
        callback_url: env.settings.callback_url.clone(),
        checks: [table, list, due, sweep, bucket, queue, secrets].into_iter().chain(relays).collect(),
    }
}

async fn check(name: &str, steps: impl Future<Output = Result<String, String>>) -> HealthCheck {
    let began = Instant::now();
    let result = tokio::time::timeout(TIMEOUT, steps).await;
    let result = result.unwrap_or_else(|_| Err(format!("no response within {} s", TIMEOUT.as_secs())));
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let passed = result.is_ok();
    let (Ok(detail) | Err(detail)) = result;
    HealthCheck { name: name.to_owned(), passed, detail: ebb_protocol::limits::message(&detail), duration_ms }
}

fn reason(error: impl Display) -> String {
    error.to_string()
}

/// Checks the secrets of connections and sources, those of subscriptions without a connection, and the connections that
/// sources and living targets need.
async fn secrets(env: &Env, store: &Store) -> Result<String, String> {
    let mut problems = Vec::new();
    for item in store.list_documents(NamedKind::Connection).await.map_err(reason)? {
        let info = ConnectionDoc::detail(env, item).await.map_err(reason)?.info;
        problems.extend(info.problem.or(info.unreadable).map(|why| format!("connection {}: {why}", info.name)));
    }
    for item in store.list_documents(NamedKind::Source).await.map_err(reason)? {
        let SourceDetail { name, problem, .. } = SourceDoc::detail(env, item).await.map_err(reason)?;
        let why = delivery::check_secret(env, &name).await.err().into_iter().chain(problem);
        problems.extend(why.map(|why| format!("source {name}: {why}")));
    }
    for rule in outbox::rules(env).await.map_err(reason)?.iter().filter(|rule| rule.to.connection().is_none()) {
        let problem = outbox::receiver_info(env, rule).await.map_err(reason)?.problem;
        problems.extend(problem.map(|why| format!("subscription {}: {why}", rule.name)));
    }
    let lacking = tokio::time::timeout(PLANS_TIMEOUT, connections::lacking(env)).await.ok();
    problems.extend(lacking.transpose().map_err(reason)?.flatten());
    if problems.is_empty() { Ok("no problem was found".to_owned()) } else { Err(problems.join("; ")) }
}

async fn relays(env: &Env, store: &Store) -> Vec<HealthCheck> {
    let connected = env.relay.clusters().await;
    // Without a response of the table, another check fails.
    let denials = &store.read_faults(ClusterFaultKind::Denial).await.unwrap_or_default();
    let outages = &clusters::outages(store).await.unwrap_or_default();
    let mut others = store.list_clusters().await.unwrap_or_default();
    others.retain(|item| !connected.iter().any(|cluster| cluster.name == item.name));
    let checks = connected.into_iter().map(move |cluster| async move {
        let (name, recorded) = (format!("relay/{}", cluster.name), outages.get(&cluster.name).cloned());
        let steps = async {
            let mut about = clusters::about(env, cluster, recorded).await;
            clusters::explain(env, &mut about, denials);
            match (about.error, about.outage) {
                (Some(error), _) => Err(error),
                // The relay responds, but cannot execute tasks.
                (None, Some(outage)) => Err(format!("degraded since {}: {}", outage.since, outage.reason)),
                (None, None) => Ok(format!("version {}", about.version.unwrap_or_default())),
            }
        };
        check(&name, steps).await
    });
    let mut checks = futures::future::join_all(checks).await;
    for item in others {
        let error = clusters::unconnected(env, &item).error.unwrap_or_default();
        checks.push(check(&format!("relay/{}", item.name), std::future::ready(Err(error))).await);
    }
    checks
}
