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
    let first = token("ci", "1", 1_000);
    assert!(store.create_token(&first).await.unwrap());
    assert_eq!(store.read_token(&token_id("ci")).await.unwrap(), Some(first.clone()));
    // A repetition counts as written. Another token of the name is refused while the first one is valid.
    assert!(store.create_token(&first).await.unwrap());
    assert!(!store.create_token(&token("ci", "2", 1_999)).await.unwrap());
    assert!(store.create_token(&token("a", "3", 1_000)).await.unwrap());
    let names: Vec<String> = store.list_tokens().await.unwrap().into_iter().map(|token| token.info.name).collect();
    assert_eq!(names, ["a", "ci"]);
    let second = token("ci", "2", 2_000);
    assert!(store.create_token(&second).await.unwrap());
    assert!(!store.revoke_token("none", Timestamp(1)).await.unwrap());
    for at in [2_100, 2_200] {
        assert!(store.revoke_token("ci", Timestamp(at)).await.unwrap());
    }
    let revoked = store.read_token(&token_id("ci")).await.unwrap().unwrap();
    assert_eq!(revoked, TokenItem { revoked: Some(Timestamp(2_100)), ..second });
    assert_eq!(store.list_tokens().await.unwrap().len(), 1);
    assert!(store.create_token(&token("ci", "4", 2_300)).await.unwrap());
    assert_eq!(store.read_token(&token_id("ci")).await.unwrap().unwrap().revoked, None);
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
