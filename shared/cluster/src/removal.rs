//! Removing what other works have applied.

use std::sync::Arc;

use ebb_wire::relay::WorkName;

use crate::ending::GRACE_MS;
use crate::error::{Error, said};
use crate::objects::Deletion;
use crate::record::Phase;
use crate::relay::Inner;
use crate::store::Held;

impl Inner {
    /// Removes what all tries of these units have applied. `Some`: what is still there, and why.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        name: &WorkName,
        units: &[String],
    ) -> Result<Option<String>, Error> {
        self.tasks.interest(name, units);
        let mut left = None;
        for unit in units {
            for record in self.store.list(unit).await? {
                if record.name == *name {
                    continue;
                }
                if record.phase.is_open() {
                    self.stop(&record.name).await?;
                    left = Some(format!("try {} of {unit} still ends", record.name.attempt));
                } else if record.work.is_some_and(|work| !work.applied.is_empty())
                    && let Some(mut held) = self.store.get(&record.name).await?
                    && let Some(why) = self.remove_of(&mut held).await?
                {
                    left = Some(why);
                }
            }
        }
        Ok(left)
    }

    /// Ends a work that nobody will ask for again, and removes what was applied for it. `Some`: what is still there, and why.
    ///
    /// # Errors
    /// When the API server does not answer: try again.
    pub(crate) async fn discard(self: &Arc<Self>, name: &WorkName) -> Result<Option<String>, Error> {
        let Some(mut held) = self.store.get(name).await? else { return Ok(None) };
        if held.record.phase.is_open() {
            self.stop(name).await?;
            return Ok(Some("it still ends".to_owned()));
        }
        match held.record.work.as_ref().is_some_and(|work| !work.applied.is_empty()) {
            true => self.remove_of(&mut held).await,
            false => Ok(None),
        }
    }

    /// Ends a work that runs. No lock is held: the record is written on condition that it is as it was read.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(crate) async fn stop(self: &Arc<Self>, name: &WorkName) -> Result<(), Error> {
        let Some(mut held) = self.store.get(name).await? else { return Ok(()) };
        if matches!(held.record.phase, Phase::Starting | Phase::Running) {
            self.begin_end(&mut held, GRACE_MS, None).await?;
            self.attend(name);
        }
        Ok(())
    }

    async fn remove_of(self: &Arc<Self>, held: &mut Held) -> Result<Option<String>, Error> {
        let Some(work) = held.record.work.clone() else { return Ok(None) };
        let mut left = None;
        for applied in work.applied.iter().rev() {
            if let Some(kind) =
                self.kinds.find(&self.client, &applied.place.api_version, &applied.place.kind).await?
            {
                self.watch(&kind, applied.place.namespace.as_deref());
            }
            match self.delete(&held.record.name, applied).await {
                Ok(Deletion::Gone) => {}
                Ok(Deletion::Ends(why)) => left = Some(why),
                // Rights may be given, and policies changed, until the deadline.
                Err(Error::Cluster(error @ kube::Error::Api(_))) => {
                    left = Some(format!("{}: {}", applied.place, said(&error)));
                }
                Err(error) => return Err(error),
            }
        }
        if left.is_none() {
            if let Some(work) = &mut held.record.work {
                work.applied.clear();
            }
            if held.record.phase.is_over() {
                held.bury();
            }
            self.store.save(held).await?;
        }
        Ok(left)
    }
}
