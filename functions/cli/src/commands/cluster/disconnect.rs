//! `ebb cluster disconnect`: deletes the registration of a cluster.

use super::connect::{registered, relay_namespace};
use super::list::missing;
use super::release::removal;
use super::values::label;
use crate::{ApiClient, Exit, Result, output};

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterDisconnectArgs {
    /// Name of the cluster
    #[arg(value_parser = label)]
    name: String,
    /// Disconnect the cluster although targets have units there; their teardown then becomes stuck
    #[arg(long)]
    force: bool,
}

impl ClusterDisconnectArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let Self { name, force } = self;
        let (_, registration) = registered(client, &name).await?.ok_or_else(|| missing(&name))?;
        let deleted = client.delete(&["clusters", &name], force.then_some("force").as_slice()).await;
        let deleted = deleted.map_err(|error| match error.has_code("cluster-in-use") {
            true => error.with_hint(format!("if the cluster is lost: ebb cluster disconnect {name} --force")),
            false => error,
        });
        deleted?.ok_or_else(|| missing(&name))?;
        let Some(namespace) = relay_namespace(&registration) else {
            return output::message(&format!(
                "Disconnected cluster {name}. Another program has installed its relay: use it to remove the relay."
            ));
        };
        output::status_line(&format!("Disconnected cluster {name}. These commands remove its relay:"));
        output::print(&removal(namespace))
    }
}
