//! What a version that is put back does with what a newer one has stored.

use std::collections::{BTreeMap, BTreeSet};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_engine::Moment::BeforeReady;
use ebb_engine::TargetPhase;
use ebb_flow::complete::Taken;
use ebb_flow::http::{self, Server};
use ebb_flow::ports::Clock as _;
use ebb_flow::sweep::{self, When};
use ebb_store::{Due, QueryDue as _};
use ebb_tests::lines::Lines;
use ebb_wire::cloudevents::{self, Asked};
use ebb_wire::lifecycle::Lifecycle;
use ebb_wire::sign::{self, MessageId, Secret};
use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib;
use serde_json::json;
use tower::ServiceExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::fixture::{Item, Stored};
use crate::names::{NEWER, key};
use crate::world::{KIND, WEBHOOK_SECRET, World, made, run};
use crate::{later, written};

/// What is said of a plan of [`newer`].
const UNKNOWN: &str = "format version 2; this program reads version 1";

/// The same with all plans in the format `to` instead of `from`.
fn plans(stored: &Stored, from: u32, to: u32) -> Stored {
    let [from, to] = [from, to].map(|version| format!("\"v\":{version}}}"));
    let other = |text: &str| {
        assert!(text.ends_with(&from), "{text}");
        text.replace(&from, &to)
    };
    let mut stored = stored.clone();
    for (_, text) in stored.bucket.iter_mut().filter(|(key, _)| key.starts_with("plans/")) {
        *text = other(text);
    }
    for item in stored.table.iter_mut().filter(|item| key(item, "pk").starts_with("p#")) {
        let bytes = |value: &serde_json::Value| STANDARD.decode(value["B"].as_str().unwrap()).unwrap();
        if let Some(body) = item.get_mut("b") {
            let text = String::from_utf8(bytes(body)).unwrap();
            *body = json!({"B": STANDARD.encode(other(&text))});
        }
        if let Some(packed) = item.get_mut("z") {
            let text = String::from_utf8(decompress_to_vec_zlib(&bytes(packed)).unwrap()).unwrap();
            *packed = json!({"B": STANDARD.encode(compress_to_vec_zlib(other(&text).as_bytes(), 6))});
        }
    }
    stored
}

/// What a version has stored that writes plans of a later format.
fn newer() -> Stored {
    plans(&written(), 1, 2)
}

/// The partitions whose items are not the same.
fn changed(before: &Stored, after: &Stored) -> BTreeSet<String> {
    let items = |stored: &Stored| -> BTreeMap<(String, String), Item> {
        let items = stored.table.iter().cloned();
        items.map(|item| ((key(&item, "pk").to_owned(), key(&item, "sk").to_owned()), item)).collect()
    };
    let (before, after) = (items(before), items(after));
    let keys = before.keys().chain(after.keys()).filter(|key| before.get(key) != after.get(key));
    keys.map(|(partition, _)| partition.clone()).collect()
}

/// The partition of the due runs and targets.
fn partition(due: &Due) -> String {
    match due {
        Due::Run(run) => format!("r#{run}"),
        Due::Target(kind, name) => format!("t#{kind}#{name}"),
    }
}

/// The items of `before`; those of `partitions` are due when they are in `after`.
fn with_dues_of(after: &Stored, before: &Stored, partitions: &BTreeSet<String>) -> Stored {
    let mut stored = before.clone();
    for item in stored.table.iter_mut().filter(|item| item.contains_key("due")) {
        let (pk, sk) = (key(item, "pk").to_owned(), key(item, "sk").to_owned());
        let of = after.table.iter().find(|item| key(item, "pk") == pk && key(item, "sk") == sk).unwrap();
        // A run keeps its version, with which writes of others are compared.
        let names: &[&str] = if pk.starts_with("t#") { &["by", "due", "tv"] } else { &["due"] };
        for name in names.iter().filter(|_| partitions.contains(&pk)) {
            item.insert((*name).to_owned(), of[*name].clone());
        }
    }
    stored
}

/// What a function answers.
async fn answer(world: &World, function: fn(Server) -> Router, request: Request<Body>) -> StatusCode {
    function(world.server()).oneshot(request).await.unwrap().status()
}

fn callback(token: &str) -> Request<Body> {
    let request = Request::post("/v1/callbacks").header(header::AUTHORIZATION, format!("Bearer {token}"));
    request.body(Body::from(made("code").to_string())).unwrap()
}

/// The platform ends a life.
fn deletion(world: &World, name: &str) -> Request<Body> {
    let (now, uid) = (world.clock.now(), format!("{name}-1"));
    let event = Lifecycle {
        kind: KIND.to_owned(),
        name: name.to_owned(),
        uid,
        generation: 1,
        document: None,
        routing_key: None,
    };
    let (kind, body) =
        cloudevents::lifecycle("event-1", "https://platform.test", Asked::Deleted, now, &event);
    let secret = Secret::from_bytes(&WEBHOOK_SECRET).unwrap();
    let mut request = Request::post("/v1/events").header(header::CONTENT_TYPE, kind);
    for (name, value) in sign::sign(&secret, &MessageId::parse("event-1").unwrap(), now, &body) {
        request = request.header(name, value);
    }
    request.body(Body::from(body)).unwrap()
}

