//! The console: sessions, forms of other sites, and scopes. The tests of `ebb-console` have the content of the pages.

use super::api_tokens::later;
use crate::harness::*;

const TABLE: &str = "security/console.yaml";

/// A code is valid for 2 minutes, at its deployment. A token is valid for 24 hours after each use, and for 7 days.
pub(crate) async fn a_login_ends() {
    let harness = Harness::new().await;
    let token = harness.token("ci", &["read"]).await;
    let session = Browser::signed_in(harness.stack().url(), &token).await;
    let at = async |seconds: u64| later(&harness, seconds).await;
    let mut browser = Browser::new(&at(0).await);
    browser.cookie = format!("__Host-ebb={}", session.cookie.split_once('=').unwrap().1);
    let body = browser.approve_login().await;
    let redeem = async |base: &str| ApiClient::new(&harness.http, base, "").post("/v1/login", body.clone()).await;
    redeem(&at(125).await).await.is_problem(401, "invalid-token");
    redeem(harness.stack().url()).await.is_problem(401, "invalid-token");
    for (hours, end) in request_table::table::<Vec<(Vec<u64>, u64)>>(TABLE, "used_logins", &[]) {
        let login: Value = redeem(&at(100).await).await.is(201).json();
        let used = async |seconds: u64| {
            let client = ApiClient::new(&harness.http, &at(seconds).await, login["token"].as_str().unwrap());
            client.get("/v1/caller").await
        };
        for hour in &hours {
            let caller: Value = used(hour * 3_600).await.is(200).json();
            assert_eq!(caller["expires"], login["expires"], "{hours:?}");
            assert_eq!(caller["expiresUnused"].is_null(), *hour >= 145, "{caller}");
        }
        used(end * 3_600 + 200).await.is_problem(401, "token-expired");
    }
}

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
