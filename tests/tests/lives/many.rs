//! Large sandboxes and long lists: an answer about a few things does not read all of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use aws_sdk_dynamodb::types::AttributeValue;
use ebb_engine::Moment;
use ebb_wire::api::{Phase, PluginDetail, TargetPage};
use ebb_wire::cloudevents::Asked;
use ebb_wire::record::Kept;
use serde_json::json;

use crate::world::{Reply, World, eventually, plugin, sandbox};

/// Resources of one sandbox at most.
const RESOURCES: usize = 500;

/// `shown` is the only output that the resource hands on.
const ONE_OF_TWO: &str = r#"
preStart:
  shown: {webhook: {url: "RECEIVER/shown"}, outputs: {id: {value: "${response.body.id}"}}}
  kept: {webhook: {url: "RECEIVER/kept"}, outputs: {text: {value: "${response.body.text}"}}}
outputs: {id: "${units.shown.outputs.id}"}
"#;

/// Outputs that no resource hands on may be missing from the bucket, and the target is ready and shown all the same.
pub(crate) async fn outputs_that_nothing_refers_to_are_not_read() {
    let world = World::new().await;
    world.receiver.on("POST /shown", |_, _| Reply::ok(json!({"id": "the-id"})));
    world.receiver.on("POST /kept", |_, _| Reply::ok(json!({"text": "x".repeat(10_000)})));
    without_its_object(&world, &plugin("two@1.0.0", ONE_OF_TWO), "two").await;
    let target = world.target("a").await.unwrap();
    let outputs = serde_json::to_value(&target.resources["r"].outputs).unwrap();
    assert_eq!(outputs, json!({"id": {"value": "the-id"}}));
    assert_eq!(target.runs[0].units.len(), 2);
}

/// An undo that reads nothing of what its unit made needs no object of the bucket.
pub(crate) async fn an_undo_reads_only_what_it_uses() {
    let world = World::new().await;
    world.receiver.on("POST /make", |_, _| Reply::ok(json!({"text": "x".repeat(10_000)})));
    let text = "preStart:\n  make:\n    webhook: {url: \"RECEIVER/make\"}\n    outputs: {text: {value: \"${response.body.text}\"}}\n\
                postStop:\n  drop: {undoes: make, webhook: {url: \"RECEIVER/drop\"}}\n";
    without_its_object(&world, &plugin("big@1.0.0", text), "big").await;
    world.delete("a").await;
    world.phase("a", Phase::Gone).await;
    assert_eq!(world.receiver.calls("POST /drop").len(), 1);
}

/// Waits until the sandbox `a` of a plugin is ready, and removes the only object of its outputs.
async fn without_its_object(world: &World, document: &str, plugin: &str) {
    world.publish(document).await;
    world.create("a", plugin).await;
    world.phase("a", Phase::Ready).await;
    world.told("a", &["ready"]).await;
    let stored = world.state("a", Moment::BeforeReady).await;
    let kept = stored.records.iter().filter_map(|(_, _, record)| match &record.result.as_ref()?.outputs {
        Kept::Bucket(key) => Some(key.clone()),
        _ => None,
    });
    let kept: Vec<String> = kept.collect();
    assert_eq!(kept.len(), 1, "the outputs are in one object of the bucket");
    world.stack().store().bucket.remove(&kept[0]).await.unwrap();
}

/// The requests of a sandbox with many resources of one plugin.
pub(crate) async fn a_plugin_is_read_once_however_many_resources_have_it() {
    let world = World::new().await;
    world.publish(&plugin("one@1.0.0", "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n")).await;
    let mut data = sandbox("a", "a-uid", "one");
    let mut document = String::from("apiVersion: ebb.dev/v1\nkind: Sandbox\nname: a\nresources:\n");
    for n in 0..RESOURCES {
        writeln!(document, "  r{n}: {{plugin: one}}").unwrap();
    }
    data.document = Some(document);
    world.stack().meter().take();
    world.lifecycle(Asked::Created, &data).await.is(202);
    let requests = world.stack().meter().take().requests;
    // Versions once; the target, its tombstone, the plugin. The rest belongs to units that begin meanwhile.
    let reads: u64 = ["GetItem", "Query"].iter().filter_map(|name| requests.get(name)).sum();
    assert!(reads < 100, "{requests:?}");
    world.phase("a", Phase::Ready).await;
}

