//! Targets of other kinds than sandboxes, with resources and own hooks.

use ebb_protocol::api::TargetDetail;
use ebb_protocol::sign;

use crate::harness::*;

/// The own hooks, with `ID` for the expression of the output of the resource.
const OWN: &str = include_str!("documents/own-hooks.yaml");

/// Returns the document of a namespace or a route group with one resource `r` of the plugin `db`.
fn document(kind: &str, receiver: &str) -> String {
    let own = OWN.replace("ID", "resources.r.outputs.id").replace("RECEIVER", receiver);
    match kind {
        "namespace" => named("Target", "a", &format!("targetKind: namespace\nresources: {{r: {{plugin: db}}}}\n{own}")),
        _ => format!(
            "name: a\nspec:\n  match: {{label: {{key: k, value: v}}}}\n  resources: [{{name: r, plugin: db}}]\n{}",
            own.lines().map(|line| format!("  {line}\n")).collect::<String>()
        ),
    }
}

/// The own units of a namespace and of a route group read the outputs of a resource, and are undone before it. A webhook has
/// the kind of its document.
pub(crate) async fn a_namespace_and_a_route_group_with_own_hooks() {
    for kind in ["namespace", "routegroup"] {
        let harness = Harness::new().await;
        harness.receiver.always("POST /make", json!({"id": "db-1"}));
        harness.receiver.always("POST /migrate", json!({"id": "v-7"}));
        harness.publish("db@1.0.0", MAKE).await;
        let created = LifecycleData {
            kind: kind.to_owned(),
            document: Some(document(kind, harness.receiver.url())),
            ..sandbox("a", "a-uid", "db")
        };
        if kind == "namespace" {
            let other = LifecycleData { kind: "sandbox".to_owned(), ..created.clone() };
            let reply = harness.lifecycle(LifecycleType::Created, &other).await;
            assert_eq!(reply.is_problem(422, "invalid-document").errors[0].code, "other-kind", "{reply:?}");
        }
        let send = async |event_type| harness.lifecycle(event_type, &created).await.is(202).json::<Value>();
        assert_eq!(send(LifecycleType::Created).await["target"], json!(format!("{kind}/a")));
        let phase = async |phase: TargetPhase| {
            until(&format!("{kind}/a to be {phase:?}"), async || {
                let target: TargetDetail = harness.get(&format!("/v1/targets/{kind}/a")).await.is(200).json();
                (target.info.phase == phase).then_some(target)
            })
            .await
        };
        let target = phase(TargetPhase::Ready).await;
        harness.receiver.call("POST /announce", 1).await;
        assert_eq!(target.resources.keys().collect::<Vec<_>>(), ["r"]);
        let keys: Vec<&str> = target.runs[0].units.iter().map(|unit| unit.key.as_str()).collect();
        assert_eq!(keys, ["r/make", "target/migrate"]);
        assert_eq!(send(LifecycleType::Updated).await["result"], "unchanged");
        let changed = created.document.clone().map(|text| text.replace("/drain", "/wait"));
        let changed = LifecycleData { document: changed, generation: 2, ..created.clone() };
        let updated = harness.lifecycle(LifecycleType::Updated, &changed).await.is(202).json::<Value>();
        assert_eq!(updated["result"], "updated", "units of the teardown change without a run");
        send(LifecycleType::Deleted).await;
        phase(TargetPhase::Gone).await;
        let order = ["/make", "/migrate", "/announce", "/wait", "/revert", "/undo"].map(|path| format!("POST {path}"));
        assert_eq!(harness.receiver.order(), order);
        let body = |line: &str| harness.receiver.calls(line)[0].body.clone();
        assert_eq!(body("POST /migrate"), json!({"id": "db-1", "of": kind}));
        assert_eq!((body("POST /announce"), body("POST /wait")), (json!({"version": "v-7"}), json!({"id": "db-1"})));
        assert_eq!((body("POST /revert"), body("POST /undo")), (json!({"id": "v-7"}), json!({"id": "db-1"})));
        // Own units have a secret of their own.
        let secrets: Value = harness.get("/v1/plugins/_target/signing-secret").await.is(200).json();
        let secret = WebhookSecret::parse(secrets["secrets"][0].as_str().unwrap()).unwrap();
        let call = &harness.receiver.calls("POST /revert")[0];
        assert!(sign::verify(&secret.clone().into(), &call.headers, call.body.to_string().as_bytes(), now()).is_ok());
        let other = &harness.receiver.calls("POST /undo")[0];
        assert!(sign::verify(&secret.into(), &other.headers, other.body.to_string().as_bytes(), now()).is_err());
    }
}
