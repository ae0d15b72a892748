//! Waiting for objects: each is judged as it is, and when all are ready their outputs are collected.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_readiness::Verdict;
use ebb_wire::callback::{Callback, CallbackStatus, ReasonCode};
use ebb_wire::limits::{OUTPUT, OUTPUTS};
use ebb_wire::relay::{ObjectOutput, ObjectOutputFrom, Until, WorkName};
use serde_json::Value;

use crate::attend::Next;
use crate::documents;
use crate::ended;
use crate::error::{Error, is_final, said, status};
use crate::record::{Place, Work};
use crate::relay::Inner;
use crate::rules;
use crate::store::{Held, now_ms};

impl Inner {
    /// One look at what the work waits for. What the API server has against looking ends the work with its time.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
    pub(crate) async fn wait(self: &Arc<Self>, held: &mut Held) -> Result<Next, Error> {
        let before = held.clone();
        let error = match self.wait_once(held).await {
            Err(Error::Cluster(error)) => error,
            done => return done,
        };
        let deadline = before.record.work.as_ref().map_or(u64::MAX, |work| work.deadline_ms);
        if !is_final(&error, deadline) {
            return Err(error.into());
        }
        // Whatever the look has noted and not written.
        *held = before;
        let result = ended::late(held, &said(&error));
        self.conclude(held, result).await
    }

    async fn wait_once(self: &Arc<Self>, held: &mut Held) -> Result<Next, Error> {
        let Some(work) = held.record.work.clone() else { return Ok(Next::Leave) };
        let name = held.record.name.clone();
        let removing = match self.remove(&name, &work.objects.remove).await {
            // Rights may be given until the deadline.
            Err(Error::Cluster(error)) if status(&error).is_some() => Some(said(&error)),
            left => left?,
        };
        if work.container().is_some() {
            return self.wait_for_container(held, removing).await;
        }
        let (objects, mut pending) = match self.judge(&work).await? {
            Ok(seen) => seen,
            Err(result) => return self.conclude(held, result).await,
        };
        pending = pending.or(removing);
        self.tasks.note_pending(&name, pending.as_deref());
        let Some(why) = pending else {
            let result = self.collect(&name, &work, &objects).await?;
            return self.finish(held, result).await;
        };
        if now_ms() < work.deadline_ms {
            return Ok(match Next::until(work.deadline_ms) {
                // Somebody else's objects are watched by their kinds, but their records are not.
                Next::Wait(rest) if !work.objects.remove.is_empty() => {
                    Next::Wait(rest.min(std::time::Duration::from_secs(1)))
                }
                next => next,
            });
        }
        let result = ended::late(held, &why);
        self.conclude(held, result).await
    }

    /// The objects as they are and what is pending, or how the work has failed.
    async fn judge(
        self: &Arc<Self>,
        work: &Work,
    ) -> Result<Result<(Vec<Value>, Option<String>), Callback>, Error> {
        let own = match &work.objects.until {
            Until::Ready(rules) => rules.as_slice(),
            Until::Ended { .. } => &[],
        };
        let (mut objects, mut pending) = (Vec::new(), None);
        for (number, applied) in work.manifests().enumerate() {
            let place = &applied.place;
            if let Some(kind) = self.kinds.find(&self.client, &place.api_version, &place.kind).await? {
                self.watch(&kind, place.namespace.as_deref());
            }
            let object = self.read(place).await?;
            let rules = match (own.get(number), &object) {
                (Some(rules), Some(object)) => rules::judge(rules, object),
                _ => Ok(ebb_readiness::Rules::default()),
            };
            let rules = match rules {
                Ok(rules) => rules,
                Err(why) => {
                    return Ok(Err(Callback::failed(ReasonCode::Failed, &format!("{place}: {why}"))));
                }
            };
            match ebb_readiness::judge(object.as_ref(), Some(&applied.uid), rules) {
                Verdict::Ready => {}
                Verdict::Pending { why } => {
                    pending.get_or_insert(format!("{place}: {why}"));
                }
                Verdict::Failed { reason, message } => {
                    let why = format!("{place}: {reason}: {message}");
                    return Ok(Err(Callback::failed(ReasonCode::Failed, &why)));
                }
                Verdict::Gone => {
                    let why = format!("{place} is not there any more, or another one in its place");
                    return Ok(Err(Callback::failed(ReasonCode::Lost, &why)));
                }
            }
            objects.extend(object);
        }
        Ok(Ok((objects, pending)))
    }

    /// The result with its outputs, or how one of them is missing.
    async fn collect(&self, name: &WorkName, work: &Work, objects: &[Value]) -> Result<Callback, Error> {
        let mut result = Callback::new(CallbackStatus::Succeeded);
        let mut total = 0;
        for (number, output) in work.objects.outputs.iter().enumerate() {
            let bytes = match self.output(work, output, objects).await? {
                Ok(found) => found,
                Err((code, why)) => {
                    return Ok(Callback::failed(code, &format!("output {:?}: {why}", output.name)));
                }
            };
            let size = bytes.size();
            total += size;
            if size > OUTPUT || total > OUTPUTS {
                let why = format!("output {:?} has {size} bytes, all so far {total}", output.name);
                return Ok(Callback::failed(ReasonCode::OutputTooLarge, &why));
            }
            match (output.sensitive, bytes) {
                (true, found) => {
                    let kept = self.keep_secret(name, work, number, found.bytes()).await?;
                    result.secrets.insert(output.name.clone(), kept);
                }
                (false, Found::Json(value)) => drop(result.outputs.insert(output.name.clone(), value)),
                (false, Found::Bytes(bytes)) => result.hold(&output.name, bytes),
            }
        }
        Ok(result)
    }

    async fn output(
        &self,
        work: &Work,
        output: &ObjectOutput,
        objects: &[Value],
    ) -> Result<Result<Found, (ReasonCode, String)>, Error> {
        let (text, key) = match &output.from {
            ObjectOutputFrom::Value(text) => (text, None),
            ObjectOutputFrom::Secret { name, key } => (name, Some(key)),
        };
        let value = match rules::value(text, objects) {
            Ok(value) => value,
            Err(why) => return Ok(Err((ReasonCode::OutputInvalid, why))),
        };
        let Some(key) = key else { return Ok(Ok(Found::Json(value))) };
        let Some(name) = value.as_str() else {
            return Ok(Err((ReasonCode::OutputInvalid, "the Secret's name is no text".to_owned())));
        };
        let first = work.manifests().next().and_then(|it| it.place.namespace.as_ref());
        let place = Place::secret(first.unwrap_or(&work.namespace), name);
        let secret = self.read(&place).await?.unwrap_or_default();
        if !documents::is_readable(&secret, &work.objects.life) {
            return Ok(Err((ReasonCode::Denied, format!("{place}: it is not this life's"))));
        }
        let found = secret["data"][key].as_str().and_then(|text| STANDARD.decode(text).ok());
        Ok(found.map(Found::Bytes).ok_or((ReasonCode::OutputMissing, format!("{place} has no key {key:?}"))))
    }
}

/// The value of an output.
enum Found {
    Json(Value),
    Bytes(Vec<u8>),
}

impl Found {
    fn size(&self) -> usize {
        match self {
            Self::Json(value) => ebb_wire::value::Value::Json(value.clone()).size(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// As a script would see it.
    fn bytes(self) -> Vec<u8> {
        match self {
            Self::Json(value) => ebb_wire::value::Value::Json(value).to_bytes().unwrap_or_default(),
            Self::Bytes(bytes) => bytes,
        }
    }
}
