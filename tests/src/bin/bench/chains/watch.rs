//! The times at which a watch reports Jobs.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use serde_json::{Deserializer, Value};

use super::ChainsArgs;

/// Maximum time between two Jobs.
const JOB_TIMEOUT: Duration = Duration::from_secs(60);

/// A running watch. It ends when this is dropped.
pub(crate) struct JobWatch {
    kubectl: Child,
    seen: Receiver<(String, SystemTime)>,
}

impl JobWatch {
    /// Starts a watch. No Job may exist yet.
    pub(crate) fn start(arguments: &ChainsArgs) -> anyhow::Result<Self> {
        let mut kubectl = arguments.kubectl();
        kubectl.args(["get", "jobs", "--watch", "--output-watch-events", "--output", "json"]);
        let mut kubectl = kubectl.stdout(Stdio::piped()).spawn().context("cannot start kubectl")?;
        let events = kubectl.stdout.take().context("kubectl has no pipe")?;
        let (sender, seen) = channel();
        std::thread::spawn(move || {
            for event in Deserializer::from_reader(events).into_iter::<Value>() {
                let Ok(event) = event else { return };
                let (now, name) = (SystemTime::now(), &event["object"]["metadata"]["name"]);
                if let (Some("ADDED"), Some(name)) = (event["type"].as_str(), name.as_str())
                    && sender.send((name.to_owned(), now)).is_err()
                {
                    return;
                }
            }
        });
        // The watch starts with a list, whose end is not reported.
        std::thread::sleep(Duration::from_secs(1));
        Ok(Self { kubectl, seen })
    }

    /// Waits for this number of Jobs and returns the times of their first events, in order.
    pub(crate) fn stop(self, jobs: usize) -> anyhow::Result<Vec<SystemTime>> {
        let mut first: BTreeMap<String, SystemTime> = BTreeMap::new();
        while first.len() < jobs {
            match self.seen.recv_timeout(JOB_TIMEOUT) {
                Ok((name, time)) => {
                    first.entry(name).or_insert(time);
                }
                Err(_) => bail!("only {} Jobs were seen", first.len()),
            }
        }
        let mut times: Vec<SystemTime> = first.into_values().collect();
        times.sort_unstable();
        Ok(times)
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}
