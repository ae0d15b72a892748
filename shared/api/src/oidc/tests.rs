use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use ebb_egress::{CallResult, HttpClient, HttpRequest, HttpResponse, Policy};
use ebb_engine::Millis;
use ebb_flow::ports::SteadyTime;
use serde_json::json;

use super::issuer_keys::DiscoveryDocument;
use super::*;

/// A server of an issuer that counts its responses. Its key has the number of the response as id.
async fn issuer() -> (String, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let discovery = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
    let keys = get(|State(count): State<Arc<AtomicUsize>>| async move {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let other = json!({"kty": "unknown", "kid": "x"});
        let key = json!({"kty": "RSA", "kid": number.to_string(), "use": "sig", "n": "AQAB", "e": "AQAB"});
        Json(json!({"keys": [other, key]}))
    });
    let router = axum::Router::new()
        .route("/.well-known/openid-configuration", get(|| async { Json(discovery) }))
        .route("/keys", keys)
        .with_state(Arc::clone(&count));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, count)
}

#[tokio::test]
async fn keys_are_fetched_once_a_minute_at_most_and_end_after_an_hour() {
    let (url, count) = issuer().await;
    let keys = IssuerKeys::default();
    let http = HttpClient::new(Policy::with_loopback()).unwrap();
    let begun = SteadyTime(Millis(1_000_000));
    let has_key = async |kid: &str, after: u64| {
        let (now, name) = (begun.plus(Millis(1_000 * after)), (kid, Algorithm::RS256));
        keys.published(&url, Some(name), &http, now).await.unwrap().key(name).is_some()
    };
    assert!(has_key("1", 0).await);
    for _ in 0..10 {
        assert!(!has_key("2", 59).await);
    }
    assert_eq!((has_key("1", 59).await, count.load(Ordering::SeqCst)), (true, 1));
    assert_eq!((has_key("2", 60).await, count.load(Ordering::SeqCst)), (true, 2));
    // A key that the issuer has removed ends with the next fetch.
    assert!(!has_key("1", 61).await);
    assert_eq!((has_key("2", 60 + 3_599).await, count.load(Ordering::SeqCst)), (true, 2));
    assert_eq!((has_key("3", 60 + 3_600).await, count.load(Ordering::SeqCst)), (true, 3));
}

#[tokio::test]
async fn a_fetch_that_failed_is_repeated_after_some_seconds() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let keys = IssuerKeys::default();
    let http = HttpClient::new(Policy::with_loopback()).unwrap();
    let begun = SteadyTime(Millis(1_000_000));
    let reason = async |after: u64| {
        let now = begun.plus(Millis(1_000 * after));
        keys.published(&url, Some(("1", Algorithm::RS256)), &http, now).await.unwrap_err()
    };
    assert!(reason(0).await.contains("openid-configuration"));
    assert!(reason(4).await.contains("try again"));
    assert!(reason(5).await.contains("openid-configuration"));
    let limited = |_: HttpRequest| -> CallResult<HttpResponse> { Ok(HttpResponse::new(429, "")) };
    let fetched = async |after: u64| {
        let now = begun.plus(Millis(1_000 * after));
        keys.published(&url, None, &limited, now).await.unwrap_err().contains("status 429")
    };
    assert_eq!([fetched(10).await, fetched(69).await, fetched(70).await], [true, false, true]);
}

#[test]
fn another_account_is_asked_for_by_a_prompt_that_the_issuer_accepts() {
    let prompt = |listed: &[&str]| {
        let prompt_values_supported = listed.iter().map(|value| (*value).to_owned()).collect();
        DiscoveryDocument { prompt_values_supported, ..DiscoveryDocument::default() }.account_prompt()
    };
    assert_eq!((prompt(&[]), prompt(&["none"])), ("select_account", "select_account"));
    assert_eq!(prompt(&["none", "login", "consent"]), "login");
    assert_eq!(prompt(&["login", "select_account"]), "select_account");
}

#[test]
fn an_invalid_configuration_names_the_field() {
    assert!(OidcIssuers::parse("").unwrap().issuers.is_empty());
    let rules = json!([{"when": "claims.sub == 'a'", "scopes": ["read"]}]);
    let client = json!({"clientId": "ebb", "clientSecret": "EBB_CLIENT"});
    let valid = json!([{"issuer": "https://issuer.test", "audience": "ebb", "rules": rules, "signIn": client}]);
    let valid = OidcIssuers::parse(&valid.to_string()).unwrap();
    assert_eq!(valid.for_people().collect::<Vec<_>>(), [("https://issuer.test", "https://issuer.test")]);
    let wrong: Vec<(Value, String)> = serde_saphyr::from_str(include_str!("../../tests/wrong_issuers.yaml")).unwrap();
    for (text, expected) in wrong {
        let error = OidcIssuers::parse(&text.to_string()).unwrap_err();
        assert!(error.contains(&expected), "{text}: {error}");
    }
}
