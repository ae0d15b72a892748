//! Signatures of the requests that expect callbacks. The table has the callbacks.

use ebb_protocol::api::SigningSecrets;
use ebb_protocol::sign::{self, SignatureError};

use crate::harness::*;

/// Requests are signed with the secret of their plugin.
pub(crate) async fn signing_secrets() {
    let harness = Harness::new().await;
    let call = harness.accepted("waits", MAKE).await;
    harness.publish("other@1.0.0", MAKE).await;
    let deployment = harness.stack().env().settings.unit_keys.first().clone();
    let verify = |secret: WebhookSecret| sign::verify(&secret.into(), &call.headers, &[], now()).map(drop);
    assert_eq!(verify(deployment), Err(SignatureError::NoMatch));
    for (name, expected) in [("waits", Ok(())), ("other", Err(SignatureError::NoMatch))] {
        let path = format!("/v1/plugins/{name}/signing-secret");
        let secrets: SigningSecrets = harness.get(&path).await.is(200).json();
        assert_eq!((secrets.plugin.as_str(), secrets.secrets.len()), (name, 1));
        assert_eq!(verify(WebhookSecret::parse(&secrets.secrets[0]).unwrap()), expected);
    }
}
