//! Reports to the relay: heartbeats with the progress while the script runs, then its end until the relay acknowledges
//! it.
//!
//! One thread sends both, so that no heartbeat follows the end. The script never waits for this thread.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use ebb_protocol::entrypoint::{RelayAddress, ReportState, ScriptReport, VERSION};
use ebb_protocol::{ScriptOutput, TRACEPARENT};
use ebb_script::{LogTail, WatchEvent, millis};
use ureq::Agent;
use ureq::http::Uri;

/// The timeout of a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The time between two looks at the progress of the script, and between two reports because of it.
const PROGRESS_POLL: Duration = Duration::from_secs(1);
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);
/// The timeout of one attempt of the last report.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest timeout of the last report.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The pauses between attempts. Jitter of up to the same length spreads the reports to a restarted relay.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct RelayReporter {
    end: Sender<Vec<u8>>,
    retry_for: Duration,
}

impl RelayReporter {
    /// Starts the heartbeats, whose progress has no sensitive value of `outputs`. Returns an error if the address is invalid.
    pub(crate) fn start(
        address: RelayAddress,
        trace: Option<String>,
        outputs: Vec<ScriptOutput>,
        tail: &LogTail,
        events: Sender<WatchEvent>,
    ) -> Result<Self, String> {
        check(&address.url)?;
        let (end, inbox) = channel();
        let retry_for = millis(address.report_retry_ms);
        let relay = ReportClient {
            agent: Agent::new_with_config(
                // A proxy in the environment of the image must not receive reports.
                Agent::config_builder().proxy(None).max_redirects(0).http_status_as_error(false).build(),
            ),
            address,
            trace,
            outputs,
        };
        let tail = tail.clone();
        thread::spawn(move || relay.run(&tail, &inbox, retry_for, &events));
        Ok(Self { end, retry_for })
    }

    /// Starts to report the end. [`WatchEvent::Reported`] has the outcome. Returns the maximum duration of the report.
    pub(crate) fn send_end(&self, body: Vec<u8>) -> Duration {
        // The thread keeps the receiver until it has received the end.
        let _ = self.end.send(body);
        self.retry_for + HEARTBEAT + MIN_TIMEOUT
    }
}

struct ReportClient {
    agent: Agent,
    address: RelayAddress,
    /// The W3C trace context of the requests.
    trace: Option<String>,
    outputs: Vec<ScriptOutput>,
}

impl ReportClient {
    fn run(&self, tail: &LogTail, inbox: &Receiver<Vec<u8>>, retry_for: Duration, events: &Sender<WatchEvent>) {
        // A pause of 0 would be a busy loop.
        let pause = millis(self.address.heartbeat_ms.max(10));
        let (mut last, mut reported) = (Instant::now(), None);
        let end = loop {
            match inbox.recv_timeout(pause.min(PROGRESS_POLL)) {
                Ok(end) => break end,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let line = tail.progress();
            // The first progress is reported at once.
            let is_new = line != reported && (reported.is_none() || last.elapsed() >= PROGRESS_PAUSE);
            if !is_new && last.elapsed() < pause {
                continue;
            }
            let progress = line.as_ref().and_then(|line| line.text(&self.outputs));
            (last, reported) = (Instant::now(), line);
            let report = ScriptReport { v: VERSION, log_bytes: tail.total(), progress, state: ReportState::Running };
            if let Ok(body) = serde_json::to_vec(&report) {
                self.post(&body, HEARTBEAT);
            }
        };
        // The receiver is dropped only when this process is about to exit.
        let _ = events.send(WatchEvent::Reported(self.deliver(&end, retry_for)));
    }

    fn deliver(&self, body: &[u8], retry_for: Duration) -> bool {
        let until = Instant::now() + retry_for;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(MIN_PAUSE)
            .with_max_delay(MAX_PAUSE)
            .with_jitter()
            .without_max_times();
        for pause in pauses.build() {
            let left = until.saturating_duration_since(Instant::now());
            if let Some(is_taken) = self.post(body, left.clamp(MIN_TIMEOUT, ATTEMPT_TIMEOUT)) {
                return is_taken;
            }
            if Instant::now() + pause >= until {
                return false;
            }
            thread::sleep(pause);
        }
        false
    }

    /// Returns true if the relay has taken the report, false if it needs none, and `None` if the report may be repeated.
    fn post(&self, body: &[u8], most: Duration) -> Option<bool> {
        let request = self.agent.post(&self.address.url).config().timeout_global(Some(most)).build();
        let request = request
            .header("authorization", format!("Bearer {}", self.address.token))
            .header("content-type", "application/json");
        let request = if let Some(trace) = &self.trace { request.header(TRACEPARENT, trace) } else { request };
        match request.send(body).map(|answer| answer.status().as_u16()) {
            Ok(200..=299) => Some(true),
            Ok(410) => Some(false),
            _ => None,
        }
    }
}

/// Checks the address of a relay. It must be an IP address, because resolving a name needs files that an image may
/// lack.
fn check(url: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("the relay's address {url:?} {why}"));
    let Ok(parsed) = url.parse::<Uri>() else { return wrong("is not a URL") };
    if parsed.scheme_str() != Some("http") {
        return wrong("does not begin with http://");
    }
    let host = parsed.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    if host.parse::<IpAddr>().is_err() { wrong("has a name where an IP address belongs") } else { Ok(()) }
}
