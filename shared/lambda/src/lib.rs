//! The surroundings of the functions on AWS: read from the environment when the first event comes, and from the secret now
//! and then.

mod aws;
mod emf;
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
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use ebb_api::{ApiRole, ApiTokens, HttpProblem, ServerState};
use ebb_egress::{HttpClient, Policy};
use ebb_engine::Millis;
use ebb_flow::background::BackgroundTasks;
use ebb_flow::env::{DeploymentSettings, Env, InstanceCache};
use ebb_flow::system::{SystemClock, SystemRandom};
use ebb_flow::telemetry::Telemetry;
use ebb_otlp::OtlpExporter;
use ebb_protocol::id::installation;
use ebb_protocol::limits::BATCH_RESPONSE_BODY;
use ebb_protocol::relay::RESPONSE_TIMEOUT;
use ebb_protocol::sign::WebhookKeys;
use ebb_protocol::token::TokenKeys;
use ebb_relay_client::{ClusterRegistry, ClusterRelay, PollEndpoint};
use ebb_store::{DynamoTable, S3Bucket, Store};
use tower::ServiceExt as _;

use reloading::ReloadingValue;
use variables::FunctionVariables;

pub use emf::EmfSink;
pub use lambda::{log, log_to};
pub use serve::serve;
pub use sweep::SweepHandler;
pub use variables::SECRET_VARIABLES;

/// A function that runs for longer is killed; `Timeout` of the template.
pub const TIMEOUT: Duration = Duration::from_secs(29);
/// How far clocks may be apart.
const SKEW: Duration = Duration::from_secs(60);

