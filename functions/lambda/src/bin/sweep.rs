//! Runs `sweep` on Lambda, for events of the schedule and messages of the wake-up queue.

use lambda_http::{Error, LambdaEvent, lambda_runtime, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    ebb_lambda::log();
    let sweep = &ebb_lambda::SweepHandler::default();
    let function = |event: LambdaEvent<serde_json::Value>| async move {
        sweep.invoke(event.payload, event.context.request_id).await
    };
    lambda_runtime::run(service_fn(function)).await
}
