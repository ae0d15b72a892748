//! The secret of the connection to the provider, the access tokens for it, and its proofs. For some time, the secret can be
//! that of another project.

use ebb_egress::digest::DigestChallenge;
use ebb_egress::sigv4::AwsKey;
use ebb_protocol::{SecretReader, SecretText};

use super::*;

pub(super) const TOKEN: &str = "PROVIDER_TOKEN";
/// The user of the secret, and in signatures the region and the service, too.
pub(super) const USER: &str = "ebb";
const AUTHORIZATION: &str = "authorization";
const OWN: &str = "a-token-of-the-own-project";
const FOREIGN: &str = "a-token-of-another-project";
/// The longest time for which the token is that of another project.
const FOREIGN_MS: u64 = 400_000;
/// The path of the token endpoint.
pub(super) const TOKENS: &str = "/token";
/// The answers to a challenge until it is stale.
const ANSWERS: u32 = 50;
const SIGNED_MS: u64 = 300_000;
/// The life of an access token is at least this, and less than twice this.
const LIFE_MS: u64 = 120_000;

/// The secrets of the deployment, with the token of the provider.
pub(super) struct SimSecrets {
    pub(super) executor: Arc<SimExecutor>,
    pub(super) others: Arc<dyn SecretReader>,
    pub(super) foreign_until: Mutex<u64>,
}

impl fmt::Debug for SimSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.others.fmt(f)
    }
}

impl SecretReader for SimSecrets {
    fn secret(&self, name: &str) -> Result<Option<SecretText>, String> {
        if name != TOKEN {
            return self.others.secret(name);
        }
        let is_foreign = self.executor.is_away(FaultKind::ForeignToken, &mut lock(&self.foreign_until), FOREIGN_MS);
        Ok(Some(SecretText::new(if is_foreign { FOREIGN } else { OWN }.to_owned())))
    }

    // The faults concern requests.
    fn checked(&self, name: &str) -> Result<Option<SecretText>, String> {
        if name == TOKEN { Ok(Some(SecretText::new(OWN.to_owned()))) } else { self.others.checked(name) }
    }
}

/// Returns true if a request has the token, or an access token, of another project.
pub(super) fn is_foreign(request: &HttpRequest) -> bool {
    header(request, AUTHORIZATION).contains(FOREIGN)
}

struct SimAccessToken {
    project: &'static str,
    since: u64,
    until: u64,
}

/// The access tokens, each with its position at its end. All functions share those of a project.
#[derive(Default)]
pub(super) struct SimAccessTokens {
    granted: Vec<SimAccessToken>,
    /// The tokens that were granted less than a minute after another one that was valid.
    needless: u64,
}

impl SimAccessTokens {
    /// Grants an access token of the project whose secret a request has.
    pub(super) fn grant(&mut self, executor: &SimExecutor, request: &HttpRequest) -> HttpResponse {
        let SimExecutor { runtime, faults, ledger, .. } = executor;
        let project = if String::from_utf8_lossy(&request.body).contains(FOREIGN) { FOREIGN } else { OWN };
        let (since, number) = (runtime.elapsed(), self.granted.len());
        let is_young = |token: &SimAccessToken| since < token.until && since < token.since + LIFE_MS / 2;
        let last = self.granted.iter().rfind(|token| token.project == project);
        self.needless += u64::from(last.is_some_and(is_young));
        // An invocation loses a token only by a fault. By another clock, the lease of another function can be over.
        if self.needless > faults.injected().iter().sum::<u64>() && !faults.has(FaultKind::ClockOff) {
            ledger.report_violation(format!("{} access tokens are requested without need", self.needless));
        }
        let life = LIFE_MS + faults.random_below(FaultKind::TokenExpires, LIFE_MS);
        self.granted.push(SimAccessToken { project, since, until: since + life });
        ledger.trace(|| format!("grants the access token {project}-{number} for {life} ms"));
        let token = json!({"access_token": format!("{project}-{number}"), "expires_in": life / 1000});
        HttpResponse::new(200, token.to_string())
    }

