//! Why tasks wait. The relay reports a cause within ten seconds after Kubernetes has reported it.

use ebb_protocol::callback::ReasonCode::{Denied, Failed, ImagePull, NotStartable, Quota, Timeout, Unschedulable};
use ebb_protocol::relay::{TaskWait, WaitResolution};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Event;

use crate::cluster::BUSYBOX;
use crate::failure_reasons::{
    ManifestChange, enforce_restricted, main_of, no_such_secret, no_volume, set_quota, without_user,
};
use crate::fixture::*;
use crate::objects::{deployment, removal};
use crate::rights::{grant_role, rights, rule_for};
use WaitResolution::{Itself, Never, Person};

/// The longest time between the report of Kubernetes and that of the relay.
const LONGEST: Duration = Duration::from_secs(10);
/// Longer than the test takes, so that no task fails.
const PATIENT: [&str; 2] = ["--pod-start-timeout-seconds", "170"];

fn no_image(pod: &mut Value) {
    main_of(pod)["image"] = "127.0.0.1:1/none:1".into();
}

fn no_node(pod: &mut Value) {
    pod["nodeSelector"] = json!({"no": "such"});
}

fn crashes(pod: &mut Value) {
    main_of(pod)["command"] = json!(["sh", "-c", "exit 3"]);
}

/// Returns what Kubernetes says about the pods of a unit and about their controllers.
async fn reported(fixture: &RelayFixture, unit: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for pod in fixture.api::<Pod>().list(&ListParams::default()).await.unwrap() {
        if pod.name_any().contains(unit) {
            let status = pod.status.unwrap_or_default();
            texts.extend(status.conditions.into_iter().flatten().filter_map(|it| it.message));
            let containers = [status.init_container_statuses, status.container_statuses];
            texts.extend(containers.into_iter().flatten().flatten().filter_map(|it| it.state?.waiting?.message));
        }
    }
    for event in fixture.api::<Event>().list(&ListParams::default()).await.unwrap() {
        if event.involved_object.name.is_some_and(|name| name.contains(unit)) {
            texts.extend(event.message);
        }
    }
    texts
}

/// Waits until the relay reports what a task waits for.
async fn wait_of(fixture: &RelayFixture, unit: &TaskId, message: &str) -> TaskWait {
    let begun = Instant::now();
    let event = format!("{message:?} in the state of {unit:?}");
    let wait = until(&event, async || match fixture.status(unit).await {
        TaskState::Running(task) => {
            assert_eq!((&*task.log, task.pending.is_some()), ("", !task.waits.is_empty()));
            task.waits.into_iter().find(|wait| wait.message.contains(message))
        }
        other => panic!("{unit:?}: {other:?}\n{}", fixture.log()),
    });
    let wait = wait.await;
    let took = begun.elapsed();
    assert!(took < LONGEST, "{unit:?}: the relay reported {wait:?} after {took:?}");
    wait
}