/// Why a function cannot work.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    #[error("the environment variable {0} is not set")]
    Missing(&'static str),
    /// A variable has a value that cannot be used. The value is not shown: it may be a secret.
    #[error("the environment variable {name} cannot be used: {reason}")]
    Invalid { name: &'static str, reason: String },
    #[error("the secret {name} cannot be read: {reason}")]
    Secret { name: String, reason: String },
    /// The HTTP client cannot be made.
    #[error(transparent)]
    Http(#[from] ebb_egress::HttpClientError),
}

/// What surroundings are made of.
struct FunctionConfig {
    config: SdkConfig,
    variables: FunctionVariables,
    /// The host at which the first event came in, if it was a request.
    host: Option<String>,
}

impl PartialEq for FunctionConfig {
    fn eq(&self, other: &Self) -> bool {
        // All else is that of the process.
        self.variables == other.variables
    }
}

impl FunctionConfig {
    /// Reads the environment. One request is sent, if a secret is named.
    async fn read(host: Option<String>) -> Result<Self, FunctionError> {
        let config = aws::config().await?;
        let variables = FunctionVariables::read(&config).await?;
        Ok(Self { config, variables, host })
    }
}

/// A function's surroundings.
struct FunctionContext {
    env: Arc<Env>,
    store: Arc<Store>,
    tokens: Arc<ApiTokens>,
    poll_endpoint: Arc<PollEndpoint>,
    telemetry: Arc<Telemetry>,
}

/// The routes of a function. Its surroundings are made when the first request comes. What is wrong with them is logged, and
/// answered with 503; the next request has them made again.
///
/// `EBB_TABLE`, `EBB_BUCKET`, `EBB_QUEUE_URL`, `EBB_CALLBACK_URL`, `EBB_SOURCE` name what the stack has,
/// and `EBB_INSTALLATION` is what names the stack to relays and never changes. Without
/// `EBB_CALLBACK_URL` callbacks come to the host of the first request: a function that has a URL of its own cannot have
/// it in its configuration. `EBB_PLATFORM_URL` may be empty. `EBB_CLUSTERS` lists the clusters that are connected (see
/// [`ClusterRegistry::parse`]); it may be empty, plans of webhook units alone need none. `EBB_RELAY_NETWORKS` opens networks
/// for requests to relays, and to nobody else (see [`Policy::and_networks`]). `EBB_WEBHOOK_SECRETS`,
/// `EBB_PLATFORM_SECRETS`, `EBB_UNIT_SECRETS`, `EBB_TOKEN_KEYS` are secrets; `EBB_API_TOKENS` is a comma-separated list
/// of `ROLE:TOKEN`. These five and `EBB_CLUSTERS` may stand in the environment or in the secret of AWS Secrets Manager
/// that `EBB_SECRET_ARN` names: a JSON object of them. `EBB_RETENTION_DAYS` is the number of days for which the data of
/// gone targets is kept; 0 or no value keeps it forever. `EBB_METRICS_NAMESPACE` is the namespace of figures, which are
/// printed if it is there. `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector of spans, `OTEL_EXPORTER_OTLP_HEADERS` is
/// what it asks for and may stand in the secret.
///
/// Work that outlives its answer is a task of `background`.
pub fn router(routes: fn(ServerState) -> Router, background: &Arc<BackgroundTasks>) -> Router {
    let current: Arc<ReloadingValue<FunctionConfig, Router>> = Arc::default();
    let background = Arc::clone(background);
    Router::new().fallback(move |request: Request| {
        let (current, background) = (Arc::clone(&current), Arc::clone(&background));
        async move {
            let host = lambda::host(&request);
            let read = || FunctionConfig::read(host.clone());
            let made = current
                .get(Instant::now(), read, |source| Ok(FunctionContext::of(source)?.router(routes, &background)));
            match made.await {
                Ok(router) => router.oneshot(request).await.into_response(),
                Err(error) => refused(&error),
            }
        }
    })
}

fn refused(error: &FunctionError) -> Response {
    tracing::error!(%error, "the function cannot work");
    let detail = "the function cannot work as it is deployed; its log says why";
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, "misconfigured", detail).into_response()
}

impl FunctionContext {
    /// Makes the clients. No request is sent.
    fn of(FunctionConfig { config, variables, host }: &FunctionConfig) -> Result<Self, FunctionError> {
        let dynamo = DynamoTable::new(aws_sdk_dynamodb::Client::new(config), variables.required("EBB_TABLE")?);
        let bucket =
            S3Bucket::new(aws_sdk_s3::Client::new(&aws::with_long_timeouts(config)), variables.required("EBB_BUCKET")?);
        let store = Arc::new(Store::new(dynamo, Arc::new(bucket)));
        let sqs = aws_sdk_sqs::Client::new(config);
        let queue = queue::SqsQueue::new(sqs, variables.required("EBB_QUEUE_URL")?);
        let outside = Arc::new(HttpClient::new(Policy::public())?);
        let settings = settings(variables, host.as_deref())?;
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let inside = Arc::new(HttpClient::new(relays(variables)?)?.with_limit(BATCH_RESPONSE_BODY));
        let clusters = Arc::new(clusters(variables)?);
        let post = Arc::new(PollEndpoint::new(clusters.clone(), store.clone(), clock.clone()));
        let batches = store.clone();
        let relay = ClusterRelay::new(clusters, inside, batches, clock.clone(), random.clone(), settings.grace);
        let env = Arc::new(Env {
            store: store.clone(),
            clock,
            random,
            relay: Arc::new(relay),
            egress: outside.clone(),
            platform: outside,
            queue: Arc::new(queue),
            settings,
            cache: InstanceCache::default(),
        });
        let access = Arc::new(access(&variables.optional("EBB_API_TOKENS"))?);
        let telemetry = Arc::new(telemetry(variables)?);
        Ok(Self { env, store, tokens: access, poll_endpoint: post, telemetry })
    }

    /// A function behind HTTP, made of its routes. Each request to it is an invocation that tells what it did.
    fn router(&self, routes: fn(ServerState) -> Router, background: &Arc<BackgroundTasks>) -> Router {
        let (env, store) = (self.env.clone(), self.store.clone());
        let server = ServerState { env, store, tokens: self.tokens.clone(), poll_endpoint: self.poll_endpoint.clone() };
        ebb_api::instrument_router(self.telemetry.clone(), routes(server), background, lambda::invocation_origin)
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
        token_keys: variables.parsed("EBB_TOKEN_KEYS", TokenKeys::parse)?,
        // What a function was sending when it was killed, what a relay was about to do by then, and by whose clock.
        max_in_flight: Millis(1_000 * (TIMEOUT + RESPONSE_TIMEOUT + SKEW).as_secs()),
        grace: Duration::from_secs(30),
        // With the budget below the 25 s in which `complete` has to answer.
        response_timeout: Duration::from_secs(15),
        first_sweep_delay: Millis(60_000),
        max_sweep_interval: Millis(3_600_000),
        retention: retention(variables)?,
        max_dispatches: 50,
        dispatch_budget: Duration::from_secs(3),
    })
}

