//! The secret of the connection to the provider, and the access tokens for it. For some time, the secret can be that of
//! another project.

use std::fmt;
use std::sync::{Arc, Mutex};

use ebb_egress::{HttpRequest, HttpResponse};
use ebb_protocol::named_secrets::{SecretReader, SecretText};
use serde_json::json;

use super::FaultKind;
use super::executor::SimExecutor;
use super::runtime::lock;
use super::servers::header;

pub(super) const TOKEN: &str = "PROVIDER_TOKEN";
const OWN: &str = "a-token-of-the-own-project";
const FOREIGN: &str = "a-token-of-another-project";
/// The longest time for which the token is that of another project.
const FOREIGN_MS: u64 = 400_000;
/// The path of the token endpoint.
pub(super) const TOKENS: &str = "/token";
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
}

/// Returns true if a request has the token, or an access token, of another project.
pub(super) fn is_foreign(request: &HttpRequest) -> bool {
    header(request, "authorization").contains(FOREIGN)
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
        let authorization = header(request, "authorization");
        let number = authorization.rsplit('-').next().and_then(|number| number.parse::<usize>().ok());
        let Some(token) = number.and_then(|number| self.granted.get_mut(number)) else { return false };
        if executor.faults.should_inject(FaultKind::TokenRevoked) {
            token.until = 0;
        }
        token.until <= executor.runtime.elapsed()
    }
}
