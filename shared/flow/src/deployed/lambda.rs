//! How Lambda calls a function, and what it keeps of what is printed.

use std::io::Write;

use axum::extract::Request;
use ebb_engine::Timestamp;
use lambda_http::RequestExt as _;
use lambda_http::request::RequestContext;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::observe::Came;

/// Has log lines printed as JSON, those that `RUST_LOG` chooses. What an invocation, a run and a try are called stands
/// beside the fields of a line: `request`, `run`, `unit`, `attempt`, `kind` and `name` of the target.
pub fn log() {
    lines(EnvFilter::from_default_env(), std::io::stdout).init();
}

fn lines<W>(filter: EnvFilter, to: W) -> impl tracing::Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = json_subscriber::layer().with_writer(to);
    let lines = lines.with_current_span(false).flatten_span_list_on_top_level(true);
    tracing_subscriber::registry().with(filter).with(lines)
}

/// A request of API Gateway, as Lambda has passed it on.
pub(super) fn came(request: &Request) -> Came {
    let id = request.lambda_context_ref().map(|context| context.request_id.clone());
    let at = match request.request_context_ref() {
        Some(RequestContext::ApiGatewayV2(context)) => u64::try_from(context.time_epoch).ok(),
        _ => None,
    };
    Came { request: id.unwrap_or_default(), at: at.filter(|at| *at > 0).map(Timestamp) }
}

/// Where Lambda reads what a function says.
pub(super) fn stdout() -> Box<dyn Write + Send> {
    Box::new(std::io::stdout())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::{Value, json};
    use tracing::Instrument as _;

    use super::*;
    use crate::observe::{Function, Telemetry};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_says_what_it_is_about() {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = lines(EnvFilter::new("warn,ebb_flow=info"), move || writer.clone());
        let work = async {
            tracing::info!("before");
            let span = tracing::info_span!("try", run = "k-1-pre-start", unit = "r/make", attempt = 2_u32);
            async { tracing::info!(reason = "no", "failed") }.instrument(span).await;
        };
        tracing::subscriber::with_default(subscriber, || {
            let came = Came { request: "req-7".to_owned(), at: None };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(Telemetry::default().invoke(Function::Complete, came, work));
        });
        let kept = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [before, failed] = &lines[..] else { panic!("{kept}") };
        assert_eq!((&before["request"], &before["function"]), (&json!("req-7"), &json!("complete")));
        assert_eq!(before["fields"], json!({"message": "before"}));
        assert_eq!(failed["fields"], json!({"message": "failed", "reason": "no"}));
        for (name, expected) in [
            ("request", json!("req-7")),
            ("run", json!("k-1-pre-start")),
            ("unit", json!("r/make")),
            ("attempt", json!(2)),
            ("level", json!("INFO")),
        ] {
            assert_eq!(failed[name], expected, "{name}: {kept}");
        }
        assert!(failed["timestamp"].is_string(), "{kept}");
    }
}
