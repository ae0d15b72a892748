//! The serialized bodies of the API. A changed golden file is a changed contract.

use std::collections::BTreeMap;

use serde_json::json;

use crate::api::*;
use crate::callback::{FailureReason, ReasonCode};
use crate::evidence::Evidence;
use crate::lifecycle::{OutputValue, TargetStopCause};

const AT: &str = "2026-09-21T14:13:20.123Z";

fn text(text: &str) -> String {
    text.to_owned()
}

fn some(given: &str) -> Option<String> {
    Some(text(given))
}

fn reason() -> FailureReason {
    FailureReason { code: ReasonCode::Exit, message: text("exit code 3") }
}

fn outputs() -> BTreeMap<String, OutputValue> {
    BTreeMap::from([(text("database.name"), OutputValue::Value(json!("usersk3j2")))])
}

fn target() -> TargetInfo {
    TargetInfo {
        kind: text("sandbox"),
        name: text("pr-1234"),
        uid: text("8c1a"),
        generation: 3,
        phase: TargetState::Failed,
        since: text(AT),
        created: text(AT),
        expires: some(AT),
        stop_cause: Some(TargetStopCause::Expired),
        overridden: true,
        plugins: vec![text("tenant-db@2.1.0")],
        waits_for: some("its preStart units"),
    }
}

fn evidence() -> Evidence {
    Evidence {
        method: text("POST"),
        url: text("https://api.example.org/v1/db?key=***"),
        status: Some(400),
        content_type: some("application/json"),
        body: some("{\"error\":\"tier must be gold\"}"),
        truncated: true,
        damaged: None,
    }
}

fn unit() -> UnitDetail {
    UnitDetail {
        key: text("users/database"),
        kind: text("pod"),
        state: UnitState::Retrying,
        attempt: 2,
        max_attempts: 3,
        attempt_in_series: 2,
        after: vec![text("users/network")],
        reason: Some(reason()),
        started: some(AT),
        ended: some(AT),
        duration_ms: Some(900),
        next: some(AT),
        deadline: some(AT),
        progress: some("3 of 7"),
        log: true,
        excess_results: Some(3),
        refused_callbacks: Some(RefusedCallbacks { count: 2, reason: text("unknown field `error`") }),
    }
}

#[test]
fn errors() {
    let error = DocumentError {
        file: text("plugin.yaml"),
        code: text("unknown-output"),
        message: text("unit database has no output dns"),
        help: some("did you mean dsn?"),
        line: Some(7),
        column: Some(13),
    };
    let problem = ProblemDetails {
        status: 422,
        code: text("invalid-document"),
        detail: text("1 error"),
        errors: vec![error],
        changes: vec![],
    };
    golden!("problem", problem);
    let short = ProblemDetails {
        status: 401,
        code: text("invalid-signature"),
        detail: text("sign it"),
        errors: vec![],
        changes: vec![],
    };
    golden!("problem-short", short);
}

