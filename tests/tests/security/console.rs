//! The console: scopes, and tokens of the configuration. The table has sessions and forms of other sites. The tests of
//! `ebb-console` have the content of the pages.

use crate::harness::*;

const TABLE: &str = "security/console.yaml";

pub(crate) async fn actions_need_their_scope() {
    let harness = Harness::simple().await;
    request_table::play(&harness, TABLE, "actions_need_their_scope", &[]).await;
    // An instance that takes the name after the form was checked is not retried.
    let env = harness.stack().env();
    let other = ebb_flow::advance::retry::retry(env, (TargetKey::new("sandbox", "a"), Some("other")), None).await;
    assert!(matches!(other, Ok(Err(Rejection::Refused(ErrorCode::Outdated, _)))), "{other:?}");
}

/// A token of the configuration can have the form of an identity token, which does not sign in.
pub(crate) async fn a_configured_token_of_any_form_signs_in() {
    const CONFIGURED: &str = "ey.configured.token";
    let harness = Harness::new().await;
    let tokens = ApiTokens::new([(CONFIGURED, ApiRole::Operator)]);
    let server = harness.functions(Arc::clone(harness.stack().env()), tokens);
    let base = serve(ebb_api::all(server)).await;
    let browser = Browser::signed_in(&base, CONFIGURED).await;
    let refused = browser.post("/console/sign-in", Some(&base), &[("token", "ey.another.token")]).await;
    assert!(refused.is(401).body.contains("does not sign in"), "{refused:?}");
}
