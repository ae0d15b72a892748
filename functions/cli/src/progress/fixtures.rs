//! Views of targets for tests.

use ebb_protocol::api::{RunDetail, RunState, TargetDetail, TargetState, UnitDetail, UnitState};
use ebb_protocol::callback::{FailureReason, ReasonCode};

pub(crate) const NOW: &str = "2026-11-21T09:00:10Z";

pub(crate) fn unit(key: &str, state: UnitState) -> UnitDetail {
    let json = serde_json::json!({
        "unit": key, "kind": "pod", "state": state, "attempt": 1, "maxAttempts": 3, "attemptInSeries": 1,
    });
    serde_json::from_value(json).unwrap()
}

fn units() -> Vec<UnitDetail> {
    let at = |time: &str| Some(format!("2026-11-21T{time}Z"));
    vec![
        UnitDetail { duration_ms: Some(432), ..unit("db/provision", UnitState::Succeeded) },
        UnitDetail {
            after: vec!["db/provision".to_owned()],
            attempt: 2,
            attempt_in_series: 2,
            started: at("09:00:05.500"),
            deadline: at("09:05:05.500"),
            progress: Some("inserting rows 2000-3000".to_owned()),
            ..unit("db/seed", UnitState::Running)
        },
        UnitDetail {
            after: vec!["db/provision".to_owned(), "db/seed".to_owned()],
            ..unit("db/check", UnitState::Waiting)
        },
        UnitDetail {
            reason: Some(FailureReason { code: ReasonCode::HttpStatus, message: "the server answered 503".to_owned() }),
            attempt: 2,
            attempt_in_series: 2,
            next: at("09:00:14"),
            ..unit("billing/register", UnitState::Retrying)
        },
        UnitDetail {
            reason: Some(FailureReason { code: ReasonCode::Exit, message: "the script ended with code 3".to_owned() }),
            attempt: 3,
            attempt_in_series: 3,
            duration_ms: Some(12_000),
            ..unit("queue/create", UnitState::Failed)
        },
        UnitDetail { after: vec!["queue/create".to_owned()], ..unit("queue/subscribe", UnitState::Blocked) },
        unit("cache/warm", UnitState::Skipped),
    ]
}

/// Returns a target without runs.
pub(crate) fn target(phase: &str, since: &str) -> TargetDetail {
    let json = serde_json::json!({
        "kind": "sandbox", "name": "pr-1", "uid": "a", "generation": 2, "phase": phase,
        "since": since, "created": since, "plugins": [], "resources": {}, "runs": [],
    });
    serde_json::from_value(json).unwrap()
}

/// Returns a view with a unit in every state.
pub(crate) fn busy() -> TargetDetail {
    let run = RunDetail {
        id: "k3-1-pre-start".to_owned(),
        hook: "preStart".to_owned(),
        state: RunState::Running,
        started: "2026-11-21T09:00:00Z".to_owned(),
        units: units(),
        next_token: None,
    };
    TargetDetail { runs: vec![run], ..target("starting", "2026-11-21T09:00:00Z") }
}

/// Returns the view of `busy` after its run has ended, while the target stops.
pub(crate) fn done() -> TargetDetail {
    let mut view = busy();
    view.info.phase = TargetState::Stopping;
    view.runs[0].state = RunState::Failed;
    for unit in &mut view.runs[0].units {
        match unit.state {
            UnitState::Running | UnitState::Waiting | UnitState::Retrying => {
                unit.state = UnitState::Succeeded;
                unit.duration_ms = Some(2500);
            }
            _ => {}
        }
    }
    let undo = UnitDetail { started: Some("2026-11-21T09:00:09Z".to_owned()), ..unit("db/drop", UnitState::Running) };
    view.runs.push(RunDetail {
        id: "k3-1-post-stop".to_owned(),
        hook: "postStop".to_owned(),
        state: RunState::Running,
        started: "2026-11-21T09:00:09Z".to_owned(),
        units: vec![undo],
        next_token: None,
    });
    view
}

/// Returns a view with `count` units: one failed, three running.
pub(crate) fn wide(count: usize) -> TargetDetail {
    let mut view = busy();
    view.runs[0].units = (0..count)
        .map(|number| {
            let state = match number {
                7 => UnitState::Failed,
                500..=502 => UnitState::Running,
                ..500 => UnitState::Succeeded,
                _ => UnitState::Waiting,
            };
            UnitDetail { max_attempts: 1, ..unit(&format!("fan/unit-{number}"), state) }
        })
        .collect();
    view
}