/// Nothing but when a run is due is written by who cannot read the plan, so it goes on with who can.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_a_later_format_is_left_alone() {
    let (stored, newer) = (written(), newer());
    let world = World::with(&newer).await;
    // On one that knows the format these are taken.
    let known = World::with(&stored).await;
    let token = &stored.outside.tokens["waiting wait"];
    for (world, taken, webhook) in [
        (&world, StatusCode::INTERNAL_SERVER_ERROR, StatusCode::INTERNAL_SERVER_ERROR),
        (&known, StatusCode::NO_CONTENT, StatusCode::ACCEPTED),
    ] {
        assert_eq!(answer(world, http::complete, callback(token)).await, taken);
        assert_eq!(answer(world, http::receive, deletion(world, "waiting")).await, webhook);
    }
    for refused in [world.callback(token, &made("code")).await.map(drop), world.delete("waiting").await] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(UNKNOWN), "{refused}");
    }
    let due = world.store.query_due(world.clock.now(), usize::MAX).await.unwrap();
    let swept = world.sweep().await.unwrap();
    assert!(swept.looked > 0 && swept.failed == swept.looked, "{swept:?}");
    let left = Stored::of(&world).await;
    let put_off: BTreeSet<String> = due.iter().map(|(_, due)| partition(due)).collect();
    assert_eq!(changed(&newer, &left), put_off);
    assert_eq!(changed(&with_dues_of(&left, &newer, &put_off), &left), BTreeSet::new());
    assert_eq!(left.bucket, newer.bucket);

    let back = Stored { outside: stored.outside.clone(), ..plans(&left, 2, 1) };
    let went = later::goes_on(&back).await;
    assert!(went.is_ok(), "{:#}", went.unwrap_err());
}

/// `sweep` makes an unreadable item due again later, and logs it. It writes nothing else of the item.
#[tokio::test(flavor = "multi_thread")]
async fn what_sweep_cannot_read_is_put_off() {
    let newer = newer();
    let world = World::with(&newer).await;
    world.clock.pass(60_000);
    let due = async |world: &World| world.store.query_due(world.clock.now(), usize::MAX).await.unwrap();
    let mut before = due(&world).await;
    let lines = Lines::default();
    let kept = lines.clone();
    let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || kept.clone()).set_default();
    let swept = world.sweep().await.unwrap();
    drop(log);
    // No plan is needed for what a cluster still holds, nor for a target whose run is looked at by itself.
    let (kept, planless) = ("t#sandbox#kept", ["kept", "unheard", "untold", "cancelled"]);
    before.retain(|(_, due)| {
        !planless.iter().any(|name| *due == Due::Target(KIND.to_owned(), (*name).to_owned()))
    });
    assert!(before.len() >= 10, "{before:?}");
    assert_eq!((swept.looked, swept.failed), (before.len() + planless.len(), before.len()));
    let with = |text: &str| lines.text().lines().filter(|line| line.contains(text)).count();
    assert_eq!((with("stays due"), with("the outcome could not be told")), (before.len(), 2));
    let left = Stored::of(&world).await;
    assert_eq!(due(&world).await, vec![]);
    let mut looked: BTreeSet<String> = before.iter().map(|(_, due)| partition(due)).collect();
    looked.extend(planless.map(|name| format!("t#{KIND}#{name}")));
    assert_eq!(changed(&newer, &left), looked);
    looked.remove(kept);
    let expected = with_dues_of(&left, &newer, &looked);
    assert_eq!(changed(&expected, &left), BTreeSet::from([kept.to_owned()]));

    let world = World::with(&plans(&left, 2, 1)).await;
    world.pass(120_000).await.unwrap();
    assert!(world.outside.told().contains(&"unheard dev.ebb.target.ready.v1".to_owned()));
    for name in ["retrying", "asked"] {
        world.until(name, TargetPhase::Ready).await.unwrap();
    }
}

/// Where it does not know what something stands for, it stops.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_phase_or_verdict_stops() {
    let stored = written();
    let (resting, ninth) = (json!({"S": "resting"}), json!({"N": "9"}));
    let (phase, verdict) = ("unknown phase \"resting\"", "unknown verdict 9");
    for (kind, attribute, value, expected) in
        [("t", "ph", &resting, phase), ("r h", "ph", &resting, phase), ("r u", "v", &ninth, verdict)]
    {
        let newer = stored.with(kind, attribute, value);
        let world = World::with(&newer).await;
        let looked = match kind {
            "t" => world.delete("waiting").await,
            "r h" => world.callback(&stored.outside.tokens["waiting wait"], &made("code")).await.map(drop),
            _ => sweep::sweep_run(&world.env, &run("retrying", BeforeReady), When::Anyway)
                .await
                .map_err(Into::into),
        };
        let refused = looked.unwrap_err().to_string();
        assert!(refused.contains(expected), "{kind}: {refused}");
        assert_eq!(changed(&newer, &Stored::of(&world).await), BTreeSet::new(), "{kind}");
    }
}

/// An older version goes on with items that have attributes which it does not know. A target is written whole and loses
/// them; what else it writes keeps them.
#[tokio::test(flavor = "multi_thread")]
async fn targets_alone_lose_what_an_older_version_does_not_know() {
    let newer = written().of_a_newer_version();
    let went = later::goes_on(&newer).await;
    assert!(went.is_ok(), "{:#}", went.unwrap_err());

    let world = World::with(&newer).await;
    let token = &newer.outside.tokens["waiting wait"];
    assert_eq!(world.callback(token, &made("code")).await.unwrap(), Taken::Accepted);
    let left = Stored::of(&world).await;
    let changed = changed(&newer, &left);
    let (target, run) = ("t#sandbox#waiting", format!("r#{}", run("waiting", BeforeReady)));
    assert_eq!(changed, BTreeSet::from([target.to_owned(), run.clone()]));
    for item in left.table.iter().filter(|item| changed.contains(key(item, "pk"))) {
        assert_eq!(item.contains_key(NEWER), key(item, "pk") == run, "{item:?}");
    }
}
