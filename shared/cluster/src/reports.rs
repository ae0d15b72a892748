//! What runners report.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::limits::{OUTPUT as OUTPUT_BYTES, OUTPUTS};
use ebb_wire::relay::WorkName;
use ebb_wire::runner::{Ended, Report, ReportState, VERSION};
use ebb_wire::value::SecretRef;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::error::Error;
use crate::names::{self, OUTPUT, PART};
use crate::record::{Phase, Place, Work};
use crate::relay::{Inner, Relay};
use crate::store::Held;
use crate::verbs::CHANGED;

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It is known now, and stays known whatever happens to the relay: 204.
    Taken,
    Gone,
    /// The token is not this work's: 401.
    NotYours,
    /// It is no report: 400, and why.
    Unreadable(String),
}

/// How long it may take to write down a report: the runner tries again.
const LONGEST: Duration = Duration::from_secs(60);

fn late() -> Result<Reported, Error> {
    Err(Error::Own("the API server takes too long".to_owned()))
}

impl Relay {
    /// Takes the report of a runner with its bearer token.
    ///
    /// # Errors
    /// When it cannot be written down: the runner has to try again.
    pub async fn report(&self, name: &WorkName, token: &str, body: &[u8]) -> Result<Reported, Error> {
        if names::check(name).is_err() {
            return Ok(Reported::Gone);
        }
        tokio::time::timeout(LONGEST, self.report_late(name, token, body)).await.unwrap_or_else(|_| late())
    }

