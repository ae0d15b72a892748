//! `receive` on Lambda.

use ebb_flow::deployed::{self, Deployed};

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    deployed::log();
    let deployed = Deployed::from_environment().await?;
    lambda_http::run(deployed.router(ebb_flow::http::receive)).await
}
