//! Applying what a work consists of.
//!
//! Each object's uid is in the record before the next one is applied. One that is there already and carries the work's
//! labels was applied by a relay that was killed before it could note so; it is noted, and not applied again.

use std::sync::Arc;
use std::time::Duration;

use ebb_wire::callback::{Callback, ReasonCode};
use ebb_wire::relay::SecretDocument;
use serde_json::{Value, json};

use crate::admit::Refusal;
use crate::attend::Next;
use crate::error::{Error, Refused, is_final, refused, said, status};
use crate::objects::{self, Belongs};
use crate::record::{Applied, Phase, Place, Work};
use crate::relay::Inner;
use crate::rivals::Rival;
use crate::store::{Held, now_ms};

/// Between two looks at lower tries that still end.
const DYING: Duration = Duration::from_millis(200);

/// What applying has come to.
enum Done {
    All,
    /// It will not be done, and this is the result.
    Never(Callback),
    /// What a lower try has made is being removed.
    Dies,
    /// The documents are not known any more: the request has to come again.
    Waits,
}

impl Inner {
    /// Applies what is missing. `documents` are those of the request, which no record holds.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
    pub(crate) async fn start(
        self: &Arc<Self>,
        held: &mut Held,
        documents: &[SecretDocument],
    ) -> Result<Next, Error> {
        let name = held.record.name.clone();
        held.sure |= self.tasks.doubt(&name, &held.version) || held.record.waits();
        let done = self.start_once(held, documents).await;
        if held.sure && held.record.phase == Phase::Starting {
            self.tasks.be_sure(&name, &held.version);
        }
        match done {
            Err(Error::Conflict) => {
                self.disown(held).await?;
                Err(Error::Conflict)
            }
            // As long as it may begin, rights may be given.
            Err(Error::Cluster(error))
                if held.record.work.as_ref().is_some_and(|it| is_final(&error, it.not_after_ms)) =>
            {
                let result = Callback::failed(class(&error), &said(&error));
                self.conclude(held, result).await
            }
            done => done,
        }
    }

    async fn start_once(
        self: &Arc<Self>,
        held: &mut Held,
        documents: &[SecretDocument],
    ) -> Result<Next, Error> {
        let is_new = held.record.work.as_ref().is_some_and(|work| work.applied.is_empty());
        // Who waits for a turn is asked when it comes.
        let is_new = is_new && self.turns.before(&held.record.name).is_none();
        match if is_new { self.rival(&held.record.name).await? } else { Rival::None } {
            Rival::None => {}
            Rival::Higher => {
                held.bury();
                self.store.save(held).await?;
                return Ok(Next::Leave);
            }
            Rival::Lower => {
                self.keep_documents(held, documents).await?;
                return Ok(Next::Wait(DYING));
            }
        }
        if !self.has_turn(held, documents).await? {
            // Woken when its turn comes, or when it is asked for or cancelled. No other event concerns it.
            return Ok(Next::Sleep);
        }
        match self.apply_all(held, documents).await? {
            Done::All => {
                if let Some(work) = &mut held.record.work {
                    work.objects.apply.clear();
                }
                held.record.phase = Phase::Running;
                self.store.save(held).await?;
                Ok(Next::Now)
            }
            Done::Never(result) => {
                let result = begun(held.record.work.as_ref(), result);
                self.conclude(held, result).await
            }
            Done::Dies => {
                self.keep_documents(held, documents).await?;
                Ok(Next::Wait(DYING))
            }
            Done::Waits => {
                let not_after = held.record.work.as_ref().map_or(0, |work| work.not_after_ms);
                Ok(Next::until(not_after))
            }
        }
    }

