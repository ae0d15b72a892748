//! From the spec to the exit code.
//!
//! Flow: read the spec; put files where the script looks for them; start it; carry what it prints; wait for its end, its
//! deadline or a signal; end all that it has left; collect outputs; write the termination message; report to the relay;
//! record in the message that it was acknowledged.
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

use ebb_protocol::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_protocol::entrypoint::exit::{FAILED, NOT_STARTABLE, USAGE};
use ebb_protocol::entrypoint::{EntrypointSpec, ReportState, ScriptExit, ScriptReport, VERSION};
use ebb_protocol::unit::TRACEPARENT_VARIABLE;
use ebb_script::ScriptWatch;
use serde::Deserialize;

use crate::end;
use crate::log::{self, SharedTail};
use crate::prepare;
use crate::report::RelayReporter;
use crate::tail::LogTail;
use crate::termination::TerminationMessage;

/// Longer times are as good as this one, and clocks can still add it.
const MAX_MILLIS: u64 = 100 * 365 * 86_400_000;

/// Runs what the file at `path` asks for. Gives this program's exit code.
pub(crate) fn run(path: &Path) -> i32 {
    let begun = Instant::now();
    let spec = match read(path) {
        Ok(spec) => spec,
        Err(why) => {
            log_line(&format!("{}: {why}", path.display()));
            return USAGE;
        }
    };
    let mut watch = match ScriptWatch::start(millis(spec.grace_ms)) {
        Ok(watch) => watch,
        Err(error) => {
            log_line(&format!("no signals can be received: {error}"));
            return FAILED;
        }
    };
    // Fails only where processes cannot be adopted; then the first process of the container does that.
    let _ = ebb_script::adopt_orphans();
    let tail: SharedTail = Arc::new(Mutex::new(LogTail::new(spec.log_tail)));
    let (reporter, ended, code) =
        match spec.relay.as_ref().map(|it| RelayReporter::start(it, trace(&spec), &tail, watch.sender())).transpose() {
            Err(why) => (None, not_started(&why), Some(NOT_STARTABLE)),
            Ok(reporter) => match prepare::start(&spec) {
                Err(trouble) => (reporter, not_started(&trouble.message), Some(trouble.code)),
                Ok(script) => (reporter, supervise(&spec, script, &tail, &mut watch, begun), None),
            },
        };
    let ended = add_log_and_time(ended, &tail, begun);
    let is_failed = report_end(&spec, &ended, &tail, reporter.as_ref(), &mut watch);
    code.unwrap_or_else(|| end::exit_code(&ended, is_failed))
}

/// Stays with a script until it and all that it has started are gone, and its log is out.
fn supervise(
    spec: &EntrypointSpec,
    mut script: Child,
    tail: &SharedTail,
    watch: &mut ScriptWatch,
    begun: Instant,
) -> ScriptExit {
    let streams = log::forward(&mut script, tail, &watch.sender()).unwrap_or_else(|error| {
        log_line(&format!("the log is not complete: {error}"));
        0
    });
    end::script_exit(spec, &watch.supervise(&script, Some(begun + millis(spec.timeout_ms)), streams))
}

fn not_started(why: &str) -> ScriptExit {
    let result = Callback::failed(ReasonCode::NotStartable, why);
    ScriptExit { result, sensitive: BTreeMap::new(), exit_code: None }
}

/// Adds log and time, and cuts to what the control plane takes.
fn add_log_and_time(mut ended: ScriptExit, tail: &SharedTail, begun: Instant) -> ScriptExit {
    ended.result.duration_ms = Some(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    ended.result.log = Some(log::lock(tail).text());
    ended.result = ended.result.fit();
    if ended.result.status != CallbackStatus::Succeeded {
        ended.sensitive.clear();
    }
    ended
}

/// Tells everyone who is there how it has ended. Gives whether the unit has failed, which it also does when nobody can
/// take its outputs.
fn report_end(
    spec: &EntrypointSpec,
    ended: &ScriptExit,
    tail: &SharedTail,
    reporter: Option<&RelayReporter>,
    watch: &mut ScriptWatch,
) -> bool {
    let report = ScriptReport {
        v: VERSION,
        log_bytes: log::lock(tail).total(),
        state: ReportState::Ended(Box::new(ended.clone())),
    };
    // Maps with names as keys can always be written.
    let report = reporter.map(|reporter| (reporter, serde_json::to_vec(&report).unwrap_or_default()));
    let message = TerminationMessage::new(ended, report.as_ref().map(|(_, body)| body.as_slice()));
    if let Some(reason) = &message.result().reason {
        log_line(&reason.message);
    }
    let is_failed = message.result().status != CallbackStatus::Succeeded;
    let unwritten = |error| log_line(&format!("{}: {error}", spec.termination_log));
    let written = message.write(&spec.termination_log).map_err(unwritten);
    if let Some((reporter, body)) = report {
        let most = reporter.send_end(body);
        if !watch.wait_for_report(most) {
            log_line("the relay has not taken the report");
        } else if written.is_ok() {
            let _ = message.mark_reported(&spec.termination_log).map_err(unwritten);
        }
    }
    is_failed
}

fn read(path: &Path) -> Result<EntrypointSpec, String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    // The version first: a later one may look different.
    let version: SpecVersion = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if version.v != VERSION {
        return Err(format!("it has version {}, and this entrypoint reads {VERSION}", version.v));
    }
    serde_json::from_slice(&bytes).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct SpecVersion {
    v: u32,
}

/// Says something to whoever reads the container's log.
fn log_line(what: &str) {
    let _ = writeln!(io::stderr(), "ebb-entrypoint: {what}");
}

/// A duration that can be added to any time.
pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count.min(MAX_MILLIS))
}

/// The trace that the script is told of.
fn trace(spec: &EntrypointSpec) -> Option<String> {
    let found = spec.env.iter().find(|(name, _)| name == TRACEPARENT_VARIABLE);
    found.map(|(_, value)| value.clone())
}
