use proptest::prelude::*;

use super::*;

const KEYS: &str = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEXT: &str = "k2:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
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

fn keys(text: &str) -> TokenKeys {
    TokenKeys::parse(text).unwrap()
}

#[test]
fn a_token_is_short_text() {
    insta::assert_snapshot!(keys(KEYS).mint(&claims()));
    let longest = TokenClaims {
        run: format!("{}-{}-post-start", "a".repeat(32), u64::MAX).parse().unwrap(),
        unit: Unit(u32::MAX),
        attempt: Attempt(u32::MAX),
        epoch: Epoch(u32::MAX),
        expiry: Timestamp(u64::MAX),
        remaining_results: u32::MAX,
        kind: TokenKind::Relay,
    };
    let keys = TokenKeys::from_bytes("abcdefghijklmnop", &[7; 64]).unwrap();
    let token = keys.mint(&longest);
    assert!(token.len() <= MAX_TOKEN, "{}", token.len());
    assert_eq!(keys.verify(&token, NOW), Ok(longest));
}

#[test]
fn an_expired_token_returns_its_claims() {
    let keys = keys(KEYS);
    let token = keys.mint(&claims());
    assert_eq!(keys.verify(&token, claims().expiry), Err(TokenError::Expired(claims())));
    assert_eq!(keys.verify(&token, Timestamp(u64::MAX)), Err(TokenError::Expired(claims())));
}

#[test]
fn keys_rotate() {
    let (old, both, new) = (keys(KEYS), keys(&format!("{NEXT},{KEYS}")), keys(NEXT));
    let (by_old, by_both) = (old.mint(&claims()), both.mint(&claims()));
    assert_eq!(both.verify(&by_old, NOW), Ok(claims()));
    assert_eq!(both.verify(&by_both, NOW), Ok(claims()));
    assert_eq!(by_both, new.mint(&claims()));
    assert_eq!(new.verify(&by_old, NOW), Err(TokenError::UnknownKey));
    assert_eq!(old.verify(&by_both, NOW), Err(TokenError::UnknownKey));
    // A new key under the old id is another key.
    let reused = TokenKeys::from_bytes("k1", &[9; 32]).unwrap();
    assert_eq!(reused.verify(&by_old, NOW), Err(TokenError::Forged));
}

#[test]
fn changed_tokens_are_rejected_with_one_message() {
    let keys = keys(KEYS);
    let token = keys.mint(&claims());
    let (signed, mac) = token.rsplit_once('.').unwrap();
    let other = keys.mint(&TokenClaims { attempt: Attempt(3), ..claims() });
    let other_mac = other.rsplit_once('.').unwrap().1;
    let too_long = format!("{token}{}", "A".repeat(MAX_TOKEN));
    let cases = [
        ("", TokenError::Malformed),
        (".", TokenError::Malformed),
        ("ebb1", TokenError::Malformed),
        ("ebb1.k1", TokenError::Malformed),
        (signed, TokenError::Malformed),
        (&format!("{signed}."), TokenError::Forged),
        (&format!("{signed}.{other_mac}"), TokenError::Forged),
        (&format!("{signed}.{mac}="), TokenError::Malformed),
        (&format!("{signed}.{}", &mac[..42]), TokenError::Malformed),
        (&token.replace(".7.", ".8."), TokenError::Forged),
        (&token.replace(".w.", ".r."), TokenError::Forged),
        (&token.replace("ebb1.", "ebb2."), TokenError::Malformed),
        (&token.replace(".k1.", ".k9."), TokenError::UnknownKey),
        (&token.replace(".k1.", "..k1."), TokenError::UnknownKey),
        (&format!("{token} "), TokenError::Malformed),
        (&format!(" {token}"), TokenError::Malformed),
        (&format!("Bearer {token}"), TokenError::Malformed),
        (&too_long, TokenError::Malformed),
    ];
    for (text, expected) in cases {
        assert_eq!(keys.verify(text, NOW), Err(expected.clone()), "{text}");
        assert_eq!(expected.to_string(), REFUSED);
    }
}

#[test]
fn authentic_tokens_without_valid_claims_are_malformed() {
    let keys = keys(KEYS);
    let run = "k3j2h4q5w6e7r3t2-1-pre-start";
    for claims in [
        format!("x.{run}.7.2.1.99.0"),
        format!("w.{run}.7.2.1.99"),
        format!("w.{run}.7.2.1.99.0.1"),
        format!("w.{run}.-7.2.1.99.0"),
        format!("w.{run}.4294967296.2.1.99.0"),
        "w.no-run.7.2.1.99.0".to_owned(),
    ] {
        let signed = format!("ebb1.k1.{claims}");
        let mac = hmac_with(&keys.first.bytes).chain_update(&signed).finalize().into_bytes();
        let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac));
        assert_eq!(keys.verify(&token, NOW), Err(TokenError::Malformed), "{claims}");
    }
}

#[test]
fn errors_of_invalid_keys_do_not_contain_the_key() {
    let nine: Vec<String> = (0..9).map(|n| KEYS.replace("k1", &format!("k{n}"))).collect();
    let mut report = String::new();
    for text in [
        "",
        " , ",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "K1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        ":AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "abcdefghijklmnopq:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "k1:AAECAwQFBgcICQoLDA0ODxAREhM=",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=:k1",
        &format!("{KEYS} {KEYS}"),
        &nine.join(","),
    ] {
        let error = TokenKeys::parse(text).unwrap_err();
        assert!(!error.to_string().contains("AAECAw"));
        report.push_str(&format!("{:?}\n  {error}\n", &text[..text.len().min(60)]));
    }
    insta::assert_snapshot!(report);
    assert_eq!(format!("{:?}", keys(&format!("{NEXT}\n{KEYS}"))), "TokenKeys(k2, k1)");
    assert_eq!(keys(&format!("{NEXT}\n{KEYS}")).reveal().as_str(), format!("{NEXT},{KEYS}"));
}

#[test]
fn idempotency_keys_identify_instance_resource_and_unit() {
    let key = idempotency_key("k3j2h4q5w6e7r3t2", "users", "database");
    insta::assert_snapshot!(key);
    assert_eq!(key, idempotency_key("k3j2h4q5w6e7r3t2", "users", "database"));
    for other in [
        idempotency_key("k3j2h4q5w6e7r3t3", "users", "database"),
        idempotency_key("k3j2h4q5w6e7r3t2", "user", "sdatabase"),
        idempotency_key("k3j2h4q5w6e7r3t2", "users", "databas"),
    ] {
        assert_ne!(key, other);
    }
}

proptest! {
    #[test]
    fn all_claims_are_parsed(
        instance in "[a-z0-9]{1,32}",
        generation in any::<u64>(),
        numbers in any::<(u32, u32, u32)>(),
        expiry in NOW.0 + 1..,
        relay in any::<bool>(),
    ) {
        let claims = TokenClaims {
            run: RunId::new(&instance, generation, ebb_engine::Hook::PostStop),
            unit: Unit(numbers.0),
            attempt: Attempt(numbers.1),
            epoch: Epoch(numbers.2),
            expiry: Timestamp(expiry),
            remaining_results: 1,
            kind: if relay { TokenKind::Relay } else { TokenKind::Webhook },
        };
        let keys = keys(KEYS);
        let token = keys.mint(&claims);
        prop_assert!(token.len() <= MAX_TOKEN);
        prop_assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
        prop_assert_eq!(keys.verify(&token, NOW), Ok(claims));
    }
}
