//! `sweep` on Lambda: woken by the schedule and by the delayed queue.

use ebb_flow::deployed::{self, Deployed};
use lambda_http::{Error, LambdaEvent, lambda_runtime, service_fn};
use tokio::sync::OnceCell;

#[tokio::main]
async fn main() -> Result<(), Error> {
    deployed::log();
    // Made when the first event comes, which it fails if that cannot be.
    let deployed = &OnceCell::new();
    let function = |event: LambdaEvent<serde_json::Value>| async move {
        let deployed: &Deployed = deployed.get_or_try_init(Deployed::from_environment).await?;
        deployed.sweep(event.payload, event.context.request_id).await.map_err(Error::from)
    };
    lambda_runtime::run(service_fn(function)).await
}
