use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::tests::{headers, keys, rows};

const NOW: Timestamp = Timestamp(1_614_265_330_123);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn id() -> MessageId {
    MessageId::parse("msg_p5jXN8AQM9LWM0D4loKWxJek").unwrap()
}

fn signed(secret: &str, now: Timestamp, body: &[u8]) -> HeaderMap {
    headers(&sign(keys(secret).first(), &id(), now, body))
}

#[test]
fn a_body_may_be_binary() {
    let body = [0xff, 0, 0xfe, b'.', 0x80];
    let headers = signed(SECRET, NOW, &body);
    verify(&keys(SECRET), &headers, &body, NOW).unwrap();
    assert_eq!(verify(&keys(SECRET), &headers, &body[..4], NOW), Err(SignatureError::NoMatch));
}

#[test]
fn the_first_key_signs_and_all_keys_verify() {
    let rotating = keys(&format!("{OTHER}, {SECRET}"));
    verify(&rotating, &signed(SECRET, NOW, b"x"), b"x", NOW).unwrap();
    verify(&rotating, &signed(OTHER, NOW, b"x"), b"x", NOW).unwrap();
    assert_eq!(sign(rotating.first(), &id(), NOW, b"x"), sign(&WebhookSecret::parse(OTHER).unwrap(), &id(), NOW, b"x"));
    assert_eq!(verify(&keys(SECRET), &signed(OTHER, NOW, b"x"), b"x", NOW), Err(SignatureError::NoMatch));
}

#[test]
fn one_of_several_signatures_must_match() {
    let right = sign(keys(SECRET).first(), &id(), NOW, b"x")[2].1.clone();
    let wrong = sign(keys(OTHER).first(), &id(), NOW, b"x")[2].1.clone();
    let taken = |signature: &str| {
        let headers =
            headers(&[(WEBHOOK_ID, id().as_str()), (WEBHOOK_TIMESTAMP, "1614265330"), (WEBHOOK_SIGNATURE, signature)]);
        verify(&keys(SECRET), &headers, b"x", NOW)
    };
    let mac = right.strip_prefix("v1,").unwrap();
    let parts = [("<right>", &*right), ("<wrong>", &*wrong), ("<mac>", mac), ("<cut mac>", &mac[..20])];
    for (text, expected) in rows::<(String, String)>("one_of_several_signatures_must_match") {
        let signature = parts.iter().fold(text, |text, (name, part)| text.replace(name, part));
        let found = taken(&signature).map_or_else(|error| format!("{error:?}"), |id| id.to_string());
        assert_eq!(found, expected, "{signature}");
    }
}

#[test]
fn old_and_future_timestamps_have_the_same_tolerance() {
    let second = Timestamp(NOW.0 / 1000 * 1000);
    let headers = signed(SECRET, second, b"x");
    let at = |seconds: i64| {
        verify(&keys(SECRET), &headers, b"x", Timestamp(second.0.checked_add_signed(seconds * 1000).unwrap()))
    };
    assert!(at(300).is_ok());
    assert!(at(-300).is_ok());
    assert_eq!(at(301), Err(SignatureError::TooOld { timestamp: 1_614_265_330, now: 1_614_265_631 }));
    assert_eq!(at(-301), Err(SignatureError::InFuture { timestamp: 1_614_265_330, now: 1_614_265_029 }));
}

#[test]
fn errors_explain_the_solution() {
    let mut report = String::new();
    for mut given in rows::<Vec<(String, String)>>("errors_explain_the_solution") {
        given.iter_mut().for_each(|(_, value)| *value = value.replace("<129 characters>", &"x".repeat(129)));
        let error = verify(&keys(SECRET), &headers(&given), b"x", NOW).unwrap_err();
        let given: Vec<String> = given.iter().map(|(name, value)| format!("{name}: {value:.40}")).collect();
        report.push_str(&format!("{}\n  {error}\n", given.join("\n")));
    }
    insta::assert_snapshot!(report);
}