/// Returns where callbacks go: `EBB_CALLBACK_URL`, else this function.
fn callback_url(variables: &FunctionVariables, host: Option<&str>) -> Result<String, FunctionError> {
    let own = |missing| host.map(|host| format!("https://{host}/v1/callbacks")).ok_or(missing);
    variables.required("EBB_CALLBACK_URL").or_else(own)
}

const DAY: u64 = 86_400_000;

/// Returns the time of a number of days; `None` for 0 or no value, which keeps data forever.
fn retention(variables: &FunctionVariables) -> Result<Option<Millis>, FunctionError> {
    let name = "EBB_RETENTION_DAYS";
    let text = variables.optional(name);
    if text.is_empty() {
        return Ok(None);
    }
    let days: u32 = text.parse().map_err(|_| FunctionError::Invalid {
        name,
        reason: "expected a whole number of days, 0 to keep everything".to_owned(),
    })?;
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
        // Lambda reads there what a function says.
        namespace => telemetry.with_metrics(EmfSink::new(namespace, Box::new(std::io::stdout()))),
    })
}

fn clusters(variables: &FunctionVariables) -> Result<ClusterRegistry, FunctionError> {
    let name = "EBB_CLUSTERS";
    match variables.optional(name).as_str() {
        "" => Ok(ClusterRegistry::default()),
        text => {
            ClusterRegistry::parse(text).map_err(|error| FunctionError::Invalid { name, reason: error.to_string() })
        }
    }
}

fn relays(variables: &FunctionVariables) -> Result<Policy, FunctionError> {
    let name = "EBB_RELAY_NETWORKS";
    let networks = variables.optional(name);
    Policy::public().and_networks(&networks).map_err(|reason| FunctionError::Invalid { name, reason })
}

fn access(text: &str) -> Result<ApiTokens, FunctionError> {
    let invalid = |reason: &str| FunctionError::Invalid { name: "EBB_API_TOKENS", reason: reason.to_owned() };
    let mut tokens = Vec::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let (role, token) = entry.split_once(':').ok_or_else(|| invalid("expected ROLE:TOKEN"))?;
        let role = match role {
            "user" => ApiRole::User,
            "author" => ApiRole::Author,
            "operator" => ApiRole::Operator,
            _ => return Err(invalid("roles are user, author and operator")),
        };
        tokens.push((token, role));
    }
    Ok(ApiTokens::new(tokens))
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};

    use super::*;

    #[test]
    fn callbacks_come_to_the_function_itself_without_another_url() {
        let url = callback_url(&FunctionVariables::default(), Some("abc.lambda-url.us-east-1.on.aws")).unwrap();
        assert_eq!(url, "https://abc.lambda-url.us-east-1.on.aws/v1/callbacks");
        let missing = callback_url(&FunctionVariables::default(), None).unwrap_err();
        assert!(matches!(missing, FunctionError::Missing("EBB_CALLBACK_URL")), "{missing}");
    }

    /// Nothing is set where tests run: the function is there, and says that it cannot work without saying more.
    #[tokio::test]
    async fn a_function_without_its_variables_answers() {
        let router = router(ebb_api::api, &Arc::default());
        for _ in 0..2 {
            let request = Request::get("/healthz").body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            let body = to_bytes(answer.into_body(), 1 << 10).await.unwrap();
            assert!(!String::from_utf8_lossy(&body).contains("AWS_"), "{body:?}");
        }
    }
}