    async fn report_late(&self, name: &WorkName, token: &str, body: &[u8]) -> Result<Reported, Error> {
        loop {
            match self.inner.take_report(name, token, body).await {
                Err(Error::Conflict) => tokio::time::sleep(CHANGED).await,
                Ok(taken) => {
                    if taken.1 {
                        self.inner.attend(name);
                    }
                    return Ok(taken.0);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What would become of a report with this token, before it is read: [`Reported::Taken`] if it may be sent.
    ///
    /// # Errors
    /// When that cannot be read: the runner has to try again.
    pub async fn expects(&self, name: &WorkName, token: &str) -> Result<Reported, Error> {
        if names::check(name).is_err() {
            return Ok(Reported::Gone);
        }
        tokio::time::timeout(LONGEST, self.inner.expects(name, token)).await.unwrap_or_else(|_| late())
    }
}

/// Whether a token is that of a work. Digests are of equal length and give no hint at where they differ.
fn proves(token: &str, work: &Work) -> bool {
    Sha256::digest(token.as_bytes()) == Sha256::digest(work.token.as_bytes())
}

/// Outputs with their bytes.
type Kept = Vec<(String, Vec<u8>)>;

/// Sensitive outputs as they are kept: only such as were asked for, and no larger than outputs may be.
fn sensitive(
    reported: BTreeMap<String, String>,
    declared: &BTreeSet<String>,
) -> Result<Kept, (ReasonCode, String)> {
    let (mut all, mut total) = (Vec::new(), 0);
    for (name, text) in reported {
        if !declared.contains(&name) {
            let why = "it reports a sensitive output that nobody has asked for".to_owned();
            return Err((ReasonCode::OutputInvalid, why));
        }
        let Ok(bytes) = STANDARD.decode(text) else {
            return Err((ReasonCode::OutputInvalid, format!("output {name:?} is no base64")));
        };
        total += bytes.len();
        if bytes.len() > OUTPUT_BYTES || total > OUTPUTS {
            let why = format!("output {name:?} has {} bytes, all so far {total}", bytes.len());
            return Err((ReasonCode::OutputTooLarge, why));
        }
        all.push((name, bytes));
    }
    Ok(all)
}

impl Inner {
    /// Whether it is worth to read a report: its token is looked at before its body.
    async fn expects(&self, name: &WorkName, token: &str) -> Result<Reported, Error> {
        let held = self.store.head(name).await?;
        Ok(match held.and_then(|held| held.record.work) {
            None => Reported::Gone,
            Some(work) if proves(token, &work) => Reported::Taken,
            Some(_) => Reported::NotYours,
        })
    }

    /// What became of it, and whether there is something to do now.
    async fn take_report(
        &self,
        name: &WorkName,
        token: &str,
        body: &[u8],
    ) -> Result<(Reported, bool), Error> {
        let _lock = self.tasks.lock(&name.unit).await;
        let Some(mut held) = self.store.get(name).await? else { return Ok((Reported::Gone, false)) };
        let Some(work) = held.record.work.clone() else { return Ok((Reported::Gone, false)) };
        if !proves(token, &work) {
            return Ok((Reported::NotYours, false));
        }
        let report: Report = match serde_json::from_slice(body) {
            Ok(report) => report,
            Err(error) => return Ok((Reported::Unreadable(error.to_string()), false)),
        };
        if report.v != VERSION {
            let why = format!("it has version {}, and this relay reads {VERSION}", report.v);
            return Ok((Reported::Unreadable(why), false));
        }
        match (&held.record.phase, report.state) {
            // The first one counts.
            (Phase::Ended | Phase::Taken, _) if work.reported => Ok((Reported::Taken, false)),
            (Phase::Ended | Phase::Taken | Phase::Tombstone { .. }, _) => Ok((Reported::Gone, false)),
            (_, ReportState::Ended(_)) if work.reported => Ok((Reported::Taken, false)),
            (_, ReportState::Running) => {
                self.tasks.note_heartbeat(name);
                Ok((Reported::Taken, false))
            }
            (_, ReportState::Ended(ended)) => self.take_end(&mut held, &work, *ended).await,
        }
    }

    async fn take_end(&self, held: &mut Held, work: &Work, ended: Ended) -> Result<(Reported, bool), Error> {
        let mut result = ended.result;
        // Only a relay names Secrets.
        result.secrets.clear();
        match result.status {
            CallbackStatus::Succeeded => match sensitive(ended.sensitive, &work.sensitive) {
                Ok(all) => {
                    for (number, (name, bytes)) in all.into_iter().enumerate() {
                        let kept = self.keep_secret(&held.record.name, work, number, bytes).await?;
                        result.secrets.insert(name, kept);
                    }
                }
                Err((code, why)) => {
                    let failed = Callback::failed(code, &why);
                    result = Callback { log: result.log, took_ms: result.took_ms, ..failed };
                }
            },
            CallbackStatus::Failed => {}
            other => return Ok((Reported::Unreadable(format!("nothing ends with {other:?}")), false)),
        }
        self.note_end(held, result.fit()).await?;
        Ok((Reported::Taken, true))
    }

    async fn note_end(&self, held: &mut Held, result: Callback) -> Result<(), Error> {
        let is_success = result.status == CallbackStatus::Succeeded;
        if let Some(work) = &mut held.record.work {
            work.reported = true;
            // Why a container has failed is known better outside of it; and what is being ended has to be gone.
            if is_success && held.record.phase == Phase::Running && work.objects.remove.is_empty() {
                held.record.phase = Phase::Ended;
            }
        }
        // What is being ended may have a result already, which only a success replaces.
        if is_success || !matches!(held.record.phase, Phase::Ending { .. }) {
            held.conclude(result);
        }
        self.store.save(held).await
    }

    /// Makes a Secret of a sensitive output. It belongs to the life and stays until that is released.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) async fn keep_secret(
        &self,
        name: &WorkName,
        work: &Work,
        number: usize,
        bytes: Vec<u8>,
    ) -> Result<SecretRef, Error> {
        const KEY: &str = "value";
        let place = Place::secret(&work.namespace, &names::output(name, number));
        let mut labels = names::labels(name, &work.objects.life);
        labels.insert(PART.to_owned(), OUTPUT.to_owned());
        let manifest = json!({
            "apiVersion": place.api_version,
            "kind": place.kind,
            "metadata": {"name": place.name, "namespace": place.namespace, "labels": labels},
            "data": {KEY: STANDARD.encode(bytes)},
        });
        self.apply(&place, &manifest).await?;
        Ok(SecretRef { cluster: None, namespace: place.namespace, name: place.name, key: KEY.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensitive_outputs_are_those_that_were_asked_for() {
        let large = STANDARD.encode(vec![0; OUTPUT_BYTES]);
        let declared: BTreeSet<_> = ["a", "b", "c", "d", "e"].map(str::to_owned).into();
        for (reported, expected) in [
            (vec![("a", "eA=="), ("b", "")], Ok(2)),
            (vec![("a", "eA=="), ("x", "eA==")], Err(ReasonCode::OutputInvalid)),
            (vec![("a", "!")], Err(ReasonCode::OutputInvalid)),
            (vec![("a", &*format!("{large}AAAA"))], Err(ReasonCode::OutputInvalid)),
            (["a", "b", "c", "d"].map(|name| (name, &*large)).to_vec(), Ok(4)),
            (["a", "b", "c", "d", "e"].map(|name| (name, &*large)).to_vec(), Err(ReasonCode::OutputTooLarge)),
        ] {
            let reported =
                reported.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
            let found = sensitive(reported, &declared);
            assert_eq!(found.map(|all| all.len()).map_err(|(code, _)| code), expected);
        }
    }
}
