//! A collector of spans, which speaks OTLP over HTTP.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use percent_encoding::percent_decode_str;

/// An answer waits so long for its spans to be taken, and no longer.
const PATIENCE: Duration = Duration::from_millis(800);

/// A connection that was idle for longer is not used again.
const IDLE: Duration = Duration::from_secs(15);

/// Where spans go.
#[derive(Clone, PartialEq, Eq)]
pub struct Collector {
    endpoint: String,
    headers: HashMap<String, String>,
}

/// Why a collector cannot be used. Says nothing of its headers.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// Headers that are none.
    #[error(
        "OTEL_EXPORTER_OTLP_HEADERS is written NAME=VALUE, separated by commas, each value percent-encoded"
    )]
    Headers,
    /// There is no TLS.
    #[error("an HTTP client cannot be made")]
    Client,
    /// An endpoint that is none.
    #[error("OTEL_EXPORTER_OTLP_ENDPOINT is no http:// or https:// URL")]
    Endpoint,
}

impl Collector {
    /// That of the variables `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_HEADERS`, as OpenTelemetry defines
    /// them; `None` without an endpoint.
    ///
    /// # Errors
    /// [`CollectorError`].
    pub fn parse(endpoint: &str, headers: &str) -> Result<Option<Self>, CollectorError> {
        if endpoint.is_empty() {
            return Ok(None);
        }
        if !url::Url::parse(endpoint).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            return Err(CollectorError::Endpoint);
        }
        let endpoint = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let headers = headers.split(',').filter(|one| !one.trim().is_empty()).map(header);
        let headers = headers.collect::<Option<_>>().ok_or(CollectorError::Headers)?;
        Ok(Some(Self { endpoint, headers }))
    }

    pub(super) fn open(&self) -> Result<SpanSender, CollectorError> {
        // A function that was frozen in between finds its connections dead; and headers are for nobody else.
        let client =
            reqwest::Client::builder().pool_idle_timeout(IDLE).redirect(reqwest::redirect::Policy::none());
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client.build().map_err(|_| CollectorError::Client)?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&self.endpoint)
            .with_timeout(PATIENCE)
            .with_headers(self.headers.clone());
        let mut exporter = exporter.build().map_err(|_| CollectorError::Endpoint)?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name("ebb");
        }
        exporter.set_resource(&resource.build());
        Ok(SpanSender(exporter))
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

fn header(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let name: HeaderName = name.trim().parse().ok()?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
    HeaderValue::from_str(&value).ok()?;
    Some((name.to_string(), value.into_owned()))
}

/// A collector with what speaks to it.
pub(super) struct SpanSender(SpanExporter);

impl SpanSender {
    /// Hands spans over. What is not taken in time is lost, and that is all.
    pub(super) async fn take(&self, spans: Vec<SpanData>) {
        if spans.is_empty() {
            return;
        }
        let count = spans.len();
        // No reason is told: it could repeat a URL or headers that are secret.
        match tokio::time::timeout(PATIENCE, self.0.export(spans)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => tracing::warn!(count, "the collector has not taken spans; they are lost"),
            Err(_) => tracing::warn!(count, "the collector does not answer; spans are lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_variables_say() {
        assert_eq!(Collector::parse("", "a=b").unwrap(), None);
        let collector =
            Collector::parse("https://o.test:4318/", "Authorization=Bearer%20x, api-key=1").unwrap();
        let collector = collector.unwrap();
        assert_eq!(collector.endpoint, "https://o.test:4318/v1/traces");
        let headers = [("authorization", "Bearer x"), ("api-key", "1")];
        assert_eq!(collector.headers, headers.map(|(name, value)| (name.into(), value.into())).into());
        assert!(!format!("{collector:?}").contains("Bearer"));
        for (endpoint, headers) in
            [("collector:4318", ""), ("ftp://o", ""), ("http://o", "canary"), ("http://o", "a=can%0Aary")]
        {
            let error = Collector::parse(endpoint, headers).unwrap_err().to_string();
            assert!(!error.contains("can"), "{error}");
        }
    }
}
