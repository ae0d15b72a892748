//! Metrics and spans as plain values, and the ports that export them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ebb_engine::Timestamp;

/// Returns a time in the form in which it is exported.
pub(super) fn time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    Receive,
    Complete,
    Sweep,
    Api,
}

impl FunctionKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Complete => "complete",
            Self::Sweep => "sweep",
            Self::Api => "api",
        }
    }
}

/// The metrics of an invocation since its last export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationMetrics {
    pub at: SystemTime,
    pub function: &'static str,
    /// The request id, if the invocation has other log lines.
    pub request_id: Option<String>,
    pub run: Option<String>,
    /// The unit of a callback.
    pub unit: Option<String>,
    /// Counts by name, without zeros.
    pub counts: Vec<(&'static str, u64)>,
    /// Times in milliseconds by name.
    pub times: Vec<(&'static str, Vec<u64>)>,
    /// Units that failed, by the name of their plugin.
    pub failed_of_plugins: BTreeMap<String, u64>,
}

pub trait MetricSink: Send + Sync {
    /// Exports the metrics of one invocation, at least one.
    fn take(&self, metrics: &InvocationMetrics);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub id: SpanId,
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: SpanKind,
    pub begun: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, SpanAttribute)>,
    pub links: Vec<SpanId>,
    /// The class of its failure. `None` means that it succeeded.
    pub failure: Option<&'static str>,
}

/// The id of a span and of its trace. Every span is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId {
    pub trace: u128,
    pub span: u64,
    /// True if the id came with a request.
    pub is_remote: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An operation within the program.
    Internal,
    Server,
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanAttribute {
    Text(String),
    Number(i64),
}

#[async_trait]
pub trait SpanSink: Send + Sync {
    /// Exports the spans of one invocation, at least one. The invocation waits for the export.
    async fn take(&self, spans: Vec<Span>);
}