#[test]
fn header_values_that_are_not_text_are_rejected() {
    for name in [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE] {
        let mut headers = signed(SECRET, NOW, b"x");
        headers.insert(name, HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        let error = verify(&keys(SECRET), &headers, b"x", NOW).unwrap_err();
        assert!(matches!(&error, SignatureError::Malformed { header, .. } if header == name), "{error}");
    }
}

#[test]
fn errors_of_invalid_secrets_do_not_contain_the_secret() {
    let mut report = String::new();
    for text in rows::<String>("errors_of_invalid_secrets_do_not_contain_the_secret") {
        let error = WebhookSecret::parse(&text).unwrap_err();
        assert!(!error.to_string().contains("MfKQ9r8"));
        report.push_str(&format!("{text:?}\n  {error}\n"));
    }
    report.push_str(&format!("65 bytes\n  {}\n", WebhookSecret::from_bytes(&[1; 65]).unwrap_err()));
    report.push_str(&format!("9 secrets\n  {}\n", WebhookKeys::parse(&[SECRET; 9].join(" ")).unwrap_err()));
    insta::assert_snapshot!(report);
    let secret = WebhookSecret::parse(&format!(" {SECRET}\n")).unwrap();
    assert_eq!(secret.reveal().as_str(), SECRET);
    assert_eq!(format!("{:?} {secret:?}", keys(SECRET)), "WebhookKeys { first: Secret(…), others: [] } Secret(…)");
}

proptest! {
    #[test]
    fn signatures_equal_those_of_the_reference_library(
        secret in proptest::collection::vec(any::<u8>(), 24..=64),
        id in "[!-\\-/-~]{1,128}",
        seconds in 0u64..10_000_000_000,
        body in ".{0,200}",
    ) {
        let ours = WebhookSecret::from_bytes(&secret).unwrap();
        let theirs = standardwebhooks::Webhook::new(&ours.reveal()).unwrap();
        let theirs = theirs.sign(&id, i64::try_from(seconds).unwrap(), body.as_bytes()).unwrap();
        let id = MessageId::parse(&id).unwrap();
        let now = Timestamp(seconds * 1000 + 999);
        let ours_signed = sign(&ours, &id, now, body.as_bytes());
        prop_assert_eq!(&ours_signed[2].1, &theirs);
        prop_assert!(verify(&ours.into(), &headers(&ours_signed), body.as_bytes(), now).is_ok());
    }
}

/// Each plugin has its own secret, so a receiver cannot forge requests to another. Receivers hold these secrets, so
/// they must never change.
#[test]
fn each_plugin_has_its_own_secret() {
    let deployment = WebhookSecret::from_bytes(&[7; 32]).unwrap();
    let derived = |plugin: &str| deployment.for_plugin(plugin).reveal().to_string();
    assert_eq!(derived("acme/db"), "whsec_aAbQyskdb5MSJcA26/XL5SPMXjOcC11y5sY1osVqNPY=");
    let all = ["acme/db", "acme/d", "acme", "", "b"].map(derived).into_iter().chain([deployment.reveal().to_string()]);
    assert_eq!(all.collect::<std::collections::BTreeSet<_>>().len(), 6);
    let id = MessageId::parse("m").unwrap();
    let headers = headers(&sign_with(&WebhookKeys::from(deployment.clone()).for_plugin("a"), &id, NOW, b"body"));
    let by = |secret: WebhookSecret| verify(&secret.into(), &headers, b"body", NOW);
    assert!(by(deployment.for_plugin("a")).is_ok());
    for other in [deployment.for_plugin("b"), deployment.clone()] {
        assert_eq!(by(other), Err(SignatureError::NoMatch));
    }
}

/// During a rotation, receivers may hold either secret.
#[test]
fn a_rotation_signs_with_each_secret() {
    let [old, new] = [[1; 32], [2; 32]].map(|bytes| WebhookSecret::from_bytes(&bytes).unwrap());
    let keys = WebhookKeys::new(new.clone(), vec![old.clone()]).unwrap().for_plugin("a");
    let signed = sign_with(&keys, &MessageId::parse("m").unwrap(), NOW, b"body");
    assert_eq!(signed[2].1.split(' ').filter(|part| part.starts_with("v1,")).count(), 2);
    for secret in [old, new] {
        let derived = secret.for_plugin("a");
        assert!(verify(&derived.clone().into(), &headers(&signed), b"body", NOW).is_ok());
        assert!(keys.reveal().contains(&derived.reveal()));
    }
}
