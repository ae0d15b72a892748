//! Whether table, indexes, bucket, queue, schedule and relays work: each is used as the functions use it. Of `sweep`, which
//! is another function, it is seen by its marks that messages and the schedule reach it.

use std::time::Duration;

use ebb_protocol::api::{CheckList, HealthCheck};
use ebb_store::{HealthMark, HealthMarks, ListTargets, ObjectStore, QueryDue, StoreError, TargetList};
use tokio::time::Instant;

use crate::queries::clusters;
use ebb_flow::env::{Env, HttpStore};

/// How long one part may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is due is not left alone for longer by a schedule of one minute.
const LATE: u64 = 300_000;
/// How long a message may take to come through, in milliseconds, a start of sweep included.
const ARRIVES: u64 = 8_000;
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(200);
/// The key in the bucket, which is always the same.
const OBJECT: &str = "checks/check";

/// Tries each part, all at once.
pub async fn all(env: &Env, store: &dyn HttpStore) -> CheckList {
    let now = env.now();
    let parts = futures::join!(
        part("table", async {
            HealthMarks::put_mark(store, HealthMark::Table, now).await.map_err(reason)?;
            // Somebody else may have made one meanwhile.
            if HealthMarks::read_mark(store, HealthMark::Table).await.map_err(reason)?.is_some_and(|read| read >= now) {
                Ok("written and read".to_owned())
            } else {
                Err("what was written is not read".to_owned())
            }
        }),
        part("list-index", async {
            let found = ListTargets::list_targets(store, TargetList::Active, None, None, 1).await.map_err(reason)?;
            Ok(if found.is_empty() { "asked; no targets" } else { "asked" }.to_owned())
        }),
        part("due-index", async {
            let due = QueryDue::query_due(store, now, 1).await.map_err(reason)?;
            Ok(if due.is_empty() { "asked; nothing is due" } else { "asked" }.to_owned())
        }),
        part("sweep", async {
            let ago =
                HealthMarks::read_mark(store, HealthMark::Schedule).await.map_err(reason)?.map(|at| now.since(at).0);
            match ago {
                None => {
                    return Err("its schedule has never started it; a minute after the deployment it has".to_owned());
                }
                Some(ago) if ago >= LATE => {
                    return Err(format!("its schedule has not started it for {} s: its log says why", ago / 1000));
                }
                Some(_) => {}
            }
            let due = QueryDue::query_due(store, now, 1).await.map_err(reason)?;
            let late = due.first().map_or(0, |(due, _)| now.0.saturating_sub(due.0));
            let seconds = late / 1000;
            match late {
                0 => Ok("started each minute; nothing waits for it".to_owned()),
                late if late < LATE => Ok(format!("what is due waits for {seconds} s")),
                _ => Err(format!(
                    "what is due has waited for {seconds} s: sweep does not run or fails, its schedule and its log say why"
                )),
            }
        }),
        part("bucket", async {
            ObjectStore::put_object(store, OBJECT, now.0.to_string().into_bytes()).await.map_err(reason)?;
            let read = ObjectStore::get_object(store, OBJECT).await.map_err(reason)?;
            let read = read.and_then(|read| String::from_utf8_lossy(&read).parse::<u64>().ok());
            // Somebody else may have written it meanwhile.
            if read.is_some_and(|read| read >= now.0) {
                Ok("written and read".to_owned())
            } else {
                Err("what was written is not read".to_owned())
            }
        }),
        part("queue", async {
            env.queue.check().await?;
            while HealthMarks::read_mark(store, HealthMark::Queue).await.map_err(reason)?.is_none_or(|at| at < now) {
                if env.now().since(now).0 > ARRIVES {
                    return Err(
                        "it takes messages, and sweep does not get them: the log of sweep, and what lies in the \
                                dead-letter queue, say why"
                            .to_owned(),
                    );
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok("a message has come through to sweep".to_owned())
        }),
        relays(env),
    );
    let (table, list, due, sweep, bucket, queue, relays) = parts;
    CheckList {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now_ms: env.now().0,
        callback_url: env.settings.callback_url.clone(),
        checks: [table, list, due, sweep, bucket, queue].into_iter().chain(relays).collect(),
    }
}

async fn part(name: &str, work: impl Future<Output = Result<String, String>>) -> HealthCheck {
    let began = Instant::now();
    let seen = tokio::time::timeout(PATIENCE, work).await;
    let seen = seen.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
    let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let passed = seen.is_ok();
    let (Ok(detail) | Err(detail)) = seen;
    HealthCheck { name: name.to_owned(), passed, detail: ebb_protocol::limits::message(&detail), duration_ms }
}

fn reason(error: StoreError) -> String {
    error.to_string()
}

async fn relays(env: &Env) -> Vec<HealthCheck> {
    let asked = env.relay.clusters().into_iter().map(|cluster| async {
        let name = format!("relay/{}", cluster.name);
        let seen = async {
            let about = clusters::about(env, cluster).await;
            match about.error {
                Some(trouble) => Err(trouble),
                None => Ok(format!("version {}", about.version.unwrap_or_default())),
            }
        };
        part(&name, seen).await
    });
    futures::future::join_all(asked).await
}
