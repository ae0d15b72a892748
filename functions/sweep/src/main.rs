//! `sweep` on Lambda: woken by the schedule and by the delayed queue.

use ebb_flow::deployed::Deployed;
use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let deployed = Deployed::from_environment().await?;
    let deployed = &deployed;
    let function = |event: LambdaEvent<serde_json::Value>| async move {
        Box::pin(deployed.sweep(event.payload)).await.map_err(Error::from)
    };
    lambda_runtime::run(service_fn(function)).await
}
