//! What runners report.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_wire::callback::{Callback, CallbackStatus};
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

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reported {
    /// It is known now, and stays known whatever happens to the relay: 204.
    Taken,
    /// Nobody wants to know: 410.
    Gone,
    /// The token is not this work's: 401.
    NotYours,
    /// It is no report: 400, and why.
    Unreadable(String),
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
        loop {
            match self.inner.take_report(name, token, body).await {
                Err(Error::Conflict) => {}
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
}

impl Inner {
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
        // Of equal length and without a hint at where they differ.
        if Sha256::digest(token.as_bytes()) != Sha256::digest(work.token.as_bytes()) {
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
            (_, ReportState::Running) => Ok((Reported::Taken, false)),
            (_, ReportState::Ended(ended)) => self.take_end(&mut held, &work, *ended).await,
        }
    }

    async fn take_end(&self, held: &mut Held, work: &Work, ended: Ended) -> Result<(Reported, bool), Error> {
        let mut result = ended.result;
        // Only a relay names Secrets.
        result.secrets.clear();
        match result.status {
            CallbackStatus::Succeeded => {
                for (number, (name, text)) in ended.sensitive.into_iter().enumerate() {
                    let Ok(bytes) = STANDARD.decode(text) else {
                        return Ok((Reported::Unreadable(format!("output {name:?} is no base64")), false));
                    };
                    let kept = self.keep_secret(&held.record.name, work, number, bytes).await?;
                    result.secrets.insert(name, kept);
                }
            }
            CallbackStatus::Failed => {}
            other => return Ok((Reported::Unreadable(format!("nothing ends with {other:?}")), false)),
        }
        self.note_end(held, &result.fit()).await?;
        Ok((Reported::Taken, true))
    }

    async fn note_end(&self, held: &mut Held, result: &Callback) -> Result<(), Error> {
        let is_success = result.status == CallbackStatus::Succeeded;
        if let Some(work) = &mut held.record.work {
            work.reported = true;
            // Why a container has failed is known better outside of it; and what is being ended has to be gone.
            if is_success && held.record.phase == Phase::Running && work.objects.remove.is_empty() {
                held.record.phase = Phase::Ended;
            }
        }
        held.conclude(result);
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
