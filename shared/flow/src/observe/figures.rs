//! Figures of an invocation as lines of CloudWatch's embedded metric format.

use std::time::{Duration, SystemTime};

use metrique_writer::format::Format as _;
use metrique_writer::unit::{Millisecond, UnitTag as _};
use metrique_writer::value::{MetricFlags, Observation, Value, ValueWriter};
use metrique_writer::{Entry, EntryWriter, Unit};
use metrique_writer_format_emf::Emf;

use super::telemetry::Function;
use super::{End, Subject};

/// Values of one figure that CloudWatch takes of a line (*Embedded metric format specification*).
const VALUES: usize = 100;

/// All names that a figure may have.
pub const NAMES: [&str; 14] = [
    "Dispatched",
    "Completed",
    "Retried",
    "Failed",
    "LateResults",
    "Swept",
    "Orphaned",
    "Stuck",
    "ExcessResults",
    "Late",
    "FirstDispatch",
    "NextDispatch",
    "UnitTime",
    "RunTime",
];

/// What is counted, and times in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Figures {
    dispatched: u64,
    completed: u64,
    retried: u64,
    failed: u64,
    pub(super) late_results: u64,
    pub(super) swept: u64,
    pub(super) orphaned: u64,
    pub(super) stuck: u64,
    pub(super) excess_results: u64,
    pub(super) late: Option<u64>,
    first_dispatch: Option<u64>,
    next_dispatch: Option<u64>,
    unit_times: Vec<u64>,
    run_times: Vec<u64>,
}

impl Figures {
    /// A request goes out so long after what led to it has come in.
    pub(super) fn sends(&mut self, function: Function, after: u64) {
        self.dispatched += 1;
        let first = match function {
            Function::Receive => &mut self.first_dispatch,
            Function::Complete => &mut self.next_dispatch,
            Function::Sweep | Function::Api => return,
        };
        first.get_or_insert(after);
    }

    /// A try has ended, after so many milliseconds if that is known.
    pub(super) fn ended(&mut self, end: End, took: Option<u64>) {
        match end {
            End::Completed => self.completed += 1,
            End::Retried => self.retried += 1,
            End::Failed => self.failed += 1,
        }
        self.unit_times.extend(took);
    }

    pub(super) fn run_time(&mut self, millis: u64) {
        self.run_times.push(millis);
    }

    fn counts(&self) -> [(&'static str, u64); 9] {
        [
            (NAMES[0], self.dispatched),
            (NAMES[1], self.completed),
            (NAMES[2], self.retried),
            (NAMES[3], self.failed),
            (NAMES[4], self.late_results),
            (NAMES[5], self.swept),
            (NAMES[6], self.orphaned),
            (NAMES[7], self.stuck),
            (NAMES[8], self.excess_results),
        ]
    }

    fn times(&self) -> [(&'static str, &[u64]); 5] {
        [
            (NAMES[9], self.late.as_slice()),
            (NAMES[10], self.first_dispatch.as_slice()),
            (NAMES[11], self.next_dispatch.as_slice()),
            (NAMES[12], self.unit_times.as_slice()),
            (NAMES[13], self.run_times.as_slice()),
        ]
    }

    /// The lines, each with its end; nothing where there is nothing to tell. Function, request, run and unit are fields and no
    /// dimensions: each figure costs once.
    pub(super) fn lines(
        &self,
        namespace: &str,
        function: Function,
        request: &str,
        subject: &Subject,
        now: u64,
    ) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut emf = Emf::builder(namespace.to_owned(), vec![vec![]]).build();
        for part in 0.. {
            let line = Line { figures: self, part, function: function.name(), request, subject, now };
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
}

/// The counts, in the first one, and so many times as go into one.
struct Line<'a> {
    figures: &'a Figures,
    part: usize,
    function: &'static str,
    request: &'a str,
    subject: &'a Subject,
    now: u64,
}

impl Line<'_> {
    fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.figures.counts().into_iter().filter(|(_, count)| *count > 0);
        counts.take(if self.part == 0 { usize::MAX } else { 0 })
    }

    fn times(&self) -> impl Iterator<Item = (&'static str, &[u64])> {
        let times = self.figures.times().into_iter();
        times.filter_map(|(name, times)| Some((name, times.chunks(VALUES).nth(self.part)?)))
    }

    /// Returns whether the line has the id of the invocation. It leads to the other lines of the invocation. An invocation
    /// that has a run to name and in which nothing failed has no other lines by default, and each byte has its price.
    fn has_request(&self) -> bool {
        let failures = self.figures.failed + self.figures.retried;
        !self.request.is_empty() && (self.subject.run.is_none() || failures > 0)
    }

