use super::*;
use crate::tests::{keys, rows};

const KEYS: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEXT: &str = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
const NOW: Timestamp = Timestamp(1_700_000_000_000);

fn claims() -> TokenClaims {
    TokenClaims {
        run: "k3j2h4q5w6e7r3t2-1-pre-start".parse().unwrap(),
        unit: Unit(7),
        attempt: Attempt(2),
        epoch: Epoch(1),
        expiry: NOW.plus(ebb_engine::Millis(1)),
        remaining_results: 0,
        kind: TokenKind::Webhook,
    }
}

fn verify(text: &str, keys: &WebhookKeys) -> Result<TokenClaims, TokenError> {
    TokenClaims::verify(text, keys, NOW)
}

#[test]
fn a_token_is_short_text() {
    insta::assert_snapshot!(claims().sign(&keys(KEYS)));
    let longest = TokenClaims {
        run: format!("{}-{}-post-start", "a".repeat(32), u64::MAX).parse().unwrap(),
        unit: Unit(u32::MAX),
        attempt: Attempt(u32::MAX),
        epoch: Epoch(u32::MAX),
        expiry: Timestamp(u64::MAX),
        remaining_results: u32::MAX,
        kind: TokenKind::Relay,
    };
    let token = longest.sign(&keys(KEYS));
    assert!(token.len() <= MAX_TOKEN, "{}", token.len());
    assert_eq!(verify(&token, &keys(KEYS)), Ok(longest));
}

#[test]
fn an_expired_token_returns_its_claims() {
    let keys = keys(KEYS);
    let token = claims().sign(&keys);
    for now in [claims().expiry, Timestamp(u64::MAX)] {
        assert_eq!(TokenClaims::verify(&token, &keys, now), Err(TokenError::Expired(claims())));
    }
}

#[test]
fn keys_rotate() {
    let (old, both, new) = (keys(KEYS), keys(&format!("{NEXT},{KEYS}")), keys(NEXT));
    let (by_old, by_both) = (claims().sign(&old), claims().sign(&both));
    assert_eq!(verify(&by_old, &both), Ok(claims()));
    assert_eq!(verify(&by_both, &both), Ok(claims()));
    assert_eq!(by_both, claims().sign(&new));
    assert_eq!(verify(&by_old, &new), Err(TokenError::Invalid));
    assert_eq!(verify(&by_both, &old), Err(TokenError::Invalid));
}

#[test]
fn changed_tokens_are_rejected() {
    let keys = keys(KEYS);
    let token = claims().sign(&keys);
    let (signed, mac) = token.rsplit_once('.').unwrap();
    let other = TokenClaims { attempt: Attempt(3), ..claims() }.sign(&keys);
    let other_mac = other.rsplit_once('.').unwrap().1;
    let cut = &mac[..42];
    let parts = [("<signed>", signed), ("<other>", other_mac), ("<cut>", cut), ("<mac>", mac), ("<token>", &*token)];
    let texts = rows::<String>("changed_tokens_are_rejected").into_iter();
    let texts = texts.map(|text| parts.iter().fold(text, |text, (name, part)| text.replace(name, part)));
    let replaced = [(".7.", ".8."), (".w.", ".r."), ("ebb1.", "ebb2.")].map(|(from, to)| token.replace(from, to));
    for text in texts.chain(replaced).chain([format!("{token}{}", "A".repeat(MAX_TOKEN))]) {
        assert_eq!(verify(&text, &keys), Err(TokenError::Invalid), "{text}");
    }
}

#[test]
fn the_secret_itself_signs_no_token() {
    let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
    let token = claims().sign(&secret.clone().into());
    let (signed, _) = token.rsplit_once('.').unwrap();
    let forged = hmac_with(&[7; 32]).chain_update(signed).finalize().into_bytes();
    let forged = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(forged));
    assert_eq!(verify(&token, &secret.clone().into()), Ok(claims()));
    assert_eq!(verify(&forged, &secret.into()), Err(TokenError::Invalid));
}

#[test]
fn authentic_tokens_without_valid_claims_are_rejected() {
    let keys = keys(KEYS);
    for claims in rows::<String>("authentic_tokens_without_valid_claims_are_rejected") {
        let signed = format!("ebb1.{claims}");
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(keys.first(), &signed).finalize().into_bytes()));
        assert_eq!(verify(&token, &keys), Err(TokenError::Invalid), "{claims}");
    }
}

#[test]
fn idempotency_keys_identify_instance_resource_and_unit() {
    let key = idempotency_key("k3j2h4q5w6e7r3t2", "users", "database");
    insta::assert_snapshot!(key);
    assert_eq!(key, idempotency_key("k3j2h4q5w6e7r3t2", "users", "database"));
    for [instance, resource, unit] in rows::<[String; 3]>("units_with_other_idempotency_keys") {
        assert_ne!(key, idempotency_key(&instance, &resource, &unit));
    }
}
