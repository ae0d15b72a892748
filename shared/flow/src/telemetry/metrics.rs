//! Counts the metrics of an invocation.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::sinks::{FunctionKind, InvocationMetrics};

/// The run that the invocation advances, and the unit of a callback.
#[derive(Clone, Debug, Default)]
pub(super) struct InvocationSubject {
    pub(super) run: Option<String>,
    pub(super) unit: Option<String>,
}

/// Defines the counts, each with its meaning.
macro_rules! counters {
    ($($name:ident: $meaning:literal,)*) => {
        /// A count, by its position in [`METRIC_COUNTS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Counter { $($name),* }

        /// The counts, each with its meaning.
        pub const METRIC_COUNTS: [(&str, &str); [$($meaning),*].len()] = [$((stringify!($name), $meaning)),*];
    };
}

counters! {
    Dispatched: "Requests for attempts, repetitions included.",
    Completed: "Attempts that succeeded.",
    Retried: "Attempts that failed and are followed by another attempt.",
    Failed: "Attempts that failed, and their unit with them.",
    LateResults: "Results of attempts that had been given up.",
    ItemsSwept: "Runs and targets that sweeps checked.",
    Orphaned: "Orphans that scans found in clusters.",
    Stuck: "Teardowns that gave up.",
    UnconfirmedRemovals: "Resources of gone targets without evidence of their removal.",
    ExcessResults: "Successes beyond those that are kept of an attempt.",
    Undelivered: "Notifications of subscriptions that were given up.",
    RejectedEvents: "Events of sources that were rejected.",
    IncompleteLists: "Lists of senders that failed, were incomplete or shrank.",
    Outages: "Clusters whose relay did not respond, once for each sweep.",
}

/// The times in milliseconds, each with its meaning.
pub const METRIC_TIMES: [(&str, &str); 5] = [
    ("SweepLag", "Time for which the most urgent item of a sweep was due."),
    ("FirstDispatch", "Time from a lifecycle webhook to the first request for a unit."),
    ("NextDispatch", "Time from a result to the next request."),
    ("AttemptTime", "Time from the request for an attempt to its result."),
    ("RunTime", "Time from the start of a run to its end."),
];

pub fn metric_names() -> impl Iterator<Item = &'static str> {
    METRIC_COUNTS.into_iter().chain(METRIC_TIMES).map(|(name, _)| name)
}

/// Counters, and times in milliseconds.
#[derive(Debug, Default)]
pub(super) struct MetricCounters {
    counts: [u64; METRIC_COUNTS.len()],
    pub(super) sweep_lag: Option<u64>,
    first_dispatch: Option<u64>,
    next_dispatch: Option<u64>,
    attempt_times: Vec<u64>,
    pub(super) run_times: Vec<u64>,
    pub(super) failed_of_plugins: BTreeMap<String, u64>,
}

impl MetricCounters {
    pub(super) fn add(&mut self, counter: Counter, number: u64) {
        self.counts[counter as usize] += number;
    }

    /// Counts a dispatch, `after` milliseconds after its cause was received.
    pub(super) fn count_dispatch(&mut self, function: FunctionKind, after: u64) {
        self.add(Counter::Dispatched, 1);
        let first = match function {
            FunctionKind::Receive => &mut self.first_dispatch,
            FunctionKind::Complete => &mut self.next_dispatch,
            FunctionKind::Sweep | FunctionKind::Api => return,
        };
        first.get_or_insert(after);
    }

    /// Counts an attempt, with its duration in milliseconds if it is known.
    pub(super) fn count_attempt(&mut self, end: Counter, duration: Option<u64>) {
        self.add(end, 1);
        self.attempt_times.extend(duration);
    }

    pub(super) fn into_metrics(
        self,
        function: FunctionKind,
        request: &str,
        subject: &InvocationSubject,
        at: SystemTime,
    ) -> Option<InvocationMetrics> {
        // With the request id, other log lines of the invocation can be found. A successful invocation with a run has
        // no other lines by default, so the id would have no use.
        let has_failed = [Counter::Failed, Counter::Retried].iter().any(|&counter| self.counts[counter as usize] > 0);
        let has_request = !request.is_empty() && (subject.run.is_none() || has_failed);
        let times = [
            Vec::from_iter(self.sweep_lag),
            Vec::from_iter(self.first_dispatch),
            Vec::from_iter(self.next_dispatch),
            self.attempt_times,
            self.run_times,
        ];
        let counts = METRIC_COUNTS.map(|(name, _)| name).into_iter().zip(self.counts);
        let times = METRIC_TIMES.map(|(name, _)| name).into_iter().zip(times);
        let metrics = InvocationMetrics {
            at,
            function: function.name(),
            request_id: has_request.then(|| request.to_owned()),
            run: subject.run.clone(),
            unit: subject.unit.clone(),
            counts: counts.filter(|(_, count)| *count > 0).collect(),
            times: times.filter(|(_, times)| !times.is_empty()).collect(),
            failed_of_plugins: self.failed_of_plugins,
        };
        (!metrics.counts.is_empty() || !metrics.times.is_empty()).then_some(metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    #[test]
    fn metrics_have_only_recorded_values() {
        let mut counters = MetricCounters { sweep_lag: Some(0), ..MetricCounters::default() };
        counters.add(Counter::Stuck, 1);
        counters.count_dispatch(FunctionKind::Complete, 12);
        counters.count_dispatch(FunctionKind::Complete, 30);
        counters.count_attempt(Counter::Completed, Some(250));
        counters.count_attempt(Counter::Completed, Some(900));
        let subject = InvocationSubject { run: Some("k-1-pre-start".to_owned()), unit: Some("r/make".to_owned()) };
        let metrics = counters.into_metrics(FunctionKind::Complete, "r-1", &subject, AT).unwrap();
        assert_eq!(
            metrics,
            InvocationMetrics {
                at: AT,
                function: "complete",
                request_id: None,
                run: Some("k-1-pre-start".to_owned()),
                unit: Some("r/make".to_owned()),
                counts: vec![("Dispatched", 2), ("Completed", 2), ("Stuck", 1)],
                times: vec![("SweepLag", vec![0]), ("NextDispatch", vec![12]), ("AttemptTime", vec![250, 900])],
                failed_of_plugins: BTreeMap::new(),
            }
        );
        assert_eq!(MetricCounters::default().into_metrics(FunctionKind::Api, "r-1", &subject, AT), None);
    }

    #[test]
    fn metrics_have_the_request_id_if_it_has_other_log_lines() {
        let request = |end, run: Option<&str>| {
            let mut counters = MetricCounters::default();
            counters.count_attempt(end, None);
            let subject = InvocationSubject { run: run.map(str::to_owned), unit: None };
            counters.into_metrics(FunctionKind::Complete, "r-1", &subject, AT).unwrap().request_id
        };
        assert_eq!(request(Counter::Completed, Some("k-1-pre-start")), None);
        for (end, run) in [(Counter::Completed, None), (Counter::Retried, Some("k")), (Counter::Failed, Some("k"))] {
            assert_eq!(request(end, run).as_deref(), Some("r-1"));
        }
    }
}