    fn is_empty(&self) -> bool {
        self.counts().next().is_none() && self.times().next().is_none()
    }
}

impl Entry for Line<'_> {
    fn write<'a>(&'a self, writer: &mut impl EntryWriter<'a>) {
        writer.timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(self.now));
        writer.value("function", self.function);
        if self.has_request() {
            writer.value("request", self.request);
        }
        for (name, about) in [("run", &self.subject.run), ("unit", &self.subject.unit)] {
            if let Some(about) = about {
                writer.value(name, about.as_str());
            }
        }
        for (name, count) in self.counts() {
            writer.value(name, &Figure(&[count], Unit::Count));
        }
        for (name, times) in self.times() {
            writer.value(name, &Figure(times, Millisecond::UNIT));
        }
    }
}

/// One figure with all that was seen of it.
struct Figure<'a>(&'a [u64], Unit);

impl Value for Figure<'_> {
    fn write(&self, writer: impl ValueWriter) {
        let seen = self.0.iter().map(|seen| Observation::Unsigned(*seen));
        writer.metric(seen, self.1, [], MetricFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    #[test]
    fn one_line_with_what_there_is() {
        let mut figures = Figures { stuck: 1, late: Some(0), ..Figures::default() };
        figures.sends(Function::Complete, 12);
        figures.sends(Function::Complete, 30);
        figures.ended(End::Completed, Some(250));
        figures.ended(End::Completed, Some(900));
        let subject = Subject { run: Some("k-1-pre-start".to_owned()), unit: Some("r/make".to_owned()) };
        let line = figures.lines("Ebb/test", Function::Complete, "r-1", &subject, 1_700_000_000_123);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let line: Json = serde_json::from_slice(&line).unwrap();
        let about = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(line["_aws"]["Timestamp"], 1_700_000_000_123_u64);
        assert_eq!((&about["Namespace"], &about["Dimensions"]), (&json!("Ebb/test"), &json!([[]])));
        let names: Vec<(&str, &str)> = about["Metrics"].as_array().unwrap().iter().map(named).collect();
        let count = ["Dispatched", "Completed", "Stuck"].map(|name| (name, "Count"));
        let times = ["Late", "NextDispatch", "UnitTime"].map(|name| (name, "Milliseconds"));
        assert_eq!(names, [count, times].concat());
        assert!(names.iter().all(|(name, _)| NAMES.contains(name)));
        for (name, expected) in [
            ("function", json!("complete")),
            ("request", Json::Null),
            ("run", json!("k-1-pre-start")),
            ("unit", json!("r/make")),
            ("Dispatched", json!(2)),
            ("Late", json!(0)),
            ("NextDispatch", json!(12)),
            ("UnitTime", json!({"Values": [250, 900], "Counts": [1, 1]})),
        ] {
            assert_eq!(line[name], expected, "{name}");
        }
    }

    fn named(metric: &Json) -> (&str, &str) {
        (metric["Name"].as_str().unwrap(), metric["Unit"].as_str().unwrap())
    }

    #[test]
    fn a_line_has_the_request_where_it_helps() {
        let request = |end, run: Option<&str>| {
            let mut figures = Figures::default();
            figures.ended(end, None);
            let subject = Subject { run: run.map(str::to_owned), unit: None };
            let line = figures.lines("Ebb/test", Function::Complete, "r-1", &subject, 1);
            serde_json::from_slice::<Json>(&line).unwrap()["request"].clone()
        };
        assert_eq!(request(End::Completed, Some("k-1-pre-start")), Json::Null);
        for (end, run) in [(End::Completed, None), (End::Retried, Some("k")), (End::Failed, Some("k"))] {
            assert_eq!(request(end, run), "r-1");
        }
    }

    #[test]
    fn no_line_has_more_values_than_are_taken() {
        let mut figures = Figures::default();
        (0..250).for_each(|took| figures.ended(End::Completed, Some(took)));
        let lines = figures.lines("Ebb/test", Function::Sweep, "r-1", &Subject::default(), 1);
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<Json> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        let values = lines.iter().map(|line| line["UnitTime"]["Values"].as_array().unwrap().len());
        assert_eq!(values.collect::<Vec<_>>(), [100, 100, 50]);
        assert_eq!(lines.iter().filter_map(|line| line["Completed"].as_u64()).collect::<Vec<_>>(), [250]);
    }

    #[test]
    fn an_invocation_without_figures_says_nothing() {
        assert!(
            Figures::default().lines("Ebb/test", Function::Api, "r-1", &Subject::default(), 0).is_empty()
        );
    }
}
