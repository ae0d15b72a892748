//! Metrics as log lines in CloudWatch's embedded metric format.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ebb_flow::telemetry::{InvocationMetrics, MetricSink};
use serde_json::{Value, json};

/// The maximum number of values of a metric in one line (*Embedded metric format specification*).
const MAX_VALUES: usize = 100;

pub struct EmfSink {
    namespace: String,
    to: Mutex<Box<dyn Write + Send>>,
}

impl EmfSink {
    /// Returns a sink that writes to `to`, with a namespace of CloudWatch.
    pub fn new(namespace: &str, to: Box<dyn Write + Send>) -> Self {
        Self { namespace: namespace.to_owned(), to: Mutex::new(to) }
    }
}

impl MetricSink for EmfSink {
    fn take(&self, metrics: &InvocationMetrics) {
        let lines = lines(&self.namespace, metrics);
        // Each write is a whole line, so a panic during an earlier write is harmless.
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = to.write_all(lines.as_bytes()).and_then(|()| to.flush()) {
            tracing::warn!(%error, "cannot write metrics");
        }
    }
}

/// Returns the lines of an invocation. The first one has all counts, and each one a part of the times.
///
/// Function, request, run and unit are fields, not dimensions: CloudWatch bills each combination of dimensions. Metrics have no
/// unit, because CloudWatch bills each byte of a line. The page about observability states the units.
fn lines(namespace: &str, metrics: &InvocationMetrics) -> String {
    // CloudWatch would bill a metric for each plugin.
    let InvocationMetrics { at, function, request_id, run, unit, counts, times, failed_of_plugins: _ } = metrics;
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let parts = times.iter().map(|(_, times)| times.len().div_ceil(MAX_VALUES)).max().unwrap_or(0);
    let line = |part: usize| {
        let counts = counts.iter().filter(|_| part == 0).map(|(name, count)| (*name, json!(count)));
        let times = times.iter().filter_map(|(name, times)| {
            let times = times.chunks(MAX_VALUES).nth(part)?;
            let value = match times {
                [time] => json!(time),
                _ => json!({"Values": times, "Counts": vec![1; times.len()]}),
            };
            Some((*name, value))
        });
        let values: Vec<(&str, Value)> = counts.chain(times).collect();
        let names: Vec<Value> = values.iter().map(|(name, _)| json!({"Name": name})).collect();
        let directive = json!({"Namespace": namespace, "Dimensions": [[]], "Metrics": names});
        let mut line = json!({
            "_aws": {"Timestamp": u64::try_from(at).unwrap_or(u64::MAX), "CloudWatchMetrics": [directive]},
            "function": function,
        });
        let fields = [("requestId", request_id), ("run", run), ("unit", unit)];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name, json!(value.as_ref()?))));
        fields.chain(values).for_each(|(name, value)| line[name] = value);
        format!("{line}\n")
    };
    (0..parts.max(1)).map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn metrics(counts: &[(&'static str, u64)], times: Vec<(&'static str, Vec<u64>)>) -> InvocationMetrics {
        InvocationMetrics {
            at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
            function: "complete",
            request_id: None,
            run: Some("k-1-pre-start".to_owned()),
            unit: Some("r/make".to_owned()),
            counts: counts.to_vec(),
            times,
            failed_of_plugins: BTreeMap::from([("db".to_owned(), 1)]),
        }
    }

    fn parsed(metrics: &InvocationMetrics) -> Vec<Value> {
        let lines = lines("Ebb/test", metrics);
        assert!(lines.ends_with('\n'), "{lines}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn one_line_per_invocation() {
        let times = vec![("SweepLag", vec![0]), ("AttemptTime", vec![250, 900])];
        let mut metrics = metrics(&[("Dispatched", 2), ("Completed", 1)], times);
        let lines = parsed(&metrics);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        // Units would be an eighth of a line.
        let expected: Value = serde_json::from_str(include_str!("emf_line.json")).unwrap();
        assert_eq!(*line, expected);
        metrics.request_id = Some("r-1".to_owned());
        assert_eq!(parsed(&metrics)[0]["requestId"], "r-1");
    }

    #[test]
    fn lines_have_at_most_100_values() {
        let lines = parsed(&metrics(&[("Completed", 250)], vec![("AttemptTime", (0..250).collect())]));
        let values = lines.iter().map(|line| line["AttemptTime"]["Values"].as_array().unwrap().len());
        assert_eq!(values.collect::<Vec<_>>(), [100, 100, 50]);
        assert_eq!(lines.iter().filter_map(|line| line["Completed"].as_u64()).collect::<Vec<_>>(), [250]);
    }
}