    /// Returns true if the access token of a request is not valid any more.
    pub(super) fn is_over(&mut self, executor: &SimExecutor, request: &HttpRequest) -> bool {
        let number = header(request, AUTHORIZATION).rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
        let Some(token) = number.and_then(|number| self.granted.get_mut(number)) else { return false };
        if executor.faults.should_inject(FaultKind::TokenRevoked) {
            token.until = 0;
        }
        token.until <= executor.runtime.elapsed()
    }
}

/// The counts of the answers to each challenge of HTTP Digest, by its number. A stale one has the count 0.
#[derive(Default)]
pub(super) struct SimChallenges(Vec<BTreeSet<u32>>);

impl SimChallenges {
    /// Returns the answer to a request that needs a challenge or proves no secret. Any other one then names its project.
    pub(super) fn authenticate(
        &mut self,
        executor: &SimExecutor,
        path: &str,
        request: &mut HttpRequest,
    ) -> Option<HttpResponse> {
        let SimExecutor { faults, ledger, .. } = executor;
        let given = header(request, AUTHORIZATION);
        let is_unsigned = given.is_empty() && header(request, WEBHOOK_ID).is_empty();
        let project = if given.starts_with("AWS4-") {
            ledger.state().authenticated[1] += 1;
            signer(executor, request, &given)
        } else if let Some((number, count, _)) = parts(&given) {
            let counts = &mut self.0[number];
            if count > ANSWERS || faults.should_inject(FaultKind::NonceStale) {
                counts.insert(0);
            }
            if counts.contains(&0) {
                return Some(self.challenge());
            }
            let is_first = counts.insert(count);
            ledger.state().authenticated[0] += 1;
            answerer(&given, (&request.method, path)).filter(|_| is_first)
        } else if is_unsigned && faults.injected()[FaultKind::DigestChallenged as usize] > 0 {
            return Some(self.challenge());
        } else {
            return None;
        };
        let Some(project) = project else {
            ledger.report_violation(format!("{given} proves no secret for {} {path}", request.method));
            return Some(HttpResponse::new(403, ""));
        };
        request.headers.retain(|(name, _)| name != AUTHORIZATION);
        request.headers.push((AUTHORIZATION.to_owned(), project.to_owned()));
        None
    }

    fn challenge(&mut self) -> HttpResponse {
        self.0.push(BTreeSet::new());
        challenge(self.0.len() - 1)
    }
}

fn challenge(number: usize) -> HttpResponse {
    let challenge = format!("Digest realm=\"things\", qop=\"auth\", algorithm=SHA-256, nonce=\"{number}\"");
    HttpResponse { headers: vec![("www-authenticate".to_owned(), challenge)], ..HttpResponse::new(401, "") }
}

/// Returns the number of the challenge to which a header answers, the count of the answer, and the nonce of the client.
fn parts(given: &str) -> Option<(usize, u32, &str)> {
    let part = |start: &str, end: char| given.split_once(start)?.1.split(end).next();
    let count = u32::from_str_radix(part(" nc=", ',')?, 16).ok()?;
    Some((part(" nonce=\"", '"')?.parse().ok()?, count, part("cnonce=\"", '"')?))
}

/// Returns the project whose secret gives this answer to a challenge.
fn answerer(given: &str, request: (&str, &str)) -> Option<&'static str> {
    let (number, count, cnonce) = parts(given)?;
    [OWN, FOREIGN].into_iter().find(|secret| {
        let Some(challenge) = DigestChallenge::of(&challenge(number)) else { return false };
        // Each use counts.
        (0..count).fold(String::new(), |_, _| challenge.authorize((USER, secret), request, cnonce)) == given
    })
}

/// Returns the project whose secret gives this signature of a request, if its time is about that of the provider.
fn signer(executor: &SimExecutor, request: &HttpRequest, given: &str) -> Option<&'static str> {
    let signed = parse_rfc3339(&header(request, "x-amz-date"))?;
    let is_recent = executor.runtime.now().0.abs_diff(signed.0) < SIGNED_MS;
    [OWN, FOREIGN].into_iter().filter(|_| is_recent).find(|secret| {
        let [access_key_id, region, service] = [USER; 3].map(str::to_owned);
        let secret = SecretText::new((*secret).to_owned());
        let key = AwsKey { access_key_id, secret, session_token: None, region, service };
        key.sign(&mut request.clone(), signed).is_some_and(|signature| given.ends_with(&signature))
    })
}
