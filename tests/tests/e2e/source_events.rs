//! `kill -9` of `ebb dev` while senders post events of a source. No event with a response is lost.

use std::sync::Arc;

use ebb_protocol::api::SourceResponse;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::RwLock;

use crate::prelude::*;

/// Each target has a creation, a repetition of it and, if its number is odd, a deletion.
const TARGETS: usize = 400;
const SENDERS: usize = 8;
const KILLS: usize = 10;
const SOURCE: &str = r#"
verify: {bearer: {secret: SENDER}}
id: ${string(body.id)}
target: {kind: sandbox, name: "t-${string(body.number)}"}
document: {ttl: 9h}
events:
  - when: ${body.delete}
    time: ${body.time}
    delete: {}
  - when: ${true}
    time: ${body.time}
    apply: {}
"#;

/// Posts an event until it has a response.
async fn post(url: &RwLock<String>, http: &reqwest::Client, body: &Value) -> SourceResponse {
    loop {
        let to = format!("{}/v1/sources/events", url.read().await);
        if let Ok(response) = http.post(to).bearer_auth("a secret of the test").json(body).send().await
            && response.status().is_success()
            && let Ok(response) = response.json().await
        {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_with_a_response_is_applied_after_kills() {
    let workdir = Workdir::new();
    let mut dev = workdir.dev().await;
    workdir.write_secrets(&json!({"SENDER": "a secret of the test"}));
    workdir.apply("source", &crate::platform::named("Source", "events", SOURCE)).await;
    let http = reqwest::Client::new();
    let url = Arc::new(RwLock::new(dev.url.clone()));
    let begun = Instant::now();
    let senders = (0..SENDERS).map(|sender| {
        let (url, http) = (Arc::clone(&url), http.clone());
        tokio::spawn(async move {
            for number in (sender..TARGETS).step_by(SENDERS) {
                for (step, delete) in [(1, false), (2, false), (3, true)] {
                    if !delete || number % 2 == 1 {
                        let id = format!("{number}-{step}");
                        post(&url, &http, &json!({"id": id, "number": number, "time": step, "delete": delete})).await;
                    }
                }
            }
        })
    });
    let senders: Vec<_> = senders.collect();
    let mut random = StdRng::seed_from_u64(1);
    let mut kills = 0;
    while kills < KILLS && senders.iter().any(|sender| !sender.is_finished()) {
        tokio::time::sleep(Duration::from_millis(random.random_range(50..600))).await;
        dev.kill().await;
        dev = workdir.dev_again().await;
        *url.write().await = dev.url.clone();
        kills += 1;
    }
    assert!(join_all(senders).await.iter().all(Result::is_ok));
    println!("{} events and {kills} kills in {:?}", TARGETS * 2 + TARGETS / 2, begun.elapsed());
    assert!(kills >= 3, "{kills} kills");
    for number in 0..TARGETS {
        let phase = if number % 2 == 1 { TargetPhase::Gone } else { TargetPhase::Ready };
        workdir.reaches(&format!("t-{number}"), phase).await;
    }
    dev.stop().await;
}
