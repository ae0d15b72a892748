use http::HeaderValue;
use proptest::prelude::*;

use super::*;
use crate::tests::headers;

const NOW: Timestamp = Timestamp(1_614_265_330_123);
const SECRET: &str = "a-secret-of-this-source";
const OTHER: &str = "another-secret-of-this-source";
const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A request that verifies. Python's `hmac` and `hashlib` made the signatures.
#[derive(Clone)]
struct Request {
    name: &'static str,
    scheme: SourceScheme,
    secret: &'static str,
    body: Vec<u8>,
    /// The last one has the signature or the credentials.
    headers: Vec<(&'static str, Vec<u8>)>,
    url_secret: Option<String>,
    id: Option<String>,
}

impl Request {
    fn header_map(&self) -> HeaderMap {
        headers(&self.headers)
    }

    fn verify(&self) -> Result<Option<String>, SourceSignatureError> {
        verify(&self.scheme, self.secret, &self.header_map(), self.url_secret.as_deref(), &self.body, NOW)
    }
}

/// Returns the requests of `tests/source_requests.json`. Those of Standard Webhooks are the test vector of its libraries.
fn requests() -> Vec<Request> {
    of_rows(include_str!("../../tests/source_requests.json"))
}

fn of_rows(text: &'static str) -> Vec<Request> {
    type Headers = Vec<(&'static str, String)>;
    type Row = (&'static str, SourceScheme, &'static str, String, Headers, Option<String>, Option<String>);
    let rows: Vec<Row> = serde_json::from_str(text).unwrap();
    let requests = rows.into_iter().map(|(name, scheme, secret, body, headers, url_secret, id)| {
        let headers = headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        Request { name, scheme, secret, body: body.into_bytes(), headers, url_secret, id }
    });
    requests.collect()
}

/// Returns true for schemes that sign the body. The others compare credentials.
fn signs(request: &Request) -> bool {
    !matches!(request.name, "gitlab token" | "bearer" | "basic" | "url")
}

#[test]
fn valid_requests_have_the_id_of_the_sender() {
    for request in requests() {
        assert_eq!(request.verify().unwrap(), request.id, "{}", request.name);
    }
    let named = [SourceScheme::github(), SourceScheme::gitea(), SourceScheme::vercel()];
    assert!(requests().iter().zip(&named).all(|(request, scheme)| request.scheme == *scheme));
}

/// Each row has a right signature, or a part of a secret. The last value is the reason of its refusal, or null.
#[test]
fn a_right_signature_of_another_time_algorithm_or_body_is_refused() {
    for request in of_rows(include_str!("../../tests/source_variants.json")) {
        assert_eq!(request.verify().err().map(|error| error.to_string()), request.id, "{}", request.name);
    }
}

#[test]
fn a_secret_that_verifies_nothing_is_refused() {
    for (scheme, secret) in [(SourceScheme::Bearer, "x"), (SourceScheme::Standard, SECRET)] {
        assert!(check_secret(&scheme, secret).is_err(), "{scheme:?}");
    }
    check_secret(&SourceScheme::Standard, SIGNING).unwrap();
}

#[test]
fn a_request_without_a_proof_is_refused_without_its_body() {
    for valid in requests() {
        check_given(&valid.scheme, &valid.header_map(), valid.url_secret.as_deref()).unwrap();
        check_given(&valid.scheme, &HeaderMap::new(), None).unwrap_err();
    }
}

#[test]
fn forgeries_are_refused_with_their_reason() {
    let mut report = String::new();
    for valid in requests() {
        let mut refuse = |forgery: &str, change: &dyn Fn(&mut Request)| {
            let mut request = valid.clone();
            change(&mut request);
            let error = request.verify().unwrap_err().to_string();
            assert!(!error.contains(SECRET) && !error.contains(SIGNING), "{error}");
            report.push_str(&format!("{}: {forgery}\n  {error}\n", valid.name));
        };
        let value = |change: &'static dyn Fn(&str) -> String| {
            move |request: &mut Request| match request.headers.last_mut() {
                Some((_, value)) => *value = change(std::str::from_utf8(value).unwrap()).into_bytes(),
                None => request.url_secret = request.url_secret.as_deref().map(change),
            }
        };
        refuse("wrong secret", &|request| {
            request.secret = if request.secret == SECRET { OTHER } else { "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD" };
        });
        refuse("empty secret", &|request| request.secret = " \n");
        refuse("nothing", &|request| (request.headers, request.url_secret) = (Vec::new(), None));
        refuse("empty", &value(&|_| String::new()));
        refuse("truncated", &value(&|value| value[..value.len() - 1].to_owned()));
        refuse("longer", &value(&|value| format!("{value}A")));
        if let Some(last) = valid.headers.last().cloned() {
            refuse("repeated", &|request| request.headers.push(last.clone()));
            refuse("repeated with another value", &|request| request.headers.push((last.0, b"x".to_vec())));
            refuse("not text", &|request| request.headers.last_mut().unwrap().1 = vec![0xff]);
        }
        if signs(&valid) {
            refuse("wrong body", &|request| request.body.push(b' '));
            refuse("empty body", &|request| request.body.clear());
            refuse("other prefix", &value(&|value| format!("sha1={}", &value[5..])));
            refuse("upper case", &value(&|value| value.to_ascii_uppercase()));
        } else {
            refuse("other scheme", &value(&|value| format!("Digest {value}")));
        }
        if valid.name == "svix" {
            refuse("both families", &|request| request.headers.push((WEBHOOK_ID, b"msg_1".to_vec())));
            refuse("old", &|request| request.headers[1].1 = b"1614265000".to_vec());
            refuse("of the future", &|request| request.headers[1].1 = b"1614265700".to_vec());
            refuse("other time", &|request| request.headers[1].1 = b"1614265331".to_vec());
        }
        if valid.name == "github" {
            refuse("id repeated", &|request| request.headers.insert(0, request.headers[0].clone()));
            refuse("id with spaces", &|request| request.headers[0].1 = b"a b".to_vec());
            refuse("blank", &value(&|_| " ".to_owned()));
            refuse("prefix alone", &value(&|_| "sha256=".to_owned()));
        }
    }
    insta::assert_snapshot!(report);
}

#[test]
fn each_value_of_a_rotation_verifies() {
    for valid in requests() {
        for rotation in [format!("{OTHER} {SECRET}\n"), format!("{SECRET}\n{OTHER}")] {
            let rotation = match valid.secret {
                SIGNING => rotation.replace(SECRET, SIGNING).replace(OTHER, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"),
                _ => rotation,
            };
            let secret: &'static str = rotation.leak();
            Request { secret, ..valid.clone() }.verify().unwrap();
        }
    }
    let mixed: &'static str = format!("{SECRET} {SIGNING}").leak();
    for valid in requests().iter().filter(|request| request.scheme == SourceScheme::Gitlab) {
        Request { secret: mixed, ..valid.clone() }.verify().unwrap();
    }
}

proptest! {
    #[test]
    fn no_mutation_of_a_valid_request_verifies(
        request_index in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        bit in 0u8..7,
        kind in 0..3,
    ) {
        let requests = requests();
        let valid = request_index.get(&requests);
        let mut request = valid.clone();
        match (kind, request.headers.last_mut()) {
            (0, _) if signs(valid) => {
                let at = at.index(request.body.len());
                request.body[at] ^= 1 << bit;
            }
            (1, _) if signs(valid) => request.body.insert(at.index(valid.body.len() + 1), b'0' + bit),
            (_, Some((_, value))) => {
                // The name of an authorization scheme has no case.
                let from = if valid.headers[0].0 == AUTHORIZATION { "Bearer ".len() } else { 0 };
                let at = from + at.index(value.len() - from);
                value[at] ^= 1 << bit;
                prop_assume!(HeaderValue::from_bytes(value).is_ok());
            }
            (_, None) => {
                let mut secret = SECRET.as_bytes().to_vec();
                let at = at.index(secret.len());
                secret[at] ^= 1 << bit;
                request.url_secret = Some(String::from_utf8(secret).unwrap());
            }
        }
        prop_assert!(request.verify().is_err(), "{}: {:?} {:?}", valid.name, request.headers, request.body);
    }
}

#[test]
fn signed_requests_verify_with_the_same_secret_only() {
    let id = MessageId::parse("delivery-1").unwrap();
    for given in requests() {
        let Request { name, scheme, secret, body, .. } = given;
        for secret in [secret.to_owned(), format!("{secret} {OTHER}{OTHER}")] {
            // Words of a signing secret are signing secrets.
            if secret.contains(OTHER) && secret.starts_with("whsec_") {
                continue;
            }
            let SourceCredentials { headers, url_secret } = sign(&scheme, &secret, &id, &body, NOW).unwrap();
            let with = |secret: &str| {
                let map = self::headers(&headers);
                verify(&scheme, secret, &map, url_secret.as_ref().map(|secret| secret.as_str()), &body, NOW)
            };
            let delivery_id = with(&secret).unwrap_or_else(|error| panic!("{name}: {error}"));
            let named = scheme.delivery_header().is_some() || scheme == SourceScheme::Standard;
            assert_eq!(delivery_id.as_deref(), named.then_some("delivery-1"), "{name}");
            assert!(with("whsec_AfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_err(), "{name}");
        }
        assert!(sign(&scheme, " ", &id, &body, NOW).is_err(), "{name}");
    }
}
