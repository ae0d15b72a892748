//! The adapter of Lambda functions: settings from the environment and a secret, AWS clients, and HTTP events.
//!
//! Settings are read at the first event. The secret is read again every five minutes.

mod aws;
mod emf;
mod function_error;
mod lambda;
mod queue;
mod reloading;
mod serve;
mod sweep;
mod variables;

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_config::SdkConfig;
use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use ebb_api::{ApiRole, ApiTokens, HttpProblem, OidcIssuers, OtlpExporter, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_flow::background::BackgroundTasks;
use ebb_flow::env::{DeploymentSettings, Env, InstanceCache};
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::telemetry::Telemetry;
use ebb_protocol::id::installation;
use ebb_protocol::pull::IDLE_POLL_MS;
use ebb_protocol::relay::RESPONSE_TIMEOUT;
use ebb_protocol::{ErrorCode, Millis, NamedSecrets, WebhookKeys};
use ebb_relay_client::{ClusterRegistry, ClusterRelay, PollEndpoint};
use ebb_store::{S3Bucket, SdkTable, Store};
use tower::ServiceExt as _;

use reloading::ReloadingValue;
use variables::FunctionVariables;

pub use emf::EmfSink;
pub use function_error::FunctionError;
use lambda::log;
pub use lambda::log_to;
pub use serve::serve;
pub use sweep::serve_sweep;
pub use variables::SECRET_VARIABLES;

/// The time after which Lambda kills a function: `Timeout` of the template.
pub const TIMEOUT: Duration = Duration::from_secs(29);
/// The largest difference between two clocks.
const SKEW: Duration = Duration::from_secs(60);

struct FunctionConfig {
    config: SdkConfig,
    variables: FunctionVariables,
    /// The host of the first request, if the first event was a request.
    host: Option<String>,
}

impl PartialEq for FunctionConfig {
    fn eq(&self, other: &Self) -> bool {
        // The other fields do not change while the process runs.
        self.variables == other.variables
    }
}

impl FunctionConfig {
    /// Reads the environment, and the secret if `EBB_SECRET_ARN` is set.
    async fn read(host: Option<String>) -> Result<Self, FunctionError> {
        let config = aws::config().await?;
        let variables = FunctionVariables::read(&config).await?;
        Ok(Self { config, variables, host })
    }
}

struct FunctionContext {
    server: ServerState,
    telemetry: Arc<Telemetry>,
}

/// Returns the routes of a function, whose context is created at the first request.
///
/// A configuration error is logged and returned as status 503. The next request reads the configuration again. Tasks
/// that continue after their response are added to `background`.
///
/// Environment variables:
///
/// - `EBB_TABLE`, `EBB_BUCKET`, `EBB_QUEUE_URL`, `EBB_SOURCE`: resources of the stack.
/// - `EBB_INSTALLATION`: the id of the stack for relays. It never changes.
/// - `EBB_CALLBACK_URL`: the URL of callbacks. Default: the host of the first request at the function URL, or
///   at another host, because a function's configuration cannot contain its own URL.
/// - `EBB_PLATFORM_URL`: the URL of notifications; may be empty.
/// - `EBB_CLUSTERS`: connected clusters in addition to registered ones, see [`ClusterRegistry::parse`]. May be empty.
/// - `EBB_EGRESS_NETWORKS`: receivers in private networks, see [`Policy::and_receivers`]. May be empty.
/// - `EBB_RELAY_NETWORKS`: networks of relays that are not public, see [`Policy::and_networks`].
/// - `EBB_WEBHOOK_SECRETS`, `EBB_PLATFORM_SECRETS`, `EBB_UNIT_SECRETS`, `EBB_TOKEN_SECRETS`: keys.
/// - `EBB_API_TOKENS`: a list of `ROLE:TOKEN`, separated by commas.
/// - `EBB_OIDC`: issuers of identity tokens, see [`OidcIssuers::parse`].
/// - `EBB_SECRETS`: a JSON object of the secrets that sources name.
/// - `EBB_SECRET_ARN`: a secret of AWS Secrets Manager, a JSON object of [`SECRET_VARIABLES`].
/// - `EBB_RETENTION_DAYS`: days to keep the data of gone targets. 0 or none keeps it forever.
/// - `EBB_LIVING_PER_OWNER`: maximum number of living targets of one caller of the API. 0 or none means unlimited.
/// - `EBB_METRICS_NAMESPACE`: the namespace of metrics. Without it, no metrics are written.
/// - `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`: a collector of spans and its headers.
pub fn router(routes: fn(ServerState) -> Router, background: &Arc<BackgroundTasks>) -> Router {
    // Requests at the function URL have a context of their own. Otherwise the first request of a process, which anyone can
    // send to the HTTP API, would select the URL of the callbacks of all later requests.
    let contexts: Arc<[ReloadingValue<FunctionConfig, Router>; 2]> = Arc::default();
    let background = Arc::clone(background);
    Router::new().fallback(move |request: Request| {
        let (contexts, background) = (Arc::clone(&contexts), Arc::clone(&background));
        async move {
            let host = lambda::host(&request);
            let [other, own] = &*contexts;
            let current = if host.as_deref().is_some_and(is_function_url) { own } else { other };
            let read = || FunctionConfig::read(host.clone());
            let router = current
                .get(Instant::now(), read, |source| Ok(FunctionContext::of(source)?.router(routes, &background)));
            match router.await {
                Ok(router) => router.oneshot(request).await.into_response(),
                Err(error) => misconfigured(&error),
            }
        }
    })
}

fn misconfigured(error: &FunctionError) -> Response {
    tracing::error!(%error, "invalid configuration");
    let detail = "the configuration of the function is invalid; its log has the cause";
    HttpProblem::new(ErrorCode::Misconfigured, detail).into_response()
}

impl FunctionContext {
    /// Creates the clients. Sends no request.
    fn of(FunctionConfig { config, variables, host }: &FunctionConfig) -> Result<Self, FunctionError> {
        let table = SdkTable::new(aws_sdk_dynamodb::Client::new(config), variables.required("EBB_TABLE")?);
        let bucket =
            S3Bucket::new(aws_sdk_s3::Client::new(&aws::with_long_timeouts(config)), variables.required("EBB_BUCKET")?);
        let store = Arc::new(Store::new(Arc::new(table), Arc::new(bucket)));
        let sqs = aws_sdk_sqs::Client::new(config);
        let queue = queue::SqsQueue { client: sqs, url: variables.required("EBB_QUEUE_URL")? };
        let name = "EBB_EGRESS_NETWORKS";
        let policy = Policy::public().and_receivers(&variables.optional(name));
        let outside = Arc::new(HttpClient::new(policy.map_err(|reason| FunctionError::Invalid { name, reason })?)?);
        let settings = settings(variables, host.as_deref())?;
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let relays =
            variables.parsed_if_any("EBB_RELAY_NETWORKS", |networks| Policy::public().and_networks(networks))?;
        let inside = Arc::new(HttpClient::new(relays)?);
        let clusters = variables.parsed_if_any("EBB_CLUSTERS", ClusterRegistry::parse)?;
        let clusters = Arc::new(clusters.with_registered(store.clone(), settings.unit_keys.clone()));
        let poll_endpoint =
            Arc::new(PollEndpoint::new(clusters.clone(), store.clone(), clock.clone(), Some(IDLE_POLL_MS)));
        let batches = store.clone();
        let relay = ClusterRelay::new(clusters, inside, batches, clock.clone(), random.clone(), settings.grace);
        let env = Arc::new(Env {
            store,
            clock,
            random,
            relay: Arc::new(relay),
            egress: outside.clone(),
            platform: outside,
            queue: Arc::new(queue),
            settings,
            cache: InstanceCache::default(),
        });
        let issuers = variables.parsed_if_any("EBB_OIDC", OidcIssuers::parse)?;
        let tokens = variables.parsed_if_any("EBB_API_TOKENS", api_tokens)?;
        let tokens = Arc::new(tokens.with_issuers(issuers));
        Ok(Self { server: ServerState { env, tokens, poll_endpoint }, telemetry: Arc::new(telemetry(variables)?) })
    }

    fn router(&self, routes: fn(ServerState) -> Router, background: &Arc<BackgroundTasks>) -> Router {
        let router = routes(self.server.clone());
        ebb_api::instrument_router(self.telemetry.clone(), router, background, lambda::invocation_origin)
    }
}

fn settings(variables: &FunctionVariables, host: Option<&str>) -> Result<DeploymentSettings, FunctionError> {
    let platform = variables.optional("EBB_PLATFORM_URL");
    Ok(DeploymentSettings {
        callback_url: callback_url(variables, host)?,
        installation: installation(&[&variables.required("EBB_INSTALLATION")?]),
        source: variables.required("EBB_SOURCE")?,
        platform_url: Some(platform).filter(|url| !url.is_empty()),
        platform_keys: variables.parsed("EBB_PLATFORM_SECRETS", WebhookKeys::parse)?,
        webhook_keys: variables.parsed("EBB_WEBHOOK_SECRETS", WebhookKeys::parse)?,
        unit_keys: variables.parsed("EBB_UNIT_SECRETS", WebhookKeys::parse)?,
        token_keys: variables.parsed("EBB_TOKEN_SECRETS", WebhookKeys::parse)?,
        secrets: Arc::new(variables.parsed_if_any("EBB_SECRETS", |text| NamedSecrets::parse(text.as_bytes()))?),
        // The sum of three times: a killed function may have sent a request just before its end, the relay then has its
        // response timeout, and clocks differ.
        max_in_flight: Millis(1_000 * (TIMEOUT + RESPONSE_TIMEOUT + SKEW).as_secs()),
        grace: Duration::from_secs(30),
        // Together with the dispatch budget, this is less than the 25 s within which `complete` must respond.
        response_timeout: Duration::from_secs(15),
        // Another function takes the callbacks, and the wait would cost more than the write.
        callback_wait: Duration::ZERO,
        first_sweep_delay: Millis(60_000),
        max_sweep_interval: Millis(3_600_000),
        retention: variables.parsed_if_any("EBB_RETENTION_DAYS", retention)?,
        living_per_owner: Some(variables.parsed_if_any("EBB_LIVING_PER_OWNER", str::parse)?).filter(|most| *most > 0),
        max_dispatches: 50,
        dispatch_budget: Duration::from_secs(3),
    })
}

fn is_function_url(host: &str) -> bool {
    host.contains(".lambda-url.") && host.ends_with(".on.aws")
}

/// Returns the URL of callbacks: `EBB_CALLBACK_URL`, or by default the URL of this function.
fn callback_url(variables: &FunctionVariables, host: Option<&str>) -> Result<String, FunctionError> {
    let own = |missing| host.map(|host| format!("https://{host}/v1/callbacks")).ok_or(missing);
    variables.required("EBB_CALLBACK_URL").or_else(own)
}

const DAY: u64 = 86_400_000;

/// Returns a number of days as a duration. 0 returns `None`, which keeps data forever.
fn retention(text: &str) -> Result<Option<Millis>, &'static str> {
    let days: u32 = text.parse().map_err(|_| "expected a whole number of days, 0 to keep everything")?;
    Ok((days > 0).then(|| Millis(u64::from(days) * DAY)))
}