#[test]
fn plugins() {
    let publish = PublishPlugin { document: text("kind: Plugin\n") };
    golden!("publish-plugin", publish);
    assert!(serde_json::from_str::<PublishPlugin>(r#"{"document": "", "file": ""}"#).is_err());
    let info = PluginInfo {
        name: text("tenant-db"),
        version: text("2.1.0"),
        dialect: text("ebb"),
        digest: text("sha256:00"),
        created: text(AT),
    };
    golden!("plugin", PluginDetail { info, withdrawn: some(AT), document: text("kind: Plugin\n") });
}

fn outage(units: &[&str]) -> RelayOutage {
    let units = units.iter().copied().map(text).collect();
    RelayOutage { cluster: text("inside"), since: text(AT), reason: text("it polls"), units }
}

#[test]
fn targets() {
    golden!(
        "target-page",
        TargetPage {
            targets: vec![target()],
            damaged: vec!["t#sandbox#pr-2: a field is missing".to_owned()],
            next_token: some("sandbox/pr-1234")
        }
    );
    let run = RunDetail {
        id: text("k3j2h4q5w6e7r3t2-3-pre-start"),
        hook: text("preStart"),
        state: RunState::Running,
        started: text(AT),
        units: vec![unit()],
        next_token: some("users/database"),
    };
    let detail = TargetDetail {
        info: target(),
        labels: BTreeMap::from([(text("team"), text("checkout"))]),
        resources: BTreeMap::from([(
            text("users"),
            ResourceDetail {
                plugin: text("tenant-db@2.1.0"),
                params: BTreeMap::from([(text("size"), json!("small"))]),
                outputs: outputs(),
            },
        )]),
        env: outputs(),
        outputs_error: some("too large"),
        runs: vec![run],
        pending_notification: some("failed"),
        delivery: Some(NotificationDelivery {
            notification: text("failed"),
            attempts: 3,
            reason: some("the server answered 503"),
            next: some(AT),
        }),
        waiting_uid: some("8c1b"),
        outage: Some(outage(&["users/database"])),
    };
    golden!("target", detail);
}

#[test]
fn states() {
    use {RunState as R, TargetState as P, UnitState as U};
    golden!("phases", [P::Starting, P::Ready, P::Failed, P::Stopping, P::Stuck, P::Gone]);
    golden!("run-states", [R::Running, R::Cancelling, R::Succeeded, R::Failed, R::Cancelled]);
    golden!(
        "unit-states",
        [U::Waiting, U::Running, U::Retrying, U::Succeeded, U::Skipped, U::Failed, U::Blocked, U::Cancelled]
    );
}

#[test]
fn reasons_for_people() {
    let cause = RootCause {
        run: text("k3j2h4q5w6e7r3t2-3-pre-start"),
        unit: text("users/database"),
        attempt: 3,
        reason: reason(),
        file: text("tenant-db@2.1.0"),
        line: 11,
        column: 3,
        inputs: BTreeMap::from([(text("admin-dsn"), text("<sensitive>"))]),
        log: vec![text("no such role")],
        evidence: Some(evidence()),
    };
    let existing = |certainty| RemainingEffect {
        unit: text("users/database"),
        certainty,
        outputs: outputs(),
        outputs_left_out: false,
    };
    let why = TargetDiagnosis {
        notes: vec![],
        target: text("sandbox/pr-1234"),
        phase: TargetState::Failed,
        summary: text("users/database failed"),
        cause: Some(cause),
        failed: vec![FailedUnit { unit: text("users/database"), attempt: 3, reason: reason() }],
        remaining: vec![existing(Certainty::Exists), existing(Certainty::Possible)],
        next_steps: vec![text("ebb retry sandbox/pr-1234")],
    };
    golden!("why", why);
    golden!("retry", RetryResponse { run: text("k3j2-3-pre-start"), units: vec![text("users/database")] });
    golden!("override", OverrideResponse { run: text("k3j2-3-post-stop"), units: vec![text("users/drop")] });
    let by = Some(text("ada"));
    golden!("force-complete", ForceCompleteUnit { unit: text("users/drop"), reason: text("removed by hand"), by });
    golden!("force-delete", ForceDeleteTarget { reason: text("the cluster is no more"), by: None });
}

#[test]
fn plans() {
    golden!("preview-plan", PreviewPlan { document: text("kind: Sandbox\n") });
    let unit = UnitPreview {
        key: text("users/seed"),
        kind: text("pod"),
        cluster: some("data"),
        after: vec![EdgePreview { key: text("users/database"), reason: text("reads dsn") }],
        rendered: json!({"inputs": {"dsn": "<users/database.dsn>"}}),
    };
    let hook = HookPreview { hook: text("preStart"), units: vec![unit] };
    golden!("plan", PlanPreview { digest: text("sha256:00"), hooks: vec![hook], warnings: vec![] });
}

#[test]
fn clusters() {
    let eu = ClusterInfo {
        name: text("eu"),
        transport: TransportKind::Push,
        uid: some("8c1a"),
        version: some("0.1.0"),
        up_seconds: Some(7),
        tasks: Some(3),
        error: None,
        outage: None,
    };
    let (name, error) = (text("inside"), some("the relay does not respond"));
    let inside = ClusterInfo {
        name,
        transport: TransportKind::Pull,
        error,
        version: None,
        up_seconds: None,
        tasks: None,
        outage: Some(outage(&[])),
        ..eu.clone()
    };
    golden!("clusters", ClusterList { clusters: vec![eu, inside] });
    let orphan = Orphan {
        cluster: text("eu"),
        kind: text("ConfigMap"),
        namespace: some("ebb-units"),
        name: text("c"),
        uid: text("9d2b"),
        instance: text("k3j2h4q5w6e7r3t2"),
        age_seconds: 7200,
        reason: text("its owner sandbox/a is gone"),
        owned: true,
    };
    let error = ClusterError { cluster: text("inside"), reason: text("the relay does not respond") };
    let (orphans, errors) = (vec![orphan], vec![error]);
    golden!("orphans", OrphanList { orphans: orphans.clone(), errors: errors.clone() });
    golden!("delete-orphans", DeleteOrphans { uids: vec![text("9d2b")] });
    golden!("orphans-deleted", DeleteOrphansResponse { deleted: orphans, remaining: errors });
}
