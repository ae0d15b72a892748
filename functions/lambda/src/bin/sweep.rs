//! Runs `sweep` on Lambda, for events of the schedule and messages of the wake-up queue.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    ebb_lambda::serve_sweep().await
}
