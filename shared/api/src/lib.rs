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

fn receive_routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(routes::lifecycle::receive))
        .routes(routes!(routes::sources::receive))
        .routes(routes!(routes::target_requests::apply))
        .routes(routes!(routes::target_requests::delete))
}

fn complete_routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(ApiDoc::openapi()).routes(routes!(routes::callbacks::complete))
}

fn api_routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(ApiDoc::openapi())
        .routes(routes!(routes::plugins::list, routes::plugins::publish))
        .routes(routes!(routes::plugins::versions))
        .routes(routes!(routes::plugins::signing_secrets))
        .routes(routes!(routes::plugins::get, routes::plugins::delete))
        .routes(routes!(sources::list))
        .routes(routes!(sources::get, sources::put, sources::delete))
        .routes(routes!(connections::list))
        .routes(routes!(connections::get, connections::put, connections::delete))
        .routes(routes!(subscriptions::list))
        .routes(routes!(subscriptions::get, subscriptions::put, subscriptions::delete))
        .routes(routes!(routes::named_documents::retry_subscription))
        .routes(routes!(routes::named_documents::reconcile_source))
        .routes(routes!(routes::target_list::list))
        .routes(routes!(routes::target_actions::act))
        .routes(routes!(routes::target_changes::list))
        .routes(routes!(routes::targets::get))
        .routes(routes!(routes::targets::why))
        .routes(routes!(routes::target_history::list))
        .routes(routes!(routes::target_history::get))
        .routes(routes!(routes::target_history::runs))
        .routes(routes!(routes::targets::retry))
        .routes(routes!(routes::targets::force_complete))
        .routes(routes!(routes::targets::force_delete))
        .routes(routes!(routes::tokens::list, routes::tokens::create))
        .routes(routes!(routes::tokens::revoke))
        .routes(routes!(routes::tokens::caller))
        .routes(routes!(console::logins::create, console::logins::delete))
        .routes(routes!(routes::runs::get))
        .routes(routes!(routes::runs::logs))
        .routes(routes!(routes::runs::rendered))
        .routes(routes!(routes::plugins::preview))
        .routes(routes!(routes::clusters::list))
        .routes(routes!(routes::clusters::get, routes::clusters::put, routes::clusters::delete))
        .routes(routes!(routes::clusters::rotate))
        .routes(routes!(routes::clusters::register))
        .routes(routes!(routes::clusters::poll))
        .routes(routes!(routes::meta::checks))
        .routes(routes!(routes::clusters::orphans))
        .routes(routes!(routes::clusters::delete_orphans))
        .routes(routes!(routes::meta::openapi_document))
        .routes(routes!(routes::meta::health))
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