/// Targets that are gone are in a list of their own, and hold no plugin.
pub(crate) async fn gone_targets_are_in_nobodys_way() {
    let world = World::new().await;
    world.publish(&plugin("one@1.0.0", "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n")).await;
    let names = async |path: &str| {
        let page: TargetPage = world.get(path).await.is(200).json();
        page.targets.into_iter().map(|target| target.name).collect::<Vec<_>>()
    };
    let holders = async || {
        let detail: PluginDetail = world.get("/v1/plugins/one/versions/1.0.0").await.is(200).json();
        let uses = detail.in_use.into_iter().map(|held| format!("{} {}", held.target, held.resource));
        uses.collect::<Vec<_>>()
    };
    for name in ["a", "b"] {
        world.create(name, "one").await;
        world.phase(name, Phase::Ready).await;
    }
    assert_eq!(names("/v1/targets").await, ["a", "b"]);
    assert_eq!(names("/v1/targets?gone=true").await, Vec::<String>::new());
    assert_eq!(holders().await.len(), 2);
    assert!(holders().await.contains(&"a r".to_owned()));
    world.delete("a").await;
    world.phase("a", Phase::Gone).await;
    // A gone target is listed until the platform has accepted its outcome.
    world.taken("a").await;
    assert_eq!(names("/v1/targets").await, ["b"]);
    assert_eq!(names("/v1/targets?gone=true").await, ["a"]);
    eventually("a releases its plugin", async || (holders().await == ["b r"]).then_some(())).await;
    let withdraw =
        async || world.ask(reqwest::Method::DELETE, "/v1/plugins/one/versions/1.0.0", None).await.status;
    assert_eq!(withdraw().await, 409);
    world.delete("b").await;
    world.phase("b", Phase::Gone).await;
    assert_eq!(withdraw().await, 204);
}

/// A life that ended before its entry was removed does not hold its plugin, and nothing but holders is read.
pub(crate) async fn an_entry_of_a_life_that_is_over_holds_nothing() {
    use ebb_store::{PluginHolder, PluginHolders as _};
    let world = World::new().await;
    world.publish(&plugin("one@1.0.0", "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n")).await;
    world.create("a", "one").await;
    world.phase("a", Phase::Ready).await;
    let store = world.stack().store();
    let entry = |name: &str, uid: &str, since: u64| PluginHolder {
        kind: "sandbox".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        resources: vec!["r".to_owned()],
        cluster: None,
        since: ebb_engine::Timestamp(since),
    };
    let recent = crate::world::now().0;
    let entries = [entry("a", "former", 0), entry("never", "was", 0), entry("begins", "now", recent)];
    let entries: Vec<_> = entries.into_iter().map(|entry| ("one@1.0.0".to_owned(), entry)).collect();
    store.hold_plugins(&entries).await.unwrap();
    let detail: PluginDetail = world.get("/v1/plugins/one/versions/1.0.0").await.is(200).json();
    let targets: Vec<_> = detail.in_use.iter().map(|held| held.target.as_str()).collect();
    assert_eq!(targets, ["a"]);
    // The young one may belong to a target that is about to be written.
    let left = store.list_holders("one@1.0.0", None, 10).await.unwrap();
    let left = left.into_iter().map(|entry| entry.holder.unwrap());
    let left: BTreeMap<_, _> = left.map(|holder| (holder.name, holder.uid)).collect();
    assert_eq!(left, [("a", "a-uid"), ("begins", "now")].map(|(a, b)| (a.to_owned(), b.to_owned())).into());
}

/// A version whose holders cannot be read counts as held, and the damaged items are named.
pub(crate) async fn damaged_holders_are_in_use() {
    let world = World::new().await;
    world.publish(&plugin("one@1.0.0", "preStart: {u: {webhook: {url: \"RECEIVER/u\"}}}\n")).await;
    for name in ["a", "b"] {
        world.create(name, "one").await;
        world.phase(name, Phase::Ready).await;
    }
    let (store, version) = (world.stack().store(), "/v1/plugins/one/versions/1.0.0");
    let life = ebb_wire::id::life("sandbox", "b", "b-uid");
    for (pk, sk) in [("t#sandbox#a", "h"), ("use#one@1.0.0", life.as_str())] {
        let key = [("pk", pk), ("sk", sk)];
        let key = key.map(|(name, value)| (name.to_owned(), AttributeValue::S(value.to_owned()))).into();
        let request = store.dynamo.client().update_item().table_name(store.dynamo.table());
        request.set_key(Some(key)).update_expression("REMOVE uid").send().await.unwrap();
    }
    let detail: PluginDetail = world.get(version).await.is(200).json();
    assert_eq!((detail.in_use.len(), detail.in_use_damaged.len()), (0, 2), "{detail:?}");
    let answer = world.ask(reqwest::Method::DELETE, version, None).await;
    let problem = answer.is_problem(409, "in-use");
    for named in ["sandbox/a", life.as_str()] {
        assert!(problem.detail.contains(named), "{named}: {}", problem.detail);
    }
}
