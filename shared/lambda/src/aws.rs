//! How functions reach AWS: the settings of all clients, which share one HTTP client.
//!
//! Lambda sets region and credentials in the environment and never changes them while an instance lives. Nothing else is
//! asked: neither the metadata service of a machine nor STS, whose answers would delay the first event.

use std::time::Duration;

use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;

use crate::FunctionError;

/// Longest time of one attempt at the table or the queue, which answer within milliseconds. The SDK then tries again on
/// another connection: one that was open when the instance was frozen may be dead without a reset.
const ATTEMPT: Duration = Duration::from_secs(2);
/// Longest time of one attempt at the bucket or the secret.
const LONG_ATTEMPT: Duration = Duration::from_secs(5);
/// Longest time of one operation, with all of its attempts. An invocation has 29 s for several.
const OPERATION: Duration = Duration::from_secs(8);
/// A connection that was idle for longer is not used again.
const IDLE: Duration = Duration::from_secs(15);

/// Returns the settings of the clients of the table and the queue. [`with_long_timeouts`] makes those of the others.
///
/// The region is `AWS_REGION`. Credentials are `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
/// `AWS_ENDPOINT_URL` and `AWS_ENDPOINT_URL_SERVICE` name other endpoints, if they are set. Sends no request.
///
/// # Errors
/// [`FunctionError::Missing`].
pub(crate) async fn config() -> Result<SdkConfig, FunctionError> {
    let config = loader().load().await;
    match config.region() {
        Some(_) => Ok(config),
        None => Err(FunctionError::Missing("AWS_REGION")),
    }
}

/// Returns `config` with the time that the bucket and the secret may take.
pub(crate) fn with_long_timeouts(config: &SdkConfig) -> SdkConfig {
    config
        .to_builder()
        .timeout_config(timeouts(LONG_ATTEMPT))
        // The timeouts end with the head of an answer; this bounds a body that stops in between.
        .stalled_stream_protection(StalledStreamProtectionConfig::enabled().grace_period(LONG_ATTEMPT).build())
        .build()
}

fn loader() -> ConfigLoader {
    aws_config::defaults(BehaviorVersion::latest())
        .region(EnvironmentVariableRegionProvider::new())
        .credentials_provider(EnvironmentVariableCredentialsProvider::new())
        .timeout_config(timeouts(ATTEMPT))
        // Each service would make a client of its own, and read the certificates of authorities again.
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

    /// The settings of a function whose services are all at one address.
    async fn towards(listener: &TcpListener) -> SdkConfig {
        let url = format!("http://{}", listener.local_addr().unwrap());
        loader().test_credentials().region("us-east-1").endpoint_url(url).load().await
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
        let config = towards(&listener).await;
        let accepted = never_answers(listener);
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
        // As long as the longest one, and what a busy machine adds.
        assert!(begun.elapsed() < 3 * OPERATION, "{:?}", begun.elapsed());
        // Each was tried again, on a connection that had not failed before.
        assert!(accepted.load(Ordering::Relaxed) >= 8);
    }

    /// Less than an attempt may take is no failure, and several requests may take longer than one operation: a relay's poll
    /// looks into the table until there is a batch.
    #[tokio::test]
    async fn a_slow_service_is_waited_for() {
        let listener = listener().await;
        let config = towards(&listener).await;
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
        let config = towards(&listener).await;
        let router = Router::new().fallback(|| async {
            let begins = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"begins"))]);
            ([("content-length", "1000")], Body::from_stream(begins.chain(futures::stream::pending())))
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let settings = aws_sdk_s3::config::Builder::from(&with_long_timeouts(&config)).force_path_style(true).build();
        let client = aws_sdk_s3::Client::from_conf(settings);
        let answer = client.get_object().bucket("b").key("k").send().await.unwrap();
        let begun = Instant::now();
        answer.body.collect().await.unwrap_err();
        assert!(begun.elapsed() < 3 * LONG_ATTEMPT, "{:?}", begun.elapsed());
    }
}