fn telemetry(variables: &FunctionVariables) -> Result<Telemetry, FunctionError> {
    let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let headers = variables.optional("OTEL_EXPORTER_OTLP_HEADERS");
    let collector = OtlpExporter::open(&variables.optional(name), &headers)
        .map_err(|error| FunctionError::Invalid { name, reason: error.to_string() })?;
    let mut telemetry = Telemetry::default();
    if let Some(collector) = collector {
        telemetry = telemetry.with_spans(collector);
    }
    Ok(match variables.optional("EBB_METRICS_NAMESPACE").as_str() {
        "" => telemetry,
        // Lambda forwards standard output to CloudWatch.
        namespace => telemetry.with_metrics(EmfSink::new(namespace, Box::new(std::io::stdout()))),
    })
}

fn api_tokens(text: &str) -> Result<ApiTokens, &'static str> {
    let mut tokens = Vec::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let (role, token) = entry.split_once(':').ok_or("expected ROLE:TOKEN")?;
        let role = match role {
            "user" => ApiRole::User,
            "author" => ApiRole::Author,
            "operator" => ApiRole::Operator,
            _ => return Err("roles are user, author and operator"),
        };
        tokens.push((token, role));
    }
    Ok(ApiTokens::new(tokens))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn callbacks_default_to_the_function() {
        let url = callback_url(&FunctionVariables::default(), Some("abc.lambda-url.us-east-1.on.aws")).unwrap();
        assert_eq!(url, "https://abc.lambda-url.us-east-1.on.aws/v1/callbacks");
        assert!(is_function_url("abc.lambda-url.us-east-1.on.aws"));
        assert!(!is_function_url("abc.execute-api.us-east-1.amazonaws.com") && !is_function_url("api.example.com"));
        let missing = callback_url(&FunctionVariables::default(), None).unwrap_err();
        assert!(matches!(missing, FunctionError::Missing("EBB_CALLBACK_URL")), "{missing}");
    }

    /// Tests run without the variables. The response to the caller does not contain their names.
    #[tokio::test]
    async fn a_function_without_its_variables_responds() {
        let router = router(ebb_api::api, &Arc::default());
        for _ in 0..2 {
            let response = router.clone().oneshot(Request::get("/healthz").body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            let body = to_bytes(response.into_body(), 1 << 10).await.unwrap();
            assert!(!String::from_utf8_lossy(&body).contains("AWS_"), "{body:?}");
        }
    }
}
