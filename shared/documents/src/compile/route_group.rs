//! The fields of a route group that Ebb does not support.

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::model::{RouteGroupDoc, TtlStart};

/// Checks that Ebb supports a route group.
///
/// # Errors
/// Returns an error for a `ttl` that counts from the end of the last matching sandbox. No platform reports which
/// sandboxes match, so the route group would end while some still match.
pub fn check_route_group(group: &RouteGroupDoc) -> Result<(), Diagnostics> {
    let Some(from) = group.ttl_from.as_ref().filter(|from| from.value == TtlStart::NoMatchedSandboxes) else {
        return Ok(());
    };
    let message = "this `ttl` counts from when no sandbox matches the route group, which is not known here";
    let help = "write `offsetFrom: createdAt`, or leave `ttl` out";
    Err(Diagnostic::error("ttl-offset", &group.target.source, from.at, message).help(help).into())
}
