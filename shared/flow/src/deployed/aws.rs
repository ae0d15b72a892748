//! How AWS is reached from within Lambda: where, as whom, and by one HTTP client for all services.
//!
//! Lambda says all of it in the environment, so nothing is looked for in files, in the metadata of a machine, or by
//! requests: what would look there is not linked.

use std::env::var;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, StalledStreamProtectionConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_types::SdkConfig;
use aws_types::region::Region;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};

use super::DeployedError;

/// Longest time of one attempt at the table or the queue, which answer within milliseconds. The SDK then tries again on
/// another connection: one that was open when the instance was frozen may be dead without a reset.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Longest time of one attempt at the bucket or the secret.
const LONG_ATTEMPT: Duration = Duration::from_secs(5);
/// Longest time of one operation, with all of its attempts. An invocation has 29 s for several.
const OPERATION: Duration = Duration::from_secs(8);
/// A connection that was idle for longer is not used again.
const IDLE: Duration = Duration::from_secs(15);

/// Returns the settings of the clients of the table and the queue; [`patient`] makes those of the others. They come from
/// `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, which Lambda sets and never changes
/// while a function lives, and `AWS_ENDPOINT_URL` or `AWS_ENDPOINT_URL_SERVICE`, which it does not set. Sends no request.
///
/// # Errors
/// [`DeployedError::Missing`].
pub(super) fn config() -> Result<SdkConfig, DeployedError> {
    let required = |name| var(name).map_err(|_| DeployedError::Missing(name));
    let (id, secret) = (required("AWS_ACCESS_KEY_ID")?, required("AWS_SECRET_ACCESS_KEY")?);
    let token = var("AWS_SESSION_TOKEN").ok().filter(|token| !token.is_empty());
    let credentials = Credentials::new(id, secret, token, None, "environment");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(required("AWS_REGION")?))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .service_config(Places);
    Ok(bounded(config).build())
}

/// Bounds how long requests take, and how long connections are kept.
fn bounded(config: aws_types::sdk_config::Builder) -> aws_types::sdk_config::Builder {
    let client = Builder::new().pool_idle_timeout(IDLE);
    config
        .timeout_config(timeouts(ATTEMPT))
        // Each service would make its own, and read the certificates of authorities for itself.
        .http_client(client.tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https())
}

/// Returns `config` with the time that the bucket and the secret may take.
pub(super) fn patient(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .timeout_config(timeouts(LONG_ATTEMPT))
        // The timeouts end with the head of an answer; this bounds a body that stops in between.
        .stalled_stream_protection(
            StalledStreamProtectionConfig::enabled().grace_period(LONG_ATTEMPT).build(),
        )
        .build()
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().operation_attempt_timeout(attempt).operation_timeout(OPERATION).build()
}

/// Where services are, if not at AWS.
#[derive(Debug)]
struct Places;

impl LoadServiceConfig for Places {
    fn load_config(&self, key: ServiceConfigKey<'_>) -> Option<String> {
        let service = key.service_id().to_uppercase().replace(' ', "_");
        var(format!("{}_{service}", key.env())).or_else(|_| var(key.env())).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use axum::Router;
    use axum::body::{Body, Bytes};
    use futures::StreamExt as _;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    /// The settings of a function whose services are all at one address.
    fn towards(listener: &TcpListener) -> SdkConfig {
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
                "id", "key", None, None, "test",
            )))
            .endpoint_url(url);
        bounded(config).build()
    }

    async fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.unwrap()
    }

    /// Accepts connections, reads what comes and never answers. Returns how many there were.
    fn never_answers(listener: TcpListener) -> Arc<AtomicUsize> {
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut read = [0; 1024];
                    while connection.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {}
                });
            }
        });
        accepted
    }

    async fn get_item(config: &SdkConfig) -> bool {
        let client = aws_sdk_dynamodb::Client::new(config);
        let key = aws_sdk_dynamodb::types::AttributeValue::S("k".to_owned());
        client.get_item().table_name("t").key("pk", key).send().await.is_ok()
    }

    #[tokio::test]
    async fn a_service_that_never_answers_is_given_up() {
        let listener = listener().await;
        let config = towards(&listener);
        let accepted = never_answers(listener);
        let slow = patient(&config);
        let (sqs, s3) = (aws_sdk_sqs::Client::new(&config), aws_sdk_s3::Client::new(&slow));
        let secrets = aws_sdk_secretsmanager::Client::new(&slow);
        let begun = Instant::now();
        let (item, sent, object, secret) = tokio::join!(
            get_item(&config),
            sqs.send_message().queue_url("http://queue.test/q").message_body("{}").send(),
            s3.get_object().bucket("b").key("k").send(),
            secrets.get_secret_value().secret_id("s").send(),
        );
        assert!(!item && sent.is_err() && object.is_err() && secret.is_err());
        // As long as the longest one, and what a busy machine adds.
        assert!(begun.elapsed() < 3 * OPERATION, "{:?}", begun.elapsed());
        // Each was tried again, on a connection that had not failed before.
        assert!(accepted.load(Ordering::Relaxed) >= 8);
    }

    /// Less than an attempt may take is no failure, and several requests may take longer than one operation: a relay's poll
    /// looks into the table until there is mail.
    #[tokio::test]
    async fn a_slow_service_is_waited_for() {
        let listener = listener().await;
        let config = towards(&listener);
        let router = Router::new().fallback(|| async {
            tokio::time::sleep(ATTEMPT / 2).await;
            ([("content-type", "application/x-amz-json-1.0")], "{}")
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let begun = Instant::now();
        while begun.elapsed() <= OPERATION {
            assert!(get_item(&config).await, "{:?}", begun.elapsed());
        }
    }

    #[tokio::test]
    async fn an_object_that_stops_in_between_is_given_up() {
        let listener = listener().await;
        let config = towards(&listener);
        let router = Router::new().fallback(|| async {
            let begins = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"begins"))]);
            ([("content-length", "1000")], Body::from_stream(begins.chain(futures::stream::pending())))
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let settings = aws_sdk_s3::config::Builder::from(&patient(&config)).force_path_style(true).build();
        let client = aws_sdk_s3::Client::from_conf(settings);
        let answer = client.get_object().bucket("b").key("k").send().await.unwrap();
        let begun = Instant::now();
        answer.body.collect().await.unwrap_err();
        assert!(begun.elapsed() < 3 * LONG_ATTEMPT, "{:?}", begun.elapsed());
    }
}
