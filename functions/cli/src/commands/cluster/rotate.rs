//! `ebb cluster rotate`: issues another bootstrap token for a cluster.

use super::connect::{label, registered};
use super::installation::bootstrap_secret;
use super::kubectl::ApplyArgs;
use super::options::ClusterOptions;
use crate::client::ApiClient;
use crate::exit::{CliError, Exit, Result};
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ebb cluster rotate eu --apply\n  ebb cluster rotate eu | kubectl apply -f -")]
pub(crate) struct ClusterRotateArgs {
    /// Name of the cluster
    #[arg(value_parser = label)]
    name: String,
    #[command(flatten)]
    apply: ApplyArgs,
}

impl ClusterRotateArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let Self { name, apply } = self;
        let former = registered(client, &name).await?.ok_or_else(|| missing(&name))?;
        let options = ClusterOptions::stored(&name, &former)?;
        let namespace = options.relay_namespace.as_str();
        if apply.is_set() {
            apply.check_relay(namespace, &name).await?;
            if former.registered.is_some() {
                apply.check_uid(client, &name).await?;
            }
        }
        let answer = client.rotate_cluster(&name).await?;
        let token = answer.bootstrap_token.as_deref();
        let token = token.ok_or_else(|| CliError::broken("the response of the server has no bootstrap token"))?;
        let secret = bootstrap_secret(namespace, token)?;
        if apply.is_set() {
            apply.apply(&secret).await?;
            apply.restart(namespace).await?;
            apply.wait_until_up(client, &name, namespace, former.registered.as_deref(), &options.policy()).await?;
            return Ok(Exit::Done);
        }
        output::print_data(&secret)?;
        output::status_line(&format!(
            "Standard output has a token that registers one relay within an hour. Apply the Secret with `kubectl apply -f -`, \
             and then run `kubectl rollout restart deployment/ebb-relay --namespace {namespace}`. The present secret of the \
             relay is valid until then."
        ));
        Ok(Exit::Done)
    }
}

/// Returns the error for a cluster that does not exist.
pub(super) fn missing(name: &str) -> CliError {
    CliError::failed(format!("the cluster {name} does not exist"))
        .with_hint("ebb cluster list")
        .with_hint(format!("register it with `ebb cluster connect {name}`"))
}
