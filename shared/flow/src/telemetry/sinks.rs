//! The figures and spans of invocations as plain values, and the ports that receive them.

use std::time::SystemTime;

use async_trait::async_trait;

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    Receive,
    Complete,
    Sweep,
    Api,
}

impl FunctionKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Complete => "complete",
            Self::Sweep => "sweep",
            Self::Api => "api",
        }
    }
}

/// The figures of an invocation, or of what it has done since it told some last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvocationMetrics {
    pub at: SystemTime,
    pub function: &'static str,
    /// The id of the invocation, where it helps.
    pub request_id: Option<String>,
    /// The run that the invocation moves on.
    pub run: Option<String>,
    /// The unit that it is about.
    pub unit: Option<String>,
    /// Counts by name, without those that are zero.
    pub counts: Vec<(&'static str, u64)>,
    /// Times in milliseconds by name, without names that have none.
    pub times: Vec<(&'static str, Vec<u64>)>,
}

/// Takes figures.
pub trait MetricSink: Send + Sync {
    /// Takes those of one invocation. There is at least one.
    fn take(&self, figures: &InvocationMetrics);
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub id: SpanId,
    /// The id of the span that it belongs to.
    pub parent: Option<SpanId>,
    pub name: String,
    pub kind: SpanKind,
    pub begun: SystemTime,
    pub ended: SystemTime,
    pub attributes: Vec<(&'static str, SpanAttribute)>,
    /// The ids of spans that it is linked to.
    pub links: Vec<SpanId>,
    /// The class of its failure; `None`: it did not fail.
    pub failure: Option<&'static str>,
}

/// The id of a span, with that of its trace. Every span is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId {
    pub trace: u128,
    pub span: u64,
    /// True if the id came in with a request.
    pub is_remote: bool,
}

/// The kind of a span, as OpenTelemetry defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work that no request asks for.
    Internal,
    Server,
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanAttribute {
    Text(String),
    Number(i64),
}

/// Takes spans.
#[async_trait]
pub trait SpanSink: Send + Sync {
    /// Takes the spans of one invocation, of which there is at least one. The invocation waits for it.
    async fn take(&self, spans: Vec<Span>);
}
