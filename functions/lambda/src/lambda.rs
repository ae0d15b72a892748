//! The context of a Lambda invocation, and the log format.

use axum::extract::Request;
use ebb_engine::Timestamp;
use ebb_flow::telemetry::InvocationOrigin;
use lambda_http::RequestExt as _;
use lambda_http::request::RequestContext;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Writes log lines as JSON to standard output, filtered by `RUST_LOG`.
///
/// The ids of invocation, run and attempt are fields of each line: `requestId`, `run`, `unit`, `attempt`, and `kind`
/// and `name` of the target.
pub(crate) fn log() {
    lines(EnvFilter::from_default_env(), std::io::stdout).init();
}

/// Writes log lines to `to` as a function does, filtered by `filter` in the syntax of `RUST_LOG`.
pub fn log_to<W>(filter: &str, to: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    lines(EnvFilter::new(filter), to).init();
}

fn lines<W>(filter: EnvFilter, to: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = json_subscriber::layer().with_writer(to);
    let lines = lines.with_current_span(false).flatten_span_list_on_top_level(true);
    tracing_subscriber::registry().with(filter).with(lines)
}

/// Returns the host of a request from the context of API Gateway or the function URL. The sender cannot set it.
pub(crate) fn host(request: &Request) -> Option<String> {
    match request.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => context.domain_name.clone(),
        _ => None,
    }
}

pub(crate) fn invocation_origin(request: &Request) -> InvocationOrigin {
    let id = request.lambda_context_ref().map(|context| context.request_id.clone());
    let at = match request.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => u64::try_from(context.time_epoch).ok(),
        _ => None,
    };
    InvocationOrigin { request_id: id.unwrap_or_default(), received: at.filter(|at| *at > 0).map(Timestamp) }
}

#[cfg(test)]
#[path = "../../../tests/src/log_buffer.rs"]
#[allow(unreachable_pub, reason = "the library of the tests exports it")]
mod log_buffer;

#[cfg(test)]
mod tests {
    use ebb_flow::telemetry::{FunctionKind, Telemetry};
    use serde_json::{Value, json};
    use tracing::Instrument as _;

    use super::log_buffer::LogBuffer;
    use super::*;

    /// Returns a request as Lambda passes it on from API Gateway or a function URL. `path` is decoded. The sender sets the
    /// headers.
    fn request(path: &str, host: &str) -> Request {
        let mut event: Value = serde_json::from_str(include_str!("gateway_event.json")).unwrap();
        event["rawPath"] = path.into();
        event["requestContext"]["http"]["path"] = path.into();
        event["requestContext"]["domainName"] = host.into();
        lambda_http::request::from_str(&event.to_string()).unwrap().map(|_| axum::body::Body::empty())
    }

    #[test]
    fn a_request_to_a_function_url_is_parsed() {
        let own_host = "abc.lambda-url.us-east-1.on.aws";
        let request = request("/v1/callbacks", own_host);
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/callbacks"));
        assert_eq!(host(&request).as_deref(), Some(own_host));
        assert_eq!(invocation_origin(&request).received, Some(Timestamp(1_795_305_600_000)));
    }

    /// The gateway decodes the path before it passes a request on.
    #[test]
    fn valid_names_survive_the_gateway() {
        let mut valid = 0;
        for character in (' '..='\u{17f}').chain(['\u{20ac}', '\u{1f40b}']) {
            for name in [format!("a{character}b"), format!("a{character}41"), format!("{character}{character}")] {
                if ebb_protocol::lifecycle::name(&name).is_err() {
                    continue;
                }
                valid += 1;
                let request = request(&format!("/v1/targets/sandbox/{name}/why"), "ebb.test");
                let path = percent_encoding::percent_decode_str(request.uri().path()).decode_utf8().unwrap();
                assert_eq!(path, format!("/v1/targets/sandbox/{name}/why"));
            }
        }
        assert!(valid > 500, "{valid}");
    }

    #[test]
    fn lines_have_the_ids_of_invocation_run_and_unit() {
        let output = LogBuffer::default();
        let writer = output.clone();
        let subscriber =
            lines(EnvFilter::new("warn,ebb_api=info,ebb_flow=info,ebb_lambda=info,ebb_relay_client=info"), move || {
                writer.clone()
            });
        let task = async {
            tracing::info!("before");
            let span = tracing::info_span!("attempt", run = "k-1-pre-start", unit = "r/make", attempt = 2_u32);
            async { tracing::info!(reason = "no", "failed") }.instrument(span).await;
        };
        tracing::subscriber::with_default(subscriber, || {
            let origin = InvocationOrigin { request_id: "req-7".to_owned(), received: None };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(Telemetry::default().invoke(FunctionKind::Complete, origin, task));
        });
        let output = output.text();
        let lines: Vec<Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [before, failed] = &lines[..] else { panic!("{output}") };
        assert_eq!((&before["requestId"], &before["function"]), (&json!("req-7"), &json!("complete")));
        assert_eq!(before["fields"], json!({"message": "before"}));
        assert_eq!(failed["fields"], json!({"message": "failed", "reason": "no"}));
        let ids = ["requestId", "run", "unit", "attempt", "level"].map(|name| &failed[name]);
        assert_eq!(json!(ids), json!(["req-7", "k-1-pre-start", "r/make", 2, "INFO"]), "{output}");
        assert!(failed["timestamp"].is_string(), "{output}");
    }
}
