//! Exports spans to a collector by OTLP over HTTP.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use ebb_flow::telemetry::{Span, SpanAttribute, SpanId, SpanKind, SpanSink};
use http::{HeaderName, HeaderValue};
use opentelemetry::trace::{self, Link, SpanContext, Status, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, TraceFlags};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use percent_encoding::percent_decode_str;

/// The timeout of an export. It delays the response to the caller.
const EXPORT_TIMEOUT: Duration = Duration::from_millis(800);

/// The time after which an idle connection is not used again.
const IDLE: Duration = Duration::from_secs(15);

const NO_URL: &str = "OTEL_EXPORTER_OTLP_ENDPOINT is not an http:// or https:// URL";
const INVALID_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS is invalid: expected NAME=VALUE, separated by commas, with \
                               percent-encoded values";

pub struct OtlpExporter(opentelemetry_otlp::SpanExporter);

impl OtlpExporter {
    /// Opens the exporter for `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_HEADERS`, as OpenTelemetry defines
    /// them. Returns `None` if there is no endpoint. Sends no request.
    ///
    /// # Errors
    /// Invalid settings give a text for operators, without the headers. A collector without a response is no error.
    pub fn open(endpoint: &str, headers: &str) -> Result<Option<Self>, &'static str> {
        if endpoint.is_empty() {
            return Ok(None);
        }
        if !url::Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            return Err(NO_URL);
        }
        // Connections of a frozen function are dead, and headers must not follow a redirect.
        let client = reqwest::Client::builder().pool_idle_timeout(IDLE).redirect(reqwest::redirect::Policy::none());
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client.build().map_err(|_| "cannot create an HTTP client")?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(EXPORT_TIMEOUT)
            .with_headers(parsed(headers).ok_or(INVALID_HEADERS)?);
        let mut exporter = exporter.build().map_err(|_| NO_URL)?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("ebb");
        }
        exporter.set_resource(&resource.build());
        Ok(Some(Self(exporter)))
    }
}

fn parsed(headers: &str) -> Option<HashMap<String, String>> {
    headers.split(',').filter(|one| !one.trim().is_empty()).map(header).collect()
}

fn header(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let name: HeaderName = name.trim().parse().ok()?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
    HeaderValue::from_str(&value).ok()?;
    Some((name.to_string(), value.into_owned()))
}

#[async_trait]
impl SpanSink for OtlpExporter {
    /// Exports spans. Spans that are not accepted in time are lost.
    async fn take(&self, spans: Vec<Span>) {
        let count = spans.len();
        let export = self.0.export(spans.into_iter().map(span_data).collect());
        // The error is not logged, because it may contain a URL or headers.
        match tokio::time::timeout(EXPORT_TIMEOUT, export).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::warn!(count, "the collector rejected spans; they are lost"),
            Err(_) => tracing::warn!(count, "the collector does not respond; spans are lost"),
        }
    }
}

fn span_data(span: Span) -> SpanData {
    let parent = span.parent.map(context);
    let mut links = SpanLinks::default();
    links.links = span.links.into_iter().map(|id| Link::with_context(context(id))).collect();
    SpanData {
        span_context: context(span.id),
        parent_span_id: parent.as_ref().map_or(opentelemetry::SpanId::INVALID, SpanContext::span_id),
        parent_span_is_remote: parent.is_some_and(|parent| parent.is_remote()),
        span_kind: match span.kind {
            SpanKind::Internal => trace::SpanKind::Internal,
            SpanKind::Server => trace::SpanKind::Server,
            SpanKind::Client => trace::SpanKind::Client,
        },
        name: span.name.into(),
        start_time: span.begun,
        end_time: span.ended,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: span.failure.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("ebb").build(),
    }
}

fn context(SpanId { trace, span, is_remote }: SpanId) -> SpanContext {
    SpanContext::new(trace.into(), span.into(), TraceFlags::SAMPLED, is_remote, TraceState::NONE)
}

fn attribute((name, value): (&'static str, SpanAttribute)) -> KeyValue {
    match value {
        SpanAttribute::Text(text) => KeyValue::new(name, text),
        SpanAttribute::Number(number) => KeyValue::new(name, number),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, SystemTime};

    use tokio::net::TcpListener;

    use super::*;

    fn span() -> Span {
        let id = |trace, span| SpanId { trace, span, is_remote: false };
        Span {
            id: id(1, 2),
            parent: Some(SpanId { trace: 1, span: 3, is_remote: true }),
            name: "attempt r/make".to_owned(),
            kind: SpanKind::Client,
            begun: SystemTime::UNIX_EPOCH,
            ended: SystemTime::UNIX_EPOCH + EXPORT_TIMEOUT,
            attributes: vec![
                ("ebb.unit", SpanAttribute::Text("r/make".to_owned())),
                ("ebb.attempt", SpanAttribute::Number(2)),
            ],
            links: vec![id(4, 5)],
            failure: Some("failed"),
        }
    }

    #[test]
    fn variables_are_parsed() {
        assert!(OtlpExporter::open("", "a=b").unwrap().is_none());
        assert!(OtlpExporter::open("https://o.test:4318/", "").unwrap().is_some());
        let headers = [("authorization", "Bearer x"), ("api-key", "1")];
        let expected = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(parsed("Authorization=Bearer%20x, api-key=1"), Some(expected));
        for (endpoint, headers) in
            [("collector:4318", ""), ("ftp://o", ""), ("http://o", "canary"), ("http://o", "a=can%0Aary")]
        {
            let error = OtlpExporter::open(endpoint, headers).err().unwrap().to_string();
            assert!(!error.contains("can"), "{error}");
        }
    }

    #[test]
    fn spans_are_converted_completely() {
        let data = span_data(span());
        assert_eq!(data.span_context.trace_id().to_string(), "00000000000000000000000000000001");
        assert_eq!(data.span_context.span_id().to_string(), "0000000000000002");
        assert!(data.span_context.is_sampled() && !data.span_context.is_remote());
        assert_eq!(data.parent_span_id.to_string(), "0000000000000003");
        assert!(data.parent_span_is_remote);
        assert_eq!((data.span_kind, &*data.name), (trace::SpanKind::Client, "attempt r/make"));
        assert_eq!(data.end_time.duration_since(data.start_time).unwrap(), EXPORT_TIMEOUT);
        assert_eq!(data.attributes, [KeyValue::new("ebb.unit", "r/make"), KeyValue::new("ebb.attempt", 2)]);
        assert_eq!(data.links.links[0].span_context.trace_id().to_string(), format!("{:032x}", 4));
        assert_eq!(data.status, Status::error("failed"));
    }

    #[tokio::test]
    async fn a_collector_that_hangs_costs_less_than_a_second() {
        // The listener queues connections and never accepts them.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let collector = OtlpExporter::open(&format!("http://{address}"), "").unwrap().unwrap();
        let begun = Instant::now();
        collector.take(vec![span()]).await;
        let took = begun.elapsed();
        // 0.8 s, with a margin for a busy machine.
        assert!(took > Duration::from_millis(500) && took < Duration::from_secs(10), "{took:?}");
        // A missing collector is not an error.
        drop(listener);
        collector.take(vec![span()]).await;
    }
}
