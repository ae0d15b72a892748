//! Items with every attribute, for the tests of the table and for the snapshot of stored items.

use serde_json::json;

use crate::{
    BootstrapToken, ClusterItem, DatedEvent, NotificationState, PendingCreation, PendingUpdate, PhaseNotice,
    ReceiverState, RefusedUpdate, RegisteredRelay, SecretRelease, SessionBasis, SessionItem, SourceRejections,
    TargetEvents, TargetHead, TargetOutbox, TokenItem,
};
use ebb_protocol::api::{RejectedEvent, SignadotOutputs, TokenInfo};
use ebb_protocol::callback::{FailureReason, ReasonCode};
use ebb_protocol::engine::{EventName, Hook, TargetChange, TargetPhase, Timestamp};
use ebb_protocol::evidence::Evidence;
use ebb_protocol::id::{EventRef, RunId, digest};
use ebb_protocol::lifecycle::TargetStopCause;
use ebb_protocol::object_status::{ObjectState, ObjectStatus};
use ebb_protocol::record::{AttemptOutcome, AttemptResult, OutputStorage};
use ebb_protocol::removal::{RemovalEvidence, RemovalGrade};

/// The time of each sample.
pub const AT: Timestamp = Timestamp(1_800_000_000_000);

fn event(id: &str) -> EventRef {
    EventRef::new(EventName::new("sleep").unwrap(), id)
}

/// Returns a target with every attribute.
pub fn full_target() -> TargetHead {
    let (plan, key, plugins) = (digest(b"plan"), Some("key".to_owned()), vec!["p@1.0.0".to_owned()]);
    TargetHead {
        kind: "sandbox".into(),
        name: "full".into(),
        uid: "uid".into(),
        source: Some("previews".into()),
        owner: Some("source previews".into()),
        changed_by: Some("ttl".into()),
        labels: [("team".to_owned(), "payments".to_owned())].into(),
        generation: 3,
        first_generation: 1,
        updates: 2,
        phase: TargetPhase::Stopping,
        hook: Some(Hook::PostStop),
        plan: plan.clone(),
        routing_key: key.clone(),
        plugins: plugins.clone(),
        created: AT,
        since: AT,
        ready_since: Some(AT),
        first_cause: Some("db/make: why".into()),
        active: Some(AT),
        expires: Some(AT),
        stop_cause: TargetStopCause::Expired,
        is_overridden: true,
        unconfirmed: 1,
        is_reopened: true,
        reported: Some(RunId::new("instance", 1, Hook::PreStop)),
        notification: Some(NotificationState::Due(ReceiverState {
            attempts: 1,
            refused: None,
            next: AT,
            reason: "why".into(),
            at: AT,
        })),
        outbox: TargetOutbox {
            notices: vec![PhaseNotice {
                number: 1,
                phase: TargetChange::Gone,
                at: AT,
                run: Some(RunId::new("instance", 1, Hook::PostStop)),
                ended: Some("expired".into()),
                target: json!({"kind": "sandbox", "name": "full"}),
                to: vec!["statuses".into()],
            }],
            failed: [(
                "statuses".to_owned(),
                ReceiverState { attempts: 2, refused: Some(AT), next: AT, reason: "why".into(), at: AT },
            )]
            .into(),
        },
        waiting: Some(PendingCreation {
            uid: "next".into(),
            source: Some("previews".into()),
            owner: Some("source previews".into()),
            labels: [("team".to_owned(), "payments".to_owned())].into(),
            generation: 1,
            first_generation: None,
            plan,
            routing_key: key,
            plugins,
            ttl_ms: Some(1),
            since: AT,
        }),
        pending_update: Some(PendingUpdate {
            generation: 4,
            plan: digest(b"update"),
            routing_key: Some("key".to_owned()),
            by: Some("source previews".into()),
            labels: [("team".to_owned(), "billing".to_owned())].into(),
            since: AT,
        }),
        refused_update: Some(RefusedUpdate { generation: 2, reason: "why".into() }),
        events: TargetEvents {
            recent: vec![event("1")],
            waiting: vec![DatedEvent { event: event("2"), at: AT }],
            dropped: vec![DatedEvent { event: event("1"), at: AT }],
        },
        release: vec![SecretRelease {
            instance: "instance".into(),
            cluster: Some("far".into()),
            uid: Some("uid".into()),
        }],
        removed: Some(AT),
        due: Some(AT),
        version: 1,
    }
}

/// Returns a failure with every attribute.
pub fn full_result() -> AttemptResult {
    let secret = json!({"cluster": "far", "namespace": "ns", "name": "n", "key": "k"});
    let outputs = json!({"a": {"json": "x"}, "b": {"base64": "/w=="}, "c": {"secret": secret}});
    let evidence = Evidence {
        method: "POST".into(),
        url: "https://units.test".into(),
        status: Some(500),
        content_type: Some("text/plain".into()),
        limits: Some("retry-after: 1".into()),
        body: Some("body".into()),
        truncated: true,
        damaged: None,
    };
    AttemptResult {
        outcome: AttemptOutcome::Failed,
        at: AT,
        duration_ms: Some(1),
        outputs: OutputStorage::Inline(serde_json::from_value(outputs).unwrap()),
        reason: Some(FailureReason { code: ReasonCode::HttpStatus, message: "why".into() }),
        evidence: Some(Box::new(evidence)),
        removal: Some(Box::new(RemovalEvidence::new(RemovalGrade::Unconfirmed, "DELETE https://units.test", "404"))),
        sent_by: Some("c".into()),
        made: vec!["i-1".into()],
        next: Some(AT),
        log: true,
        objects: vec![ObjectStatus {
            object: "Job n/a".into(),
            state: ObjectState::Failed,
            reason: Some("why".into()),
        }],
        unanswered: true,
        has_outputs: true,
        unsent: true,
        digest: "first".into(),
    }
}

/// Returns a registered cluster with every attribute.
pub fn full_cluster() -> ClusterItem {
    ClusterItem {
        name: "far".into(),
        url: Some("https://relay.test".into()),
        entrypoint_image: "entrypoint:1".into(),
        run_as_non_root: true,
        signadot_outputs: Some(SignadotOutputs::Open),
        options: json!({"profile": "restricted"}),
        relay: Some(RegisteredRelay { uid: "uid".into(), secret: "sealed".into(), since: AT }),
        bootstrap: Some(BootstrapToken { digest: "digest".into(), expires: AT, used: true }),
        created: AT,
        created_by: "role operator".into(),
        version: 1,
    }
}

pub fn token() -> TokenItem {
    let info = TokenInfo {
        name: "ci".into(),
        scopes: vec!["read".into(), "targets:write".into()],
        created: AT,
        expires: AT,
        created_by: "role operator".into(),
    };
    TokenItem { info, digest: digest(b"token"), revoked: None }
}

/// Returns the session of a named token.
pub fn session() -> SessionItem {
    SessionItem {
        digest: "digest".into(),
        basis: SessionBasis::Named("dueqv2noxvjonmap".into()),
        proof: "proof".into(),
        created: AT,
        expires: AT,
    }
}

/// Returns the rejected events of a source with these deliveries.
pub fn rejections(source: &str, deliveries: &[&str], version: u64) -> SourceRejections {
    let event = |delivery: &&str| RejectedEvent {
        time: AT,
        delivery: (*delivery).to_owned(),
        target: Some("sandbox/full".into()),
        uid: Some("uid".into()),
        detail: "why".into(),
    };
    SourceRejections { source: source.to_owned(), events: deliveries.iter().map(event).collect(), version }
}
