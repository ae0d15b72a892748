//! How AWS is reached from within Lambda: where, as whom, and by one HTTP client for all services.
//!
//! Lambda says all of it in the environment, so nothing is looked for in files, in the metadata of a machine, or by
//! requests: what would look there is not linked.

use std::env::var;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::config::BehaviorVersion;
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_types::SdkConfig;
use aws_types::region::Region;
use aws_types::service_config::{LoadServiceConfig, ServiceConfigKey};

use super::DeployedError;

/// Settings for clients of all services, from `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
/// `AWS_SESSION_TOKEN`, which Lambda sets and never changes while a function lives, and `AWS_ENDPOINT_URL` or
/// `AWS_ENDPOINT_URL_SERVICE`, which it does not set. No request is sent.
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
        // Each service would make its own, and read the certificates of authorities for itself.
        .http_client(Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc)).build_https())
        .service_config(Places);
    Ok(config.build())
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
