//! The surroundings of the functions on AWS: read from the environment once, when the first event comes.

mod aws;
mod first;
mod lambda;
mod queue;
mod variables;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use ebb_engine::Millis;
use ebb_outbound::{Client, Policy};
use ebb_store::{Bucket, Dynamo, Store};
use ebb_wire::sign::{Keys, Secret};
use ebb_wire::token::TokenKeys;

use crate::cluster::{ClusterRelay, Clusters, PostOffice};
use crate::env::{Env, Settings, Warm};
use crate::http::{Access, Role, Server};
use crate::observe::{Came, Collector, CollectorError, Function, Telemetry};
use crate::ports::Message;
use crate::sweep::Swept;
use crate::system::{SystemClock, SystemRandom};
pub use first::router;
use variables::Variables;

pub use lambda::log;

/// Why a function cannot work.
#[derive(Debug, thiserror::Error)]
pub enum DeployedError {
    /// A variable is missing.
    #[error("the environment variable {0} is not set")]
    Missing(&'static str),
    /// A variable has a value that cannot be used. The value is not shown: it may be a secret.
    #[error("the environment variable {name} cannot be used: {reason}")]
    Invalid {
        /// Which.
        name: &'static str,
        /// Why.
        reason: String,
    },
    /// The secret cannot be read.
    #[error("the secret {name} cannot be read: {reason}")]
    Secret {
        /// Which.
        name: String,
        /// What AWS says.
        reason: String,
    },
    /// The HTTP client cannot be made.
    #[error(transparent)]
    Http(#[from] ebb_outbound::ClientError),
}

/// A function's surroundings.
pub struct Deployed {
    /// What the functions are given.
    pub env: Arc<Env>,
    /// Table and bucket.
    pub store: Arc<Store>,
    access: Arc<Access>,
    post: Arc<PostOffice>,
    telemetry: Arc<Telemetry>,
}

impl Deployed {
    /// Reads the environment and makes the clients. One request is sent, if a secret is named.
    ///
    /// `EBB_TABLE`, `EBB_BUCKET`, `EBB_QUEUE_URL`, `EBB_CALLBACK_URL`, `EBB_SOURCE` name what the stack has;
    /// `EBB_PLATFORM_URL` may be empty. `EBB_CLUSTERS` lists the clusters that are connected (see [`Clusters::parse`]); it may
    /// be empty, plans of webhook units alone need none. `EBB_RELAY_NETWORKS` opens networks for requests to relays, and
    /// to nobody else (see [`Policy::and_networks`]). `EBB_WEBHOOK_KEYS`, `EBB_PLATFORM_SECRET`, `EBB_UNIT_SECRET`, `EBB_TOKEN_KEYS`
    /// are secrets; `EBB_API_TOKENS` is a comma-separated list of `ROLE:TOKEN`. These five and `EBB_CLUSTERS` may stand in
    /// the environment or in the secret of AWS Secrets Manager that `EBB_SECRETS` names: a JSON object of them.
    /// `EBB_FIGURES` is the namespace of figures, which are printed if it is there. `OTEL_EXPORTER_OTLP_ENDPOINT` names a
    /// collector of spans, `OTEL_EXPORTER_OTLP_HEADERS` is what it asks for and may stand in the secret.
    ///
    /// # Errors
    /// [`DeployedError`]: the function cannot work.
    pub async fn from_environment() -> Result<Self, DeployedError> {
        let config = aws::config()?;
        let variables = Variables::read(&config).await?;
        let dynamo = Dynamo::new(aws_sdk_dynamodb::Client::new(&config), variables.required("EBB_TABLE")?);
        let bucket = Bucket::new(aws_sdk_s3::Client::new(&config), variables.required("EBB_BUCKET")?);
        let store = Arc::new(Store::new(dynamo, bucket));
        let sqs = aws_sdk_sqs::Client::new(&config);
        let queue = queue::SqsQueue::new(sqs, variables.required("EBB_QUEUE_URL")?);
        let outside = Arc::new(Client::new(Policy::public())?);
        let settings = settings(&variables)?;
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let inside = Arc::new(Client::new(relays(&variables)?)?);
        let clusters = Arc::new(clusters(&variables)?);
        let post = Arc::new(PostOffice::new(clusters.clone(), store.clone(), clock.clone()));
        let mail = store.clone();
        let relay = ClusterRelay::new(clusters, inside, mail, clock.clone(), random.clone(), settings.grace);
        let env = Arc::new(Env {
            store: store.clone(),
            clock,
            random,
            relay: Arc::new(relay),
            outside: outside.clone(),
            platform: outside,
            queue: Arc::new(queue),
            settings,
            warm: Warm::default(),
        });
        let access = Arc::new(access(&variables.optional("EBB_API_TOKENS"))?);
        let telemetry = Arc::new(telemetry(&variables)?);
        Ok(Self { env, store, access, post, telemetry })
    }

    /// A function behind HTTP, made of its routes. Each request to it is an invocation that tells what it did.
    pub fn router(&self, routes: fn(Server) -> Router) -> Router {
        let (env, store) = (self.env.clone(), self.store.clone());
        let server = Server { env, store, access: self.access.clone(), post: self.post.clone() };
        Arc::clone(&self.telemetry).observed(routes(server), lambda::came)
    }

    /// `sweep`: an event of the schedule, or a batch of the queue, and the id of the request. Gives the batch's failures
    /// for SQS to send again.
    ///
    /// # Errors
    /// The index cannot be asked; the schedule asks again.
    pub async fn sweep(
        &self,
        event: serde_json::Value,
        request: String,
    ) -> Result<serde_json::Value, crate::FlowError> {
        let came = Came { request, at: None };
        Box::pin(self.telemetry.invoke(Function::Sweep, came, Box::pin(self.look(event)))).await
    }

    async fn look(&self, event: serde_json::Value) -> Result<serde_json::Value, crate::FlowError> {
        let Some(records) = event.get("Records").and_then(serde_json::Value::as_array) else {
            let swept = crate::sweep::sweep(&self.env, self.store.as_ref()).await?;
            if let Err(error) = crate::silence::note(&self.env, self.store.as_ref()).await {
                tracing::warn!(%error, "it is not written down which clusters answer");
            }
            if let Err(error) = crate::orphans::round(&self.env, self.store.as_ref()).await {
                tracing::warn!(%error, "orphans are looked for later");
            }
            let Swept { looked, failed, late_ms } = swept;
            tracing::info!(looked, failed, late_ms, "swept");
            return Ok(serde_json::json!({ "looked": looked, "failed": failed, "lateMs": late_ms }));
        };
        let mut failures = Vec::new();
        for record in records {
            let body = record.get("body").and_then(serde_json::Value::as_str).unwrap_or_default();
            let taken = match serde_json::from_str::<Message>(body) {
                Ok(message) => crate::sweep::receive_message(&self.env, &message).await,
                Err(error) => {
                    Err(crate::FlowError::Broken(format!("a message that is none of ours: {error}")))
                }
            };
            if let Err(error) = taken {
                tracing::warn!(%error, "a message is delivered again");
                failures.push(serde_json::json!({ "itemIdentifier": record.get("messageId") }));
            }
        }
        Ok(serde_json::json!({ "batchItemFailures": failures }))
    }
}

fn settings(variables: &Variables) -> Result<Settings, DeployedError> {
    let platform = variables.optional("EBB_PLATFORM_URL");
    Ok(Settings {
        callback_url: variables.required("EBB_CALLBACK_URL")?,
        source: variables.required("EBB_SOURCE")?,
        platform_url: Some(platform).filter(|url| !url.is_empty()),
        platform_secret: variables.parsed("EBB_PLATFORM_SECRET", Secret::parse)?,
        webhook_keys: variables.parsed("EBB_WEBHOOK_KEYS", Keys::parse)?,
        unit_secret: variables.parsed("EBB_UNIT_SECRET", Secret::parse)?,
        token_keys: variables.parsed("EBB_TOKEN_KEYS", TokenKeys::parse)?,
        // The functions' timeout (29 s), the relay's transport (15 s, by mail too), and a minute of clock skew.
        landing: Millis(104_000),
        grace: Duration::from_secs(30),
        // With the budget below the 25 s in which `complete` has to answer.
        answer: Duration::from_secs(15),
        first_look: Millis(60_000),
        horizon: Millis(3_600_000),
        sends: 50,
        budget: Duration::from_secs(3),
    })
}

fn telemetry(variables: &Variables) -> Result<Telemetry, DeployedError> {
    let name = "OTEL_EXPORTER_OTLP_ENDPOINT";
    let invalid = |error: CollectorError| DeployedError::Invalid { name, reason: error.to_string() };
    let headers = variables.optional("OTEL_EXPORTER_OTLP_HEADERS");
    let collector = Collector::parse(&variables.optional(name), &headers).map_err(invalid)?;
    let telemetry = Telemetry::default().with_collector(collector.as_ref()).map_err(invalid)?;
    Ok(match variables.optional("EBB_FIGURES").as_str() {
        "" => telemetry,
        namespace => telemetry.with_figures(namespace, lambda::stdout()),
    })
}

fn clusters(variables: &Variables) -> Result<Clusters, DeployedError> {
    let name = "EBB_CLUSTERS";
    match variables.optional(name).as_str() {
        "" => Ok(Clusters::default()),
        text => {
            Clusters::parse(text).map_err(|error| DeployedError::Invalid { name, reason: error.to_string() })
        }
    }
}

fn relays(variables: &Variables) -> Result<Policy, DeployedError> {
    let name = "EBB_RELAY_NETWORKS";
    let networks = variables.optional(name);
    Policy::public().and_networks(&networks).map_err(|reason| DeployedError::Invalid { name, reason })
}

fn access(text: &str) -> Result<Access, DeployedError> {
    let invalid = |reason: &str| DeployedError::Invalid { name: "EBB_API_TOKENS", reason: reason.to_owned() };
    let mut tokens = Vec::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let (role, token) = entry.split_once(':').ok_or_else(|| invalid("expected ROLE:TOKEN"))?;
        let role = match role {
            "user" => Role::User,
            "author" => Role::Author,
            "operator" => Role::Operator,
            _ => return Err(invalid("roles are user, author and operator")),
        };
        tokens.push((token, role));
    }
    Ok(Access::new(tokens))
}
