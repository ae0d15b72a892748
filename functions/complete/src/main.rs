//! `complete` on Lambda.

use ebb_flow::deployed;

#[tokio::main]
async fn main() -> Result<(), lambda_http::Error> {
    deployed::log();
    deployed::serve(ebb_flow::http::complete).await
}
