//! Runs the router `ebb_api::complete` on Lambda.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    ebb_lambda::serve(ebb_api::complete).await
}
