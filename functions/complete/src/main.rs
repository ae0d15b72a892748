//! `complete` on Lambda.

use ebb_flow::deployed;

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    deployed::log();
    lambda_http::run(deployed::router(ebb_flow::http::complete)).await
}
