//! `ebb event`: runs the units of an event such as `sleep`.

use ebb_protocol::{LifecycleData, LifecycleResult, LifecycleType};

use crate::lifecycle::{data, watched};
use crate::{ApiClient, Exit, OutputArgs, Result, TargetArgs, output};

#[derive(Debug, clap::Args)]
pub(crate) struct EventArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Name of the event: a key of `hooks` of the document or of its plugins
    event: String,
    #[command(flatten)]
    output: OutputArgs,
}

impl EventArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit> {
        let target = self.target.target()?;
        let instance = watched(&target, &client.existing(&target).await?);
        let event = LifecycleData { event: Some(self.event.clone()), ..data(&instance, None) };
        let response = client.lifecycle(LifecycleType::Event, &event).await?;
        let event = &self.event;
        output::status_line(&match response.result {
            LifecycleResult::Waiting => format!("{event} of {target} waits until its present units have ended"),
            LifecycleResult::Unchanged => format!("{target} has no unit for {event}"),
            _ => format!("{event} of {target} runs; see `ebb get {} {}`", target.kind, target.name),
        });
        self.output.write_data(&response)
    }
}
