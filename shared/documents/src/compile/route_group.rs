//! The fields of a route group that Ebb does not support.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{RouteGroupDoc, TtlStart};

/// Checks that a route group can be a target.
///
/// # Errors
/// A `ttl` that counts from the end of the last matching sandbox: no platform reports which sandboxes match, so the route
/// group would end while some do.
pub fn check_route_group(group: &RouteGroupDoc) -> Result<(), Diagnostics> {
    let Some(from) = group.ttl_from.as_ref().filter(|from| from.value == TtlStart::NoMatchedSandboxes) else {
        return Ok(());
    };
    let message = "this `ttl` counts from when no sandbox matches the route group, which is not known here";
    let help = "write `offsetFrom: createdAt`, or leave `ttl` out";
    Err(Diagnostic::error("ttl-offset", &group.source, from.at, message).help(help).into())
}
