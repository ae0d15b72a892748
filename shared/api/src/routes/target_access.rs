//! Checks the targets to which the scopes of a caller are limited. A caller with unlimited scopes costs no read.
//!
//! A target that the caller may not read is answered as one that does not exist. Positions in lists, in which a caller with
//! limited scopes could read about targets of others, are encrypted.

use ebb_flow::lifecycle::{covers_present, other_instance};
use ebb_flow::{Rejection, RequestError};
use ebb_protocol::{ErrorCode, FieldError, RunId, TargetAccess, TargetKey, open_value, seal_value};
use ebb_store::{RunHead, TargetHead};

use super::targets::unknown;
use crate::queries::targets::hide_waiting;
use crate::{ApiPermission, HttpProblem, HttpResult, Permitted, RoutePermission, forbidden};

fn covers(access: &TargetAccess, head: &TargetHead) -> bool {
    access.covers(head.owner.as_deref(), &head.labels)
}

impl<P: RoutePermission> Permitted<P> {
    /// Returns the targets for which the caller has the permission of the route.
    pub(crate) fn access(&self) -> TargetAccess {
        self.caller.access(P::NEEDED)
    }

    /// Returns the present instance of a target, if the permission of the route covers it. It shows another one that waits
    /// for the name only if the permission covers that as well. `None` for a caller with access to every instance if the
    /// target does not exist.
    ///
    /// # Errors
    /// Returns 403 with those who have the permission, or 404 if the caller may not read the target.
    pub(crate) async fn present(&self, key: TargetKey<'_>) -> HttpResult<Option<TargetHead>> {
        let access = self.access();
        match self.env.store.read_target(key).await? {
            Some(mut head) => {
                self.check_permission(P::NEEDED, &head)?;
                hide_waiting(&mut head, &access);
                Ok(Some(head))
            }
            None if access.is_limited() => Err(unknown(key)),
            None => Ok(None),
        }
    }

    /// Returns the instance on which a request acts: the present one of a target, which is that with the identity `uid` if
    /// the request names one. Whatever changes the target afterwards has to name its UID.
    ///
    /// # Errors
    /// Returns the same as [`Self::present`], 404 without a target, and 409 for another instance.
    pub(crate) async fn instance(&self, key: TargetKey<'_>, uid: Option<&str>) -> HttpResult<TargetHead> {
        let head = self.present(key).await?.ok_or_else(|| unknown(key))?;
        match uid {
            Some(uid) if uid != head.uid => Err(other_instance(key, uid, Some(&head.uid)).into()),
            _ => Ok(head),
        }
    }

    /// Checks the present instance of a target as [`Self::present`] does. Returns its UID for a limited caller, and `None` for
    /// a caller with access to every instance.
    ///
    /// # Errors
    /// Returns the same as [`Self::present`].
    pub(crate) async fn check_target(&self, key: TargetKey<'_>) -> HttpResult<Option<String>> {
        if self.access().is_limited() { Ok(self.present(key).await?.map(|head| head.uid)) } else { Ok(None) }
    }

    /// # Errors
    /// Returns 403 with those who have the permission, or 404 if the caller may not read the target.
    pub(crate) fn check_permission(&self, needed: ApiPermission<'_>, head: &TargetHead) -> HttpResult<()> {
        let access = self.caller.access(needed);
        let is_covered = match needed {
            ApiPermission::WriteTargets => covers_present(&access, head),
            _ => covers(&access, head),
        };
        if is_covered {
            return Ok(());
        }
        let (caller, key, scope) = (&self.caller, head.target_key(), needed.scope());
        if !covers(&caller.access(ApiPermission::ReadTargets), head) {
            return Err(unknown(key));
        }
        let named = self.tokens.issuers.owner_name(head.owner.as_deref());
        let owner = named.as_deref().or(head.owner.as_deref()).unwrap_or("an unknown owner");
        let whom = if head.owner.as_deref() == Some(caller.name()) { String::new() } else { format!("{owner}, or ") };
        Err(forbidden(format!(
            "{key} belongs to {owner}, and {caller} has: {}; ask {whom}a caller with the scope {scope}",
            caller.scope_list()
        )))
    }

    /// Checks that the permission of the route covers the target of a run. A run of an earlier instance has no known
    /// owner.
    ///
    /// # Errors
    /// Returns 404 as for a run that does not exist.
    pub(crate) async fn check_run(&self, run: &RunId) -> HttpResult<()> {
        let access = self.access();
        if !access.is_limited() {
            return Ok(());
        }
        if let Some(RunHead { facts, .. }) = self.env.store.read_run(run).await? {
            let head = self.env.store.read_target(facts.target_key()).await?;
            if head.is_some_and(|head| head.uid == facts.uid && covers(&access, &head)) {
                return Ok(());
            }
        }
        Err(HttpProblem::not_found(format!("run {run} does not exist")))
    }

    /// Returns the problem of a request that found no instance of a target for the caller.
    pub(crate) async fn refusal(&self, key: TargetKey<'_>) -> HttpProblem {
        self.check_target(key).await.err().unwrap_or_else(|| unknown(key))
    }

    /// Returns the problem of a rejected creation or update. A caller that may read the target learns who can change it.
    pub(crate) async fn rejected(&self, key: TargetKey<'_>, error: RequestError) -> HttpProblem {
        let is_other = matches!(&error, RequestError::Rejected(Rejection::Refused(ErrorCode::OtherOwner, _)));
        if is_other
            && let Err(problem) = self.check_target(key).await
            && problem.is(ErrorCode::Forbidden)
        {
            return problem;
        }
        error.into()
    }

    /// Returns a position in the list `place` as the caller gets it. It is valid in a query without encoding.
    pub(super) fn sealed(&self, place: &str, position: String) -> String {
        if !self.access().is_limited() {
            return position;
        }
        seal_value(&self.env.settings.unit_keys, place, position.as_bytes()).replace('+', "-").replace('/', "_")
    }

    /// Returns the position in a text of [`Self::sealed`], or `None` if a limited caller sent another text.
    pub(super) fn opened(&self, place: &str, text: &str) -> Option<String> {
        if !self.access().is_limited() {
            return Some(text.to_owned());
        }
        let text = text.replace('-', "+").replace('_', "/");
        String::from_utf8(open_value(&self.env.settings.unit_keys, place, &text)?).ok()
    }

    /// Returns the position in a `nextToken` of the list `place`, or 400 if a limited caller sent another text.
    pub(super) fn opened_token(&self, place: &str, token: Option<String>) -> HttpResult<Option<String>> {
        let problem = "is not the `nextToken` of a page of this caller";
        let foreign = || FieldError { field: "nextToken", problem: problem.to_owned() }.into();
        token.map(|token| self.opened(place, &token).ok_or_else(foreign)).transpose()
    }
}
