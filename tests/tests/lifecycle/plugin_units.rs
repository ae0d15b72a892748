//! Units and collections of InfraKit, with a plugin that makes folders.

use std::path::PathBuf;

use ebb_engine::{Patch, PatchChange};
use ebb_protocol::infrakit::KEY_TAG;
use ebb_protocol::removal::RemovalGrade;
use ebb_tests::infrakit_plugin::{PluginBehavior, perform, router};
use tokio::net::UnixListener;

use crate::harness::*;

const NOTHING: [Vec<Value>; 3] = [Vec::new(), Vec::new(), Vec::new()];

/// Returns the descriptions of all networks, volumes and instances in the folder of a plugin.
fn found(made: &Path) -> [Vec<Value>; 3] {
    ["network", "volume", "instance"].map(|infra_type| {
        let params = json!({"Type": infra_type, "Properties": true});
        let mut result = perform(made, "Instance.DescribeInstances", &params).unwrap();
        serde_json::from_value(result["Descriptions"].take()).unwrap()
    })
}

/// Starts the plugin `files`. Returns the folder with its state, and its behavior.
fn start_plugin(harness: &Harness) -> (PathBuf, Arc<Mutex<PluginBehavior>>) {
    let made = harness.folder().join("made");
    let behavior = Arc::<Mutex<PluginBehavior>>::default();
    let listener = UnixListener::bind(harness.plugin_file("files")).unwrap();
    let router = router(&made, &behavior).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (made, behavior)
}

/// The evidence of a removal: its grade, question and answer.
const CONFIRMED: (RemovalGrade, &str, &str) = (RemovalGrade::Confirmed, "Instance.DescribeInstances", "not listed");
const REPORTED: (RemovalGrade, &str, &str) = (RemovalGrade::Reported, "Instance.Destroy", "OK");

async fn assert_removals(harness: &Harness, name: &str, expected: &[(RemovalGrade, &str, &str)]) {
    let records = harness.state(name, Hook::PostStop).await.records;
    let removals = records.into_iter().filter_map(|(_, _, record)| record.result?.removal);
    let removals: Vec<_> = removals.collect();
    let evidence = removals.iter().map(|it| (it.grade, it.asked.as_deref().unwrap(), it.answered.as_deref().unwrap()));
    assert_eq!(evidence.collect::<Vec<_>>(), expected);
}

/// The plugin refuses to destroy a network or a volume that an instance uses.
pub(crate) async fn a_collection_is_made_once_and_destroyed_in_reverse_order() {
    let mut harness = Harness::new().await;
    let (made, _) = start_plugin(&harness);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/infrakit/infrakit.yaml");
    let document = std::fs::read_to_string(example).unwrap();
    let data = LifecycleData { document: Some(document), ..sandbox("shop", "shop-uid", "none") };
    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    harness.phase("shop", TargetPhase::Ready).await;
    let all = found(&made);
    assert_eq!(all.each_ref().map(Vec::len), [1, 1, 1], "{all:?}");
    let [network, volume, instance] = all.map(|mut one| one.remove(0));
    let properties = &instance["Properties"];
    assert_eq!((&properties["network"], &properties["volume"]), (&network["ID"], &volume["ID"]));
    assert_eq!(instance["Tags"]["infrakit_collection"], "shop");
    let init = made.join("instance").join(instance["ID"].as_str().unwrap()).join("init");
    let gateway = network["Properties"]["gateway"].as_str().unwrap();
    assert!(std::fs::read_to_string(init).unwrap().contains(gateway));

    harness.lifecycle(LifecycleType::Created, &data).await.is(202);
    harness.restart().await;
    harness.delete("shop").await;
    let target = harness.phase("shop", TargetPhase::Gone).await;
    assert_eq!(found(&made), NOTHING);
    // No unit had to repeat its request.
    let teardown = target.runs.iter().find(|run| run.hook == "postStop").unwrap();
    assert!(teardown.units.iter().all(|unit| unit.attempt == 1), "{teardown:?}");
    assert_removals(&harness, "shop", &[CONFIRMED; 3]).await;
}

