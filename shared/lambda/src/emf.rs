//! Metrics as log lines in CloudWatch's embedded metric format.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use ebb_flow::telemetry::{InvocationMetrics, MetricSink};
use metrique_writer::format::Format as _;
use metrique_writer::value::{MetricFlags, Observation, Value, ValueWriter};
use metrique_writer::{Entry, EntryWriter, Unit};
use metrique_writer_format_emf::Emf;

/// The maximum number of values of a metric in one line (*Embedded metric format specification*).
const MAX_VALUES: usize = 100;

/// Writes metrics as lines of JSON.
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
        if let Err(error) = to.write_all(&lines).and_then(|()| to.flush()) {
            tracing::warn!(%error, "cannot write metrics");
        }
    }
}

/// Returns the lines of an invocation.
///
/// Function, request, run and unit are fields, not dimensions: CloudWatch bills each combination of dimensions.
fn lines(namespace: &str, metrics: &InvocationMetrics) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut emf = Emf::builder(namespace.to_owned(), vec![vec![]]).build();
    for part in 0.. {
        let line = EmfLine { metrics, part };
        if line.is_empty() {
            break;
        }
        if let Err(error) = emf.format(&line, &mut lines) {
            tracing::error!(%error, "cannot format metrics");
            return Vec::new();
        }
    }
    lines
}

/// One line: the part `part` of all times. The first line also contains the counts.
struct EmfLine<'a> {
    metrics: &'a InvocationMetrics,
    part: usize,
}

impl EmfLine<'_> {
    fn counts(&self) -> &[(&'static str, u64)] {
        if self.part == 0 { &self.metrics.counts } else { &[] }
    }

    fn times(&self) -> impl Iterator<Item = (&'static str, &[u64])> {
        let times = self.metrics.times.iter();
        times.filter_map(|(name, times)| Some((*name, times.chunks(MAX_VALUES).nth(self.part)?)))
    }

    fn is_empty(&self) -> bool {
        self.counts().is_empty() && self.times().next().is_none()
    }
}

impl Entry for EmfLine<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        let InvocationMetrics { at, function, request_id, run, unit, .. } = self.metrics;
        writer.timestamp(*at);
        writer.value("function", *function);
        for (name, value) in [("requestId", request_id), ("run", run), ("unit", unit)] {
            if let Some(value) = value {
                writer.value(name, value.as_str());
            }
        }
        for (name, count) in self.counts() {
            writer.value(*name, &MetricValues(&[*count]));
        }
        for (name, times) in self.times() {
            writer.value(name, &MetricValues(times));
        }
    }
}

/// The values of one metric. They have no unit, because CloudWatch bills each byte of a line. The page about
/// observability states the units.
struct MetricValues<'a>(&'a [u64]);

impl Value for MetricValues<'_> {
    fn write(&self, writer: impl ValueWriter) {
        let values = self.0.iter().map(|value| Observation::Unsigned(*value));
        writer.metric(values, Unit::None, [], MetricFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::{Value as Json, json};

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
        }
    }

    fn parsed(metrics: &InvocationMetrics) -> Vec<Json> {
        let lines = String::from_utf8(lines("Ebb/test", metrics)).unwrap();
        assert!(lines.ends_with('\n'), "{lines}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn one_line_per_invocation() {
        let times = vec![("SweepLag", vec![0]), ("AttemptTime", vec![250, 900])];
        let mut metrics = metrics(&[("Dispatched", 2), ("Completed", 1)], times);
        let lines = parsed(&metrics);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let about = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(line["_aws"]["Timestamp"], 1_700_000_000_123_u64);
        assert_eq!((&about["Namespace"], &about["Dimensions"]), (&json!("Ebb/test"), &json!([[]])));
        // Units would be an eighth of a line.
        let names = ["Dispatched", "Completed", "SweepLag", "AttemptTime"].map(|name| json!({"Name": name}));
        assert_eq!(about["Metrics"], json!(names));
        for (name, expected) in [
            ("function", json!("complete")),
            ("requestId", Json::Null),
            ("run", json!("k-1-pre-start")),
            ("unit", json!("r/make")),
            ("Dispatched", json!(2)),
            ("SweepLag", json!(0)),
            ("AttemptTime", json!({"Values": [250, 900], "Counts": [1, 1]})),
        ] {
            assert_eq!(line[name], expected, "{name}");
        }
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
