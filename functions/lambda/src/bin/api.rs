//! Runs the router `ebb_api::api` on Lambda.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    ebb_lambda::serve(ebb_api::api).await
}
