//! `sweep` on Lambda: woken by the schedule and by the delayed queue.

use ebb_flow::deployed::{self, Deployed};
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    deployed::log();
    let deployed = Deployed::from_environment().await?;
    let deployed = &deployed;
    let function = |event: LambdaEvent<serde_json::Value>| async move {
        deployed.sweep(event.payload, event.context.request_id).await.map_err(Error::from)
    };
    lambda_runtime::run(service_fn(function)).await
}
