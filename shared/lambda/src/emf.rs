//! Figures as lines of CloudWatch's embedded metric format.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use ebb_flow::telemetry::{InvocationMetrics, MetricSink};
use metrique_writer::format::Format as _;
use metrique_writer::unit::{Millisecond, UnitTag as _};
use metrique_writer::value::{MetricFlags, Observation, Value, ValueWriter};
use metrique_writer::{Entry, EntryWriter, Unit};
use metrique_writer_format_emf::Emf;

/// Values of one figure that CloudWatch takes of a line (*Embedded metric format specification*).
const MAX_VALUES: usize = 100;

/// Writes figures as lines.
pub struct EmfSink {
    namespace: String,
    to: Mutex<Box<dyn Write + Send>>,
}

impl EmfSink {
    /// Writes to `to`, in a namespace of CloudWatch's.
    pub fn new(namespace: &str, to: Box<dyn Write + Send>) -> Self {
        Self { namespace: namespace.to_owned(), to: Mutex::new(to) }
    }
}

impl MetricSink for EmfSink {
    fn take(&self, figures: &InvocationMetrics) {
        let lines = lines(&self.namespace, figures);
        // Whole lines are written, whatever became of the last one.
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = to.write_all(&lines).and_then(|()| to.flush()) {
            tracing::warn!(%error, "figures were not written");
        }
    }
}

/// The lines, each with its end. Function, request, run and unit are fields and no dimensions: each figure costs once.
fn lines(namespace: &str, figures: &InvocationMetrics) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut emf = Emf::builder(namespace.to_owned(), vec![vec![]]).build();
    for part in 0.. {
        let line = EmfLine { figures, part };
        if line.is_empty() {
            break;
        }
        if let Err(error) = emf.format(&line, &mut lines) {
            tracing::error!(%error, "the figures cannot be written");
            return Vec::new();
        }
    }
    lines
}

/// The counts, in the first one, and so many times as go into one.
struct EmfLine<'a> {
    figures: &'a InvocationMetrics,
    part: usize,
}

impl EmfLine<'_> {
    fn counts(&self) -> &[(&'static str, u64)] {
        if self.part == 0 { &self.figures.counts } else { &[] }
    }

    fn times(&self) -> impl Iterator<Item = (&'static str, &[u64])> {
        let times = self.figures.times.iter();
        times.filter_map(|(name, times)| Some((*name, times.chunks(MAX_VALUES).nth(self.part)?)))
    }

    fn is_empty(&self) -> bool {
        self.counts().is_empty() && self.times().next().is_none()
    }
}

impl Entry for EmfLine<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        let InvocationMetrics { at, function, request_id, run, unit, .. } = self.figures;
        writer.timestamp(*at);
        writer.value("function", *function);
        for (name, about) in [("requestId", request_id), ("run", run), ("unit", unit)] {
            if let Some(about) = about {
                writer.value(name, about.as_str());
            }
        }
        for (name, count) in self.counts() {
            writer.value(*name, &MetricValues(&[*count], Unit::Count));
        }
        for (name, times) in self.times() {
            writer.value(name, &MetricValues(times, Millisecond::UNIT));
        }
    }
}

/// One figure with all that was seen of it.
struct MetricValues<'a>(&'a [u64], Unit);

impl Value for MetricValues<'_> {
    fn write(&self, writer: impl ValueWriter) {
        let seen = self.0.iter().map(|seen| Observation::Unsigned(*seen));
        writer.metric(seen, self.1, [], MetricFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::{Value as Json, json};

    use super::*;

    fn figures(counts: &[(&'static str, u64)], times: Vec<(&'static str, Vec<u64>)>) -> InvocationMetrics {
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

    fn parsed(figures: &InvocationMetrics) -> Vec<Json> {
        let lines = String::from_utf8(lines("Ebb/test", figures)).unwrap();
        assert!(lines.ends_with('\n'), "{lines}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn one_line_with_what_there_is() {
        let times = vec![("SweepLag", vec![0]), ("AttemptTime", vec![250, 900])];
        let mut figures = figures(&[("Dispatched", 2), ("Completed", 1)], times);
        let lines = parsed(&figures);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        let about = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(line["_aws"]["Timestamp"], 1_700_000_000_123_u64);
        assert_eq!((&about["Namespace"], &about["Dimensions"]), (&json!("Ebb/test"), &json!([[]])));
        let metrics = [
            ("Dispatched", "Count"),
            ("Completed", "Count"),
            ("SweepLag", "Milliseconds"),
            ("AttemptTime", "Milliseconds"),
        ];
        let named = |metric: &Json| (metric["Name"].clone(), metric["Unit"].clone());
        let names: Vec<_> = about["Metrics"].as_array().unwrap().iter().map(named).collect();
        assert_eq!(names, metrics.map(|(name, unit)| (json!(name), json!(unit))));
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
        figures.request_id = Some("r-1".to_owned());
        assert_eq!(parsed(&figures)[0]["requestId"], "r-1");
    }

    #[test]
    fn no_line_has_more_values_than_are_taken() {
        let lines = parsed(&figures(&[("Completed", 250)], vec![("AttemptTime", (0..250).collect())]));
        let values = lines.iter().map(|line| line["AttemptTime"]["Values"].as_array().unwrap().len());
        assert_eq!(values.collect::<Vec<_>>(), [100, 100, 50]);
        assert_eq!(lines.iter().filter_map(|line| line["Completed"].as_u64()).collect::<Vec<_>>(), [250]);
    }
}
