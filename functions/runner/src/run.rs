//! From the spec to the exit code.
//!
//! Flow: read the spec; put files where the script looks for them; start it; carry what it prints; wait for its end, its
//! deadline or a signal; end all that it has left; collect outputs; write the termination message; tell the relay; note
//! in the message that it knows.
//!
//! Guarantees: once the spec was read the termination message is there when we end, whatever the relay does; no process
//! of the script is left, unless one is stuck in the kernel; the script never waits for the network.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ebb_supervise::ScriptWatch;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::runner::exit::{FAILED, NOT_STARTABLE, USAGE};
use ebb_wire::runner::{Ended, Report, ReportState, Spec, VERSION};
use ebb_wire::unit::TRACEPARENT_VARIABLE;
use serde::Deserialize;

use crate::end;
use crate::log::{self, Shared};
use crate::prepare;
use crate::report::Reporter;
use crate::tail::Tail;
use crate::termination::Message;

/// Longer times are as good as this one, and clocks can still add it.
const LONGEST: u64 = 100 * 365 * 86_400_000;

/// Runs what the file at `path` asks for. Gives this program's exit code.
pub(crate) fn run(path: &Path) -> i32 {
    let begun = Instant::now();
    let spec = match read(path) {
        Ok(spec) => spec,
        Err(why) => {
            complain(&format!("{}: {why}", path.display()));
            return USAGE;
        }
    };
    let mut watch = match ScriptWatch::start(millis(spec.grace_ms)) {
        Ok(watch) => watch,
        Err(error) => {
            complain(&format!("no signals can be received: {error}"));
            return FAILED;
        }
    };
    // Fails only where processes cannot be adopted; then the first process of the container does that.
    let _ = ebb_supervise::adopt_orphans();
    let tail: Shared = Arc::new(Mutex::new(Tail::new(spec.log_tail)));
    let (reporter, ended, code) = match spec
        .relay
        .as_ref()
        .map(|it| Reporter::start(it, trace(&spec), &tail, watch.sender()))
        .transpose()
    {
        Err(why) => (None, not_started(&why), Some(NOT_STARTABLE)),
        Ok(reporter) => match prepare::start(&spec) {
            Err(trouble) => (reporter, not_started(&trouble.message), Some(trouble.code)),
            Ok(script) => (reporter, attend(&spec, script, &tail, &mut watch, begun), None),
        },
    };
    let ended = complete(ended, &tail, begun);
    let is_failed = tell(&spec, &ended, &tail, reporter.as_ref(), &mut watch);
    code.unwrap_or_else(|| end::exit_code(&ended, is_failed))
}

/// Stays with a script until it and all that it has started are gone, and its log is out.
fn attend(spec: &Spec, mut script: Child, tail: &Shared, watch: &mut ScriptWatch, begun: Instant) -> Ended {
    let streams = log::carry(&mut script, tail, &watch.sender()).unwrap_or_else(|error| {
        complain(&format!("the log is not complete: {error}"));
        0
    });
    end::judge(spec, &watch.attend(&script, Some(begun + millis(spec.deadline_ms)), streams))
}

fn not_started(why: &str) -> Ended {
    let result = Callback::failed(ReasonCode::NotStartable, why);
    Ended { result, sensitive: BTreeMap::new(), exit_code: None }
}

/// Adds log and time, and cuts to what the control plane takes.
fn complete(mut ended: Ended, tail: &Shared, begun: Instant) -> Ended {
    ended.result.took_ms = Some(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    ended.result.log = Some(log::lock(tail).text());
    ended.result = ended.result.fit();
    if ended.result.status != CallbackStatus::Succeeded {
        ended.sensitive.clear();
    }
    ended
}

/// Tells everyone who is there how it has ended. Gives whether the unit has failed, which it also does when nobody can
/// take its outputs.
fn tell(
    spec: &Spec,
    ended: &Ended,
    tail: &Shared,
    reporter: Option<&Reporter>,
    watch: &mut ScriptWatch,
) -> bool {
    let report = Report {
        v: VERSION,
        log_bytes: log::lock(tail).total(),
        state: ReportState::Ended(Box::new(ended.clone())),
    };
    // Maps with names as keys can always be written.
    let report = reporter.map(|reporter| (reporter, serde_json::to_vec(&report).unwrap_or_default()));
    let message = Message::new(ended, report.as_ref().map(|(_, body)| body.as_slice()));
    if let Some(reason) = &message.result().reason {
        complain(&reason.message);
    }
    let is_failed = message.result().status != CallbackStatus::Succeeded;
    let unwritten = |error| complain(&format!("{}: {error}", spec.termination_log));
    let written = message.write(&spec.termination_log).map_err(unwritten);
    if let Some((reporter, body)) = report {
        let most = reporter.ended(body);
        if !watch.reported(most) {
            complain("the relay has not taken the report");
        } else if written.is_ok() {
            let _ = message.acknowledged(&spec.termination_log).map_err(unwritten);
        }
    }
    is_failed
}

fn read(path: &Path) -> Result<Spec, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    // The version first: a later one may look different.
    let version: Version = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if version.v != VERSION {
        return Err(format!("it has version {}, and this runner reads {VERSION}", version.v));
    }
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

/// Says something to whoever reads the container's log.
fn complain(what: &str) {
    let _ = writeln!(io::stderr(), "ebb-runner: {what}");
}

/// A duration that can be added to any time.
pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count.min(LONGEST))
}

/// The trace that the script is told of.
fn trace(spec: &Spec) -> Option<String> {
    let found = spec.env.iter().find(|(name, _)| name == TRACEPARENT_VARIABLE);
    found.map(|(_, value)| value.clone())
}