/// Waits until Kubernetes reports a text about a unit, and then for the wait of its task.
async fn wait_after(fixture: &RelayFixture, unit: &TaskId, text: &str, message: &str) -> TaskWait {
    let begun = Instant::now();
    loop {
        let texts = reported(fixture, &unit.unit).await;
        if texts.iter().any(|it| it.contains(text)) {
            break;
        }
        assert!(begun.elapsed() < WAIT_TIMEOUT, "no {text:?} about {unit:?}: {texts:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    wait_of(fixture, unit, message).await
}

/// Starts a script and a Deployment with the same change of their pods. Returns their units.
async fn start_both(fixture: &RelayFixture, title: &str, change: ManifestChange) -> [TaskId; 2] {
    let units = ["script", "web"].map(|kind| name(&format!("{kind}-{title}"), 1));
    let [script, web] = &units;
    let task = ScriptJob::new(script, "#").pod(change).into_task(script);
    fixture.apply_within(script, task, 170_000).await;
    let mut manifest = deployment(&web.unit, BUSYBOX);
    change(&mut manifest["spec"]["template"]["spec"]);
    fixture.apply_within(web, objects(vec![manifest]), 170_000).await;
    units
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_of_pods_that_do_not_start() {
    let fixture = RelayFixture::new("waits", &PATIENT).await;
    // The change of the pods, the text of Kubernetes, the code, a part of the message, and how it ends.
    let cases: [(&str, ManifestChange, &str, ReasonCode, &str, WaitResolution); 5] = [
        ("image", no_image, "none:1", ImagePull, "none:1", Person),
        ("node", no_node, "nodes are available", Unschedulable, "nodes are available", Person),
        ("env", no_such_secret, "secret \"none\" not found", NotStartable, "secret \"none\" not found", Person),
        ("volume", no_volume, "secret \"none\" not found", NotStartable, "secret \"none\" not found", Person),
        ("crash", crashes, "back-off", NotStartable, "CrashLoopBackOff: exit code 3", Itself),
    ];
    join_all(cases.map(async |(title, change, text, code, message, resolves)| {
        let units = start_both(&fixture, title, change).await;
        // A script that ends is not started again.
        let waiting = if title == "crash" { &units[1..] } else { &units };
        join_all(waiting.iter().map(async |unit| {
            let wait = wait_after(&fixture, unit, text, message).await;
            assert_eq!((wait.code, wait.resolves), (code, resolves), "{wait:?}");
            assert!(wait.since_ms.is_some_and(|since| since < 170_000), "{wait:?}");
            let (namespace, unit) = (&fixture.units, &unit.unit);
            let is_web = unit.starts_with("web");
            let object =
                if is_web { format!("Deployment {namespace}/{unit}") } else { format!("Job {namespace}/ebb-{unit}-1") };
            assert_eq!(wait.object, object);
            assert_eq!(wait.message.starts_with(&format!("pod `{unit}-")), is_web, "{wait:?}");
            assert_eq!(wait.field.as_deref().is_some_and(|it| it.starts_with("status.")), is_web, "{wait:?}");
        }))
        .await;
        join_all(waiting.iter().map(|unit| fixture.cancel(unit))).await;
    }))
    .await;
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_of_pods_that_are_refused() {
    for (title, text, code, resolves) in
        [("quota", "exceeded quota", Quota, Person), ("denied", "violates PodSecurity", Denied, Never)]
    {
        let fixture = RelayFixture::new(title, &PATIENT).await;
        let change: ManifestChange = if code == Quota {
            set_quota(&fixture, "pods").await;
            |_| {}
        } else {
            enforce_restricted(&fixture).await;
            without_user
        };
        let units = start_both(&fixture, title, change).await;
        join_all(units.iter().map(async |unit| {
            wait_after(&fixture, unit, text, text).await;
            // The status of a Deployment has the text before the relay reads the warning, which decides.
            until(&format!("the warning about {unit:?}"), async || match fixture.status(unit).await {
                TaskState::Running(task) => task
                    .waits
                    .into_iter()
                    .find(|wait| wait.message.contains(text) && (wait.code, wait.resolves) == (code, resolves)),
                other => panic!("{unit:?}: {other:?}"),
            })
            .await;
            fixture.cancel(unit).await;
        }))
        .await;
        fixture.close().await;
    }
}

/// A finalizer that no program removes, and a namespace that is missing, being deleted, and gone.
#[tokio::test(flavor = "multi_thread")]
async fn finalizers_and_missing_namespaces() {
    let fixture = RelayFixture::with_policy(
        "gone",
        &[],
        |units| json!({"namespaces": {units: [], (format!("other-{units}")): []}, "kinds": ["ConfigMap"]}),
    )
    .await;
    let (client, units) = (&fixture.client, &*fixture.units);
    let other = format!("other-{units}");
    let task = || ObjectTask { namespace: Some(other.clone()), keep: true, ..objects(vec![config_map("map")]) };
    let early = name("early", 1);
    fixture.apply(&early, task()).await;
    let (_, message) = fixture.reason(&early).await;
    assert!(message.contains(&format!("the namespace `{other}` does not exist")), "{message}");

    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": other}})).await;
    for (role, rules) in [("units", json!(rights().units)), ("further", json!([rule_for("", "configmaps")]))] {
        grant_role(client, units, &other, role, rules).await;
    }
    let made = name("made", 1);
    until("the relay's rights", async || match fixture.apply(&made, task()).await {
        RelayResponse::State(TaskState::Running(_) | TaskState::Ended(_)) => Some(()),
        RelayResponse::Refused(_) => None,
        other => panic!("{other:?}"),
    })
    .await;
    fixture.success(&made).await;

    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &other);
    let by_hand = PatchParams { field_manager: Some("by-hand".to_owned()), ..PatchParams::default() };
    let held = finalizers(json!(["test.example/held"]));
    maps.patch("map", &by_hand, &Patch::Merge(held)).await.unwrap();
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["made"])).await;
    let wait = wait_of(&fixture, &undo, "the finalizer `test.example/held`, which `by-hand` set").await;
    assert_eq!((wait.object, wait.code), (format!("ConfigMap {other}/map"), Timeout));
    // The rights of the relay are deleted with the namespace.
    namespaces.delete(&other, &DeleteParams::default()).await.unwrap();
    let bindings: Api<k8s_openapi::api::rbac::v1::RoleBinding> = Api::namespaced(client.clone(), &other);
    until("the end of the rights", async || bindings.get_opt("further").await.unwrap().is_none().then_some(())).await;
    wait_of(&fixture, &undo, &format!("the namespace `{other}` is being deleted")).await;
    merge(&maps, "map", finalizers(Value::Null)).await;
    fixture.success(&undo).await;
    assert!(!fixture.log().contains("ApiError"), "{}", fixture.log());
    fixture.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn object_tasks_that_fail_fast() {
    let fixture = RelayFixture::new("fast", &["--pod-start-timeout-seconds", "4"]).await;
    for (title, image, code, message) in [
        // Its Deployment exists, so a teardown must remove it.
        ("never", "Not::an image", Failed, "InvalidImageName"),
        ("missing", "127.0.0.1:1/none:1", ImagePull, "none:1"),
    ] {
        let unit = name(title, 1);
        let task = ObjectTask { fail_fast: true, ..objects(vec![deployment(title, image)]) };
        fixture.apply(&unit, task).await;
        let reason = fixture.reason(&unit).await;
        assert!(reason.0 == code && reason.1.contains(message), "{unit:?}: {reason:?}");
    }
    fixture.close().await;
}

/// Its container runs for some seconds between two crashes.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_not_ready_between_two_crashes() {
    let fixture = RelayFixture::new("crashes", &[]).await;
    let unit = name("unit", 1);
    let mut manifest = deployment("crashes", BUSYBOX);
    let pod = &mut manifest["spec"]["template"]["spec"];
    main_of(pod)["command"] = json!(["sh", "-c", "[ -e /kept/a ] && sleep 6; touch /kept/a; exit 3"]);
    main_of(pod)["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
    pod["volumes"] = json!([{"name": "kept", "emptyDir": {}}]);
    fixture.apply_within(&unit, objects(vec![manifest]), 45_000).await;
    let (code, message) = fixture.reason(&unit).await;
    assert!(code == Timeout && message.contains("CrashLoopBackOff: exit code 3"), "{code:?} {message}");
    fixture.close().await;
}

/// A Deployment that is deleted and a script that ends wait for a pod with a finalizer.
#[tokio::test(flavor = "multi_thread")]
async fn finalizers_of_owned_pods() {
    let fixture = RelayFixture::new("owned", &[]).await;
    let made = name("made", 1);
    fixture.apply(&made, ObjectTask { keep: true, ..objects(vec![deployment("web", BUSYBOX)]) }).await;
    fixture.success(&made).await;
    let pods = fixture.api::<Pod>();
    let pod = pods.list(&ListParams::default().labels("app=web")).await.unwrap().items.remove(0).name_any();
    let by_hand = PatchParams { field_manager: Some("by-hand".to_owned()), ..PatchParams::default() };
    let held = finalizers(json!(["test.example/held"]));
    pods.patch(&pod, &by_hand, &Patch::Merge(held)).await.unwrap();
    let undo = name("undo", 1);
    fixture.apply(&undo, removal(&["made"])).await;
    let expected = format!("pod `{pod}`: waiting for the finalizer `test.example/held`, which `by-hand` set");
    let wait = wait_of(&fixture, &undo, &expected).await;
    assert_eq!(wait.object, format!("Deployment {}/web", fixture.units));
    merge(&pods, &pod, finalizers(Value::Null)).await;
    fixture.success(&undo).await;

    let unit = name("script", 1);
    fixture.run(&unit, ScriptJob::new(&unit, "echo started; sleep 1000")).await;
    fixture.wait_for_log(&unit, "started").await;
    let pod = pods.list(&ListParams::default().labels("ebb.dev/unit=script")).await.unwrap().items.remove(0).name_any();
    merge(&pods, &pod, finalizers(json!(["batch.kubernetes.io/job-tracking", "test.example/held"]))).await;
    assert!(matches!(fixture.state(cancel(&unit)).await, TaskState::Running { .. }));
    let wait = wait_of(&fixture, &unit, "the finalizer `test.example/held`").await;
    assert_eq!(wait.object, format!("Pod {}/{pod}", fixture.units));
    merge(&pods, &pod, finalizers(Value::Null)).await;
    fixture.cancel(&unit).await;
    fixture.close().await;
}