    async fn apply_all(&self, held: &mut Held, documents: &[SecretDocument]) -> Result<Done, Error> {
        let name = held.record.name.clone();
        let Some(mut work) = held.record.work.clone() else { return Ok(Done::All) };
        let (all, sure): (Vec<_>, _) = (work.places().collect(), held.sure);
        for (number, (place, document)) in all.iter().enumerate().skip(work.applied.len()) {
            let there = self.read(place).await?;
            let uid = match there.as_ref().map(|object| (objects::belongs(object, &name), object)) {
                Some((Belongs::Own, object)) => objects::uid(object).to_owned(),
                Some((Belongs::Foreign, _)) => {
                    let why = format!("{place} is there already, and was not made for this work");
                    return Ok(Done::Never(Callback::failed(ReasonCode::Denied, &why)));
                }
                _ if now_ms() > work.not_after_ms => return Ok(Done::Never(late())),
                Some((Belongs::Lower, object)) if !object["metadata"]["deletionTimestamp"].is_null() => {
                    return Ok(Done::Dies);
                }
                lower => {
                    let manifest = match self.manifest(&work, held, number, documents).await {
                        Ok(Some(manifest)) => manifest,
                        Ok(None) => return Ok(Done::Waits),
                        Err(Refusal::Now(error)) => return Err(error),
                        Err(Refusal::Never(why)) => {
                            return Ok(Done::Never(Callback::failed(ReasonCode::Render, &why)));
                        }
                    };
                    held.sure = false;
                    let made = match lower {
                        Some((_, object)) => self.take_over(place, object, &manifest).await,
                        None => self.create(place, &manifest).await,
                    };
                    match made {
                        Ok(uid) => uid,
                        Err(error) => {
                            // What was answered so was not done.
                            held.sure = sure && status(&error).is_some_and(|code| code < 500);
                            return match (refused(&error), status(&error)) {
                                (Some(_), _) => Ok(Done::Never(refusal(place, &error))),
                                (None, Some(409)) => Err(Error::Conflict),
                                (None, _) => Err(error.into()),
                            };
                        }
                    }
                }
            };
            // Known, and not yet noted.
            held.sure = false;
            work.applied.push(Applied { place: place.clone(), uid, document: *document });
            held.record.work = Some(work.clone());
            let is_last = number + 1 == all.len();
            // The last one is noted with the next phase.
            if !is_last {
                self.store.save(held).await?;
                held.sure = sure;
            }
        }
        self.own_documents(&work).await?;
        Ok(Done::All)
    }

    /// `None`: a document that is not known any more.
    async fn manifest(
        &self,
        work: &Work,
        held: &Held,
        number: usize,
        documents: &[SecretDocument],
    ) -> Result<Option<Value>, Refusal> {
        if let Some(manifest) =
            number.checked_sub(work.objects.secrets.len()).and_then(|number| work.objects.apply.get(number))
        {
            return Ok(Some(manifest.clone()));
        }
        let kept = match documents {
            [] => self.store.documents(held).await?,
            given => given.to_vec(),
        };
        let Some(document) = kept.get(number) else { return Ok(None) };
        Ok(Some(self.document(&held.record.name, work, document).await?.1))
    }

    /// Lets the first object own the documents, so that they go with it whoever deletes it.
    async fn own_documents(&self, work: &Work) -> Result<(), Error> {
        let Some(first) = work.manifests().next() else { return Ok(()) };
        if first.place.namespace.as_ref().is_some_and(|namespace| *namespace != work.namespace) {
            return Ok(());
        }
        for document in work.applied.iter().filter(|applied| applied.document) {
            let Some(api) = self.kinds.of(&self.client, &document.place).await? else { continue };
            let owner = json!({
                "apiVersion": first.place.api_version,
                "kind": first.place.kind,
                "name": first.place.name,
                "uid": first.uid,
            });
            let patch = json!({"metadata": {"uid": document.uid, "ownerReferences": [owner]}});
            let how = kube::api::PatchParams::default();
            match api.patch(&document.place.name, &how, &kube::api::Patch::Merge(&patch)).await {
                Ok(_) => {}
                // Gone or replaced: the pod will say what that means.
                Err(error) if refused(&error).is_some() || status(&error) == Some(409) => {
                    tracing::warn!(document = %document.place, %error, "a document is not there any more");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// What could not be started has made nothing; a work of which something was applied has, and only failed.
fn begun(work: Option<&Work>, mut result: Callback) -> Callback {
    if work.is_some_and(|work| work.manifests().next().is_some())
        && let Some(reason) = &mut result.reason
        && matches!(reason.code, ReasonCode::NotStartable | ReasonCode::Render)
    {
        reason.code = ReasonCode::Failed;
    }
    result
}

fn late() -> Callback {
    Callback::failed(ReasonCode::Lost, "the relay was away until it was too late to start")
}

fn refusal(place: &Place, error: &kube::Error) -> Callback {
    Callback::failed(class(error), &format!("{place}: {}", said(error)))
}

fn class(error: &kube::Error) -> ReasonCode {
    match refused(error) {
        Some(Refused::Quota) => ReasonCode::Quota,
        Some(Refused::Denied) => ReasonCode::Denied,
        Some(Refused::Invalid) => ReasonCode::NotStartable,
        None => ReasonCode::Lost,
    }
}
