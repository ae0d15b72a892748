//! Runs the script of a spec and returns the exit code.
//!
//! 1. Read the spec.
//! 2. Run the script with [`ebb_script::run`], with heartbeats to the relay.
//! 3. Write the termination message.
//! 4. Report to the relay, and record the acknowledgement in the message.
//!
//! Guarantees: once the spec was read, the termination message exists on return, whatever the relay does. No process of
//! the script is left, unless one is stuck in the kernel. The script never waits for the network.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

use ebb_protocol::callback::CallbackStatus;
use ebb_protocol::entrypoint::exit::{FAILED, USAGE};
use ebb_protocol::entrypoint::{EntrypointSpec, RelayAddress, ReportState, ScriptExit, ScriptReport, VERSION};
use ebb_protocol::limits::LOG_TAIL;
use ebb_protocol::unit::TRACEPARENT_VARIABLE;
use ebb_script::{LogMask, LogTail, ScriptWatch, StartError, Surroundings, millis};
use serde::Deserialize;

use crate::report::RelayReporter;
use crate::termination::TerminationMessage;

/// Runs the script of the spec at `path`. Returns the exit code of this program.
pub(crate) fn run(path: &Path) -> i32 {
    let begun = Instant::now();
    let (spec, relay) = match read(path) {
        Ok(read) => read,
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
    // This fails only where processes cannot be adopted. The first process of the container then adopts them.
    let _ = ebb_script::adopt_orphans();
    let tail = LogTail::new(LOG_TAIL);
    // The trace of the script is the trace of its reports.
    let trace = spec.env.iter().find(|(name, _)| name == TRACEPARENT_VARIABLE).map(|(_, value)| value.clone());
    let (reporter, ended) = match RelayReporter::start(relay, trace, spec.outputs.clone(), &tail, watch.sender()) {
        Err(why) => (None, Err(StartError::not_startable(why))),
        Ok(reporter) => {
            let surroundings = Surroundings { place: "this image", supervisor: "the pod", tail: Some(&tail) };
            (Some(reporter), ebb_script::run(&spec, surroundings, &mut watch, begun))
        }
    };
    let (mut ended, code) = ended.map_or_else(|error| (error.script_exit(), Some(error.code)), |ended| (ended, None));
    ended.result.duration_ms = Some(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
    ended.result.log = Some(tail.text(&LogMask::of_outputs(&ended.sensitive)));
    // The control plane accepts a result up to a size.
    ended.result = ended.result.fit();
    if ended.result.status != CallbackStatus::Succeeded {
        ended.sensitive.clear();
    }
    report_end(&spec, &ended, &tail, reporter.as_ref(), &mut watch);
    code.unwrap_or_else(|| exit_code(&ended))
}

/// Returns the exit code of the script, but never 0 for a failed unit.
fn exit_code(ended: &ScriptExit) -> i32 {
    match ended.exit_code {
        Some(0) if ended.result.status != CallbackStatus::Succeeded => FAILED,
        code => code.unwrap_or(FAILED),
    }
}

/// Writes the termination message and reports to the relay, whose address may be invalid.
fn report_end(
    spec: &EntrypointSpec,
    ended: &ScriptExit,
    tail: &LogTail,
    reporter: Option<&RelayReporter>,
    watch: &mut ScriptWatch,
) {
    let (log_bytes, progress) = (tail.total(), tail.progress().and_then(|line| line.text(&spec.outputs)));
    let report = ScriptReport { v: VERSION, log_bytes, progress, state: ReportState::Ended(Box::new(ended.clone())) };
    // Maps with names as keys can always be encoded.
    let report = serde_json::to_vec(&report).unwrap_or_default();
    let message = TerminationMessage::new(ended, &report);
    if let Some(reason) = &ended.result.reason {
        log_line(&reason.message);
    }
    let unwritten = |error| log_line(&format!("{}: {error}", spec.termination_log));
    let written = message.write(&spec.termination_log).map_err(unwritten);
    if let Some(reporter) = reporter {
        if !watch.wait_for_report(reporter.send_end(report)) {
            log_line("the relay has not taken the report");
        } else if written.is_ok() {
            let _ = message.mark_reported(&spec.termination_log).map_err(unwritten);
        }
    }
}

fn read(path: &Path) -> Result<(EntrypointSpec, RelayAddress), String> {
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    // The version is parsed first, because a later version may have another format.
    let version: SpecVersion = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if version.v != VERSION {
        return Err(format!("it has version {}, and this entrypoint reads {VERSION}", version.v));
    }
    let mut spec: EntrypointSpec = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let relay = spec.relay.take().ok_or("it has no address of a relay")?;
    Ok((spec, relay))
}

#[derive(Deserialize)]
struct SpecVersion {
    v: u32,
}

fn log_line(what: &str) {
    let _ = writeln!(io::stderr(), "ebb-entrypoint: {what}");
}
