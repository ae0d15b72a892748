//! `receive` on Lambda.

use ebb_flow::deployed::Deployed;

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    let deployed = Deployed::from_environment().await?;
    lambda_http::run(ebb_flow::http::receive(deployed.server())).await
}
