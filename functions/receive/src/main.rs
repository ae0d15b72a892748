//! `receive` on Lambda.

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    lambda_http::run(ebb_flow::deployed::router(ebb_flow::http::receive)).await
}