/// Makes a volume with the tag of the unit `disk`, as an attempt whose response was lost has made it. Returns its ID.
fn tagged(made: &Path) -> String {
    let key = ebb_protocol::id::unit_key(&instance("a"), "r", "disk");
    let spec = json!({"Properties": {"size": 4096}, "Tags": {KEY_TAG: key}});
    let result = perform(made, "Instance.Provision", &json!({"Type": "volume", "Spec": spec})).unwrap();
    result["ID"].as_str().unwrap().to_owned()
}

pub(crate) async fn several_instances_with_the_tag_are_refused_and_listed() {
    let harness = Harness::new().await;
    let (made, _) = start_plugin(&harness);
    let ids = [tagged(&made), tagged(&made)];
    harness.begin("a", "volumes", include_str!("documents/volume.yaml")).await;
    let unit = harness.unit("a", "preStart", "disk", UnitState::Failed).await;
    let reason = unit.reason.unwrap().message;
    assert!(unit.attempt == 1 && ids.iter().all(|id| reason.contains(id)), "{reason}");
    // The teardown leaves none.
    harness.tear_down("a").await;
    assert_eq!(found(&made), NOTHING);
}

/// One of two units has no outputs, and that of the other one is not in the response. The plugin does not list its instances.
/// Their recorded IDs are destroyed.
pub(crate) async fn an_instance_without_its_outputs_is_destroyed() {
    let harness = Harness::new().await;
    let (made, behavior) = start_plugin(&harness);
    harness.begin("a", "volumes", include_str!("documents/unlisted-volumes.yaml")).await;
    let unit = harness.unit("a", "preStart", "one", UnitState::Failed).await;
    assert!(unit.reason.unwrap().message.contains("output `id`"));
    harness.phase("a", TargetPhase::Failed).await;
    behavior.lock().unwrap().list_lag = Duration::from_secs(3_600);
    harness.tear_down("a").await;
    assert_eq!(found(&made), NOTHING);
    assert_removals(&harness, "a", &[REPORTED; 2]).await;
}

/// With its instances again, the plugin destroys in the background, and the removal waits for it.
pub(crate) async fn a_plugin_without_its_instances_is_stuck() {
    let harness = Harness::new().await;
    let (made, behavior) = start_plugin(&harness);
    let target = harness.run("a", "volumes", include_str!("documents/disk.yaml"), TargetPhase::Ready).await;
    behavior.lock().unwrap().is_empty = true;
    harness.delete("a").await;
    harness.unit("a", "postStop", "disk.removal", UnitState::Retrying).await;
    // The attempts in between would take minutes.
    let changes = vec![PatchChange::SetAttempt(Unit(0), Attempt(10))];
    let last = Patch { conditions: Vec::new(), changes };
    assert!(harness.stack().store().patch_run(&run_id("a", Hook::PostStop), &last).await.unwrap().is_written());
    harness.phase("a", TargetPhase::Stuck).await;
    let cause = harness.why("a").await.cause.unwrap();
    let id = outputs(&target)["id"]["value"].as_str().unwrap().to_owned();
    let expected =
        format!("the plugin `files` neither lists nor destroys {id}, which it has made; it may have another");
    assert!(cause.reason.message.contains(&expected), "{cause:?}");
    assert_eq!(found(&made)[1].len(), 1);

    let destroy_time = Duration::from_secs(2);
    *behavior.lock().unwrap() = PluginBehavior { destroy_time, ..PluginBehavior::default() };
    harness.request(Method::POST, "/v1/targets/sandbox/a/retry", None).await.is(202);
    harness.phase("a", TargetPhase::Gone).await;
    assert_eq!(found(&made), NOTHING);
    assert_removals(&harness, "a", &[CONFIRMED]).await;
}
