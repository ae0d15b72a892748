//! Settings of the AWS clients, which share one HTTP client.
//!
//! Lambda sets region and credentials in the environment; they do not change while an instance runs. The settings
//! therefore need no request to a metadata service or STS, which would delay the first event.

use std::time::Duration;

use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

use crate::function_error::FunctionError;

/// The timeout of one attempt at the table or the queue, which respond within milliseconds.
///
/// The SDK retries on a new connection: a connection can break without a reset while the instance is frozen.
const ATTEMPT: Duration = Duration::from_secs(2);
/// The timeout of one attempt at the bucket or the secret.
const LONG_ATTEMPT: Duration = Duration::from_secs(5);
/// The timeout of one operation with all attempts. An invocation has 29 s for several operations.
const OPERATION: Duration = Duration::from_secs(8);
/// The idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(15);

/// Returns the settings of the clients of table and queue. [`with_long_timeouts`] derives those of the others.
///
/// The region is `AWS_REGION`. Credentials are `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
/// `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_SERVICE` set other endpoints. Sends no request.
///
/// # Errors
/// Returns [`FunctionError::Missing`] if no region is set.
pub(crate) async fn config() -> Result<SdkConfig, FunctionError> {
    let config = loader().load().await;
    match config.region() {
        Some(_) => Ok(config),
        None => Err(FunctionError::Missing("AWS_REGION")),
    }
}

pub(crate) fn with_long_timeouts(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .timeout_config(timeouts(LONG_ATTEMPT))
        // The timeouts end with the head of a response. This limits the time for a body that stalls.
        .stalled_stream_protection(StalledStreamProtectionConfig::enabled().grace_period(LONG_ATTEMPT).build())
        .build()
}

fn loader() -> ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest())
        .region(EnvironmentVariableRegionProvider::new())
        .credentials_provider(EnvironmentVariableCredentialsProvider::new())
        .timeout_config(timeouts(ATTEMPT))
        // All services share one client, because each client reads the certificates of the authorities.
        .http_client(
            Builder::new().pool_idle_timeout(IDLE).tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https(),
        )
}

fn timeouts(attempt: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().operation_attempt_timeout(attempt).operation_timeout(OPERATION).build()
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

    /// Returns a listener, and the settings of a function with all services at its address.
    async fn services() -> (TcpListener, SdkConfig) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, loader().test_credentials().region("us-east-1").endpoint_url(url).load().await)
    }

    /// Accepts connections and never responds. Returns the number of connections.
    fn accept_and_hang(listener: TcpListener) -> Arc<AtomicUsize> {
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
    async fn a_service_that_never_responds_times_out() {
        let (listener, config) = services().await;
        let accepted = accept_and_hang(listener);
        let slow = with_long_timeouts(&config);
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
        // The longest operation, with a margin for busy machines.
        assert!(begun.elapsed() < 3 * OPERATION, "{:?}", begun.elapsed());
        // Each operation was repeated on a new connection.
        assert!(accepted.load(Ordering::Relaxed) >= 8);
    }

    /// A response within the timeout of an attempt is not a failure. Several operations, such as the reads of a poll,
    /// may take longer than the timeout of one.
    #[tokio::test]
    async fn a_slow_service_is_awaited() {
        let (listener, config) = services().await;
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
    async fn an_object_that_stalls_times_out() {
        let (listener, config) = services().await;
        let router = Router::new().fallback(|| async {
            let begins = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"begins"))]);
            ([("content-length", "1000")], Body::from_stream(begins.chain(futures::stream::pending())))
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let settings = aws_sdk_s3::config::Builder::from(&with_long_timeouts(&config)).force_path_style(true).build();
        let response = aws_sdk_s3::Client::from_conf(settings).get_object().bucket("b").key("k").send().await.unwrap();
        let begun = Instant::now();
        response.body.collect().await.unwrap_err();
        assert!(begun.elapsed() < 3 * LONG_ATTEMPT, "{:?}", begun.elapsed());
    }
}
