//! The permissions of routes, as types of the arguments of their handlers.

use std::marker::PhantomData;
use std::ops::Deref;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::{ApiCaller, ApiPermission, HttpProblem, HttpResult, ServerState};

pub(crate) trait RoutePermission {
    const NEEDED: ApiPermission<'static>;
}

macro_rules! route_permissions {
    ($($name:ident)+) => {$(
        pub(crate) enum $name {}

        impl RoutePermission for $name {
            const NEEDED: ApiPermission<'static> = ApiPermission::$name;
        }
    )+};
}

route_permissions! {
    ReadPlugins PublishPlugin ReadTargets WriteTargets ReadSources WriteSources ReadConnections Operate
}

/// The state of the server, for a request whose sender has the permission `P`. It follows the arguments that reject a
/// wrong path, and precedes those that reject wrong parameters or a wrong body.
pub(crate) struct Permitted<P> {
    server: ServerState,
    pub(crate) caller: ApiCaller,
    permission: PhantomData<P>,
}

impl<P> Deref for Permitted<P> {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.server
    }
}

impl<P: RoutePermission> Permitted<P> {
    /// Returns the state of the server for a verified caller, who has the permission.
    ///
    /// # Errors
    /// Returns 403 without the permission.
    pub(crate) fn of(server: &ServerState, caller: &ApiCaller) -> HttpResult<Self> {
        caller.require(P::NEEDED)?;
        Ok(Self { server: server.clone(), caller: caller.clone(), permission: PhantomData })
    }
}

impl<P: RoutePermission> FromRequestParts<ServerState> for Permitted<P> {
    type Rejection = HttpProblem;

    async fn from_request_parts(parts: &mut Parts, server: &ServerState) -> HttpResult<Self> {
        let caller = server.authorize(&parts.headers, P::NEEDED).await?;
        Ok(Self { server: server.clone(), caller, permission: PhantomData })
    }
}
