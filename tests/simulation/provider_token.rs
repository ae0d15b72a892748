//! The token of the connection to the provider. For some time, it can be that of another project.

use std::fmt;
use std::sync::{Arc, Mutex};

use ebb_egress::HttpRequest;
use ebb_protocol::named_secrets::{SecretReader, SecretText};

use super::FaultKind;
use super::executor::SimExecutor;
use super::runtime::lock;
use super::servers::header;

pub(super) const TOKEN: &str = "PROVIDER_TOKEN";
const OWN: &str = "a-token-of-the-own-project";
const FOREIGN: &str = "a-token-of-another-project";
/// The longest time for which the token is that of another project.
const FOREIGN_MS: u64 = 400_000;

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

/// Returns true if a request has the token of another project.
pub(super) fn is_foreign(request: &HttpRequest) -> bool {
    header(request, "authorization").contains(FOREIGN)
}
