//! The HTTP API: routers for Lambda and for one machine.
//!
//! 1. [`instrument_router`] runs each request as an invocation (`background`).
//! 2. A handler (`routes`) checks token or signature, reads the body and calls `ebb_flow`, `ebb_relay_client` or a query.
//! 3. [`queries`] read state for people and programs. Only `plugins`, `named_documents` and `named_tokens` also change
//!    it.
//! 4. Errors become [`HttpProblem`]. [`openapi()`] returns the document of all operations.
//! 5. `console` calls the handlers for browsers, and makes pages of their responses.
//! 6. `otlp` exports the spans of invocations, for programs that have this feature.
//! 7. The tools of agents ([`mcp`]) send requests to these routes. `/mcp` serves them.

mod api_tokens;
mod background;
mod bodies;
mod caller;
mod console;
pub mod mcp;
mod oidc;
mod openapi;
#[cfg(feature = "otlp")]
mod otlp;
mod problem;
pub mod queries;
mod routes;
mod server_state;

use std::sync::{Arc, LazyLock};

use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, Version, header};
use axum::routing::any;
use axum::{Extension, Router};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate as _, SizeAbove};
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use routes::named_documents::{connections, sources, subscriptions};

pub use api_tokens::ApiTokens;
pub use background::instrument_router;
pub use caller::ApiRole;
pub use oidc::OidcIssuers;
#[cfg(feature = "otlp")]
pub use otlp::OtlpExporter;
pub use problem::{HttpProblem, HttpResult};
pub use server_state::ServerState;

pub(crate) use background::{RemainingWork, RestOfRequest};
pub(crate) use bodies::{BodyBudget, check_length};
pub(crate) use caller::{ApiCaller, ApiPermission, CallerProof, forbidden};
pub(crate) use routes::auth::bearer;
pub(crate) use routes::permitted::{Operate, Permitted, ReadPlugins, ReadTargets, RoutePermission, WriteTargets};
pub(crate) use routes::{JsonBody, NoQuery, Path, Query, no_store};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Ebb", description = "Ephemeral resources for sandboxes."),
    components(schemas(ebb_protocol::api::ProblemDetails))
)]
struct ApiDoc;

/// Returns the router of `receive`: lifecycle webhooks, events of sources, and requests that create or delete a target.
pub fn receive(server: ServerState) -> Router {
    finish(receive_routes(), Router::new(), server)
}

/// Returns the router of `complete`: callbacks.
pub fn complete(server: ServerState) -> Router {
    finish(complete_routes(), Router::new(), server)
}

/// Returns the router of `api`: requests of people, programs, agents and polling relays, and the pages of the console.
pub fn api(server: ServerState) -> Router {
    with_tools(finish(api_routes(), console::routes(), server.clone()), server)
}

/// Returns the router of all functions, for one machine.
pub fn all(server: ServerState) -> Router {
    with_tools(finish(all_routes(), console::routes(), server.clone()), server)
}

/// Returns the OpenAPI document of all functions.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = all_routes().into_openapi();
    openapi::complete(&mut document);
    document
}

/// Returns a router with handlers. Those of one path are in one group.
macro_rules! handlers {
    ($([$($handlers:tt)+])+) => { OpenApiRouter::with_openapi(ApiDoc::openapi())$(.routes(routes!($($handlers)+)))+ };
}

fn receive_routes() -> OpenApiRouter<ServerState> {
    handlers! {
        [routes::lifecycle::receive] [routes::sources::receive]
        [routes::target_requests::apply] [routes::target_requests::delete]
    }
}

fn complete_routes() -> OpenApiRouter<ServerState> {
    handlers! { [routes::callbacks::complete] }
}

fn api_routes() -> OpenApiRouter<ServerState> {
    use routes::{clusters, meta, named_documents, plugins, runs, targets, tokens};
    use routes::{target_actions, target_changes, target_history, target_list};
    handlers! {
        [plugins::list, plugins::publish] [plugins::versions] [plugins::signing_secrets]
        [plugins::get, plugins::delete] [plugins::preview]
        [sources::list] [sources::get, sources::put, sources::delete] [named_documents::reconcile_source]
        [connections::list] [connections::get, connections::put, connections::delete]
        [subscriptions::list] [subscriptions::get, subscriptions::put, subscriptions::delete]
        [named_documents::retry_subscription]
        [target_list::list] [target_actions::act] [target_changes::list]
        [targets::get] [targets::why] [targets::retry] [targets::force_complete] [targets::force_delete]
        [target_history::list] [target_history::get] [target_history::runs]
        [tokens::list, tokens::create] [tokens::revoke] [tokens::caller]
        [console::logins::create, console::logins::delete]
        [runs::get] [runs::logs] [runs::rendered]
        [clusters::list] [clusters::get, clusters::put, clusters::delete] [clusters::rotate]
        [clusters::register] [clusters::poll] [clusters::orphans] [clusters::delete_orphans]
        [meta::checks] [meta::openapi_document] [meta::health]
    }
}

fn all_routes() -> OpenApiRouter<ServerState> {
    receive_routes().merge(complete_routes()).merge(api_routes())
}

fn finish(routes: OpenApiRouter<ServerState>, pages: Router<ServerState>, server: ServerState) -> Router {
    let (router, _) = routes.split_for_parts();
    router
        .merge(pages)
        .fallback(routes::not_found)
        .method_not_allowed_fallback(console::not_allowed)
        .layer(CatchPanicLayer::new())
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(COMPRESSED).and(may_be_compressed)))
        .layer(Extension(Arc::new(BodyBudget::default())))
        .layer(Extension(Arc::new(console::ConsoleMemory::default())))
        .with_state(server)
}

/// Responses with fewer bytes are not compressed. They fit into one packet.
const COMPRESSED: u16 = 1_024;

/// Returns false for a response with a secret. The size of a compressed response depends on how often it repeats its text, also
/// that of the secret.
fn may_be_compressed(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    headers.get(header::CACHE_CONTROL).is_none_or(|control| control != "no-store")
}

/// Adds the tools of agents. They create, update and delete targets, too.
fn with_tools(router: Router, server: ServerState) -> Router {
    let own = server.clone();
    let routes = Arc::new(LazyLock::new(move || finish(receive_routes().merge(api_routes()), Router::new(), own)));
    let serve = move |request: Request| {
        let (server, routes) = (server.clone(), Arc::clone(&routes));
        async move { routes::mcp::serve(&server, &routes, request).await }
    };
    router.route("/mcp", any(serve))
}
