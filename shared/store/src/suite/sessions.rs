use ebb_protocol::engine::Timestamp;

use super::fixture::StoreFixture;
use crate::{SessionBasis, SessionItem};

pub(super) async fn a_session_is_read_until_it_is_deleted(fixture: StoreFixture) {
    let store = &fixture.store;
    let named = SessionItem {
        digest: "a".to_owned(),
        basis: SessionBasis::Named("dueqv2noxvjonmap".to_owned()),
        proof: "p".to_owned(),
        created: Timestamp(1_000),
        expires: Timestamp(2_001),
    };
    let configured = SessionItem { digest: "b".to_owned(), basis: SessionBasis::Configured, ..named.clone() };
    let identity = SessionBasis::Identity("claims".to_owned());
    let identity = SessionItem { digest: "c".to_owned(), basis: identity, ..named.clone() };
    for session in [&named, &configured, &identity] {
        store.put_session(session).await.unwrap();
        assert_eq!(store.read_session(&session.digest).await.unwrap().as_ref(), Some(session));
    }
    for _ in 0..2 {
        store.delete_session("a").await.unwrap();
        assert_eq!(store.read_session("a").await.unwrap(), None);
    }
    assert_eq!(store.read_session("b").await.unwrap(), Some(configured));
    assert_eq!(store.read_session("").await.unwrap(), None);
}
