//! Servers with another clock, for the expiry of tokens and sessions. The tables have the tests.

use ebb_flow::ports::Clock;
use ebb_tests::virtual_clock::ManualClock;

use crate::harness::*;
use crate::lifecycle::retention::other_instance;

/// Serves the functions of a harness at a later time. Returns the URL.
pub(crate) async fn later(harness: &Harness, seconds: u64) -> String {
    with_clock(harness, Arc::new(ManualClock::at(now().0 + seconds * 1_000))).await
}

/// Serves the functions of a harness with another clock. Returns the URL.
pub(super) async fn with_clock(harness: &Harness, clock: Arc<dyn Clock>) -> String {
    let env = Env { clock, ..other_instance(harness) };
    serve(ebb_api::all(harness.functions(Arc::new(env), ApiTokens::default()))).await
}
