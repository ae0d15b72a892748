use ebb_protocol::api::TokenInfo;
use ebb_protocol::api_token::token_id;

use super::fixture::*;
use super::samples;

fn token(name: &str, secret: &str, created: u64) -> TokenItem {
    let token = samples::token();
    let (created, expires) = (Timestamp(created), Timestamp(created + 1_000));
    let info = TokenInfo { name: name.to_owned(), created, expires, ..token.info };
    TokenItem { info, digest: digest(secret.as_bytes()), ..token }
}

pub(super) async fn a_name_has_one_valid_token(StoreFixture { store, .. }: StoreFixture) {
    type TokenStep = (String, Option<String>, u64, bool, Vec<String>, (String, u64, Option<u64>));
    // A repetition counts as written. Another token of the name is refused while the first one is valid.
    for (name, secret, at, expected, listed, (ci, created, revoked)) in sample::<Vec<TokenStep>>("tokenSteps") {
        let done = match &secret {
            Some(secret) => store.create_token(&token(&name, secret, at)).await.unwrap(),
            None => store.revoke_token(&name, Timestamp(at)).await.unwrap(),
        };
        let names: Vec<String> = store.list_tokens().await.unwrap().into_iter().map(|token| token.info.name).collect();
        assert_eq!((done, names), (expected, listed), "{name} {secret:?} at {at}");
        let stored = TokenItem { revoked: revoked.map(Timestamp), ..token("ci", &ci, created) };
        assert_eq!(store.read_token(&token_id("ci")).await.unwrap(), Some(stored));
    }
    assert_eq!(store.read_token("").await.unwrap(), None);
}

pub(super) async fn a_session_is_read_until_it_is_deleted(StoreFixture { store, .. }: StoreFixture) {
    let named = SessionItem { digest: "a".to_owned(), ..samples::session() };
    let configured = SessionItem { digest: "b".to_owned(), basis: SessionBasis::Configured, ..named.clone() };
    let identity = SessionBasis::Identity("claims".to_owned());
    let identity = SessionItem { digest: "c".to_owned(), basis: identity, ..named.clone() };
    for session in [&named, &configured, &identity] {
        store.put_session(session).await.unwrap();
        assert_eq!(store.read_session(&session.digest).await.unwrap().as_ref(), Some(session));
    }
    let renewed = SessionItem { expires: Timestamp(named.expires.0 + 1_000), ..named.clone() };
    assert!(store.renew_session(&renewed).await.unwrap());
    assert_eq!(store.read_session("a").await.unwrap(), Some(renewed.clone()));
    for _ in 0..2 {
        store.delete_session("a").await.unwrap();
        // A request that was sent before the end does not begin the session again.
        assert!(!store.renew_session(&renewed).await.unwrap());
        assert_eq!(store.read_session("a").await.unwrap(), None);
    }
    assert_eq!(store.read_session("b").await.unwrap(), Some(configured));
    assert_eq!(store.read_session("").await.unwrap(), None);
}
