//! The functions behind HTTP: one router, on Lambda and on one machine.

mod background;
mod bodies;
mod openapi;
mod problem;
pub mod queries;
mod routes;

use std::sync::Arc;

use axum::{Extension, Router};
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use ebb_flow::env::{Env, HttpStore};
use ebb_relay_client::PollEndpoint;

use bodies::BodyBudget;

pub use background::instrument_router;
pub use problem::HttpProblem;
pub use routes::auth::{ApiRole, ApiTokens};

/// What the routes are given.
#[derive(Clone)]
pub struct ServerState {
    /// The surroundings of the functions.
    pub env: Arc<Env>,
    /// The store with what the api needs.
    pub store: Arc<dyn HttpStore>,
    /// Who may do what.
    pub tokens: Arc<ApiTokens>,
    /// The endpoint of relays that poll.
    pub poll_endpoint: Arc<PollEndpoint>,
}

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Ebb", description = "Ephemeral resources for sandboxes."),
    tags(
        (name = "lifecycle", description = "What the sandbox platform sends."),
        (name = "callbacks", description = "What units say of themselves."),
        (name = "plugins", description = "Definitions, versioned and immutable."),
        (name = "targets", description = "Sandboxes and whatever else has a life."),
        (name = "clusters", description = "Where units run, and what is left there."),
        (name = "checks", description = "Whether the deployment works."),
        (name = "runs", description = "Executions of the units of one hook."),
    )
)]
struct ApiDoc;

/// `receive`: lifecycle webhooks.
pub fn receive(server: ServerState) -> Router {
    finish(receive_routes(), server)
}

/// `complete`: callbacks.
pub fn complete(server: ServerState) -> Router {
    finish(complete_routes(), server)
}

/// `api`: everything that people and programs ask.
pub fn api(server: ServerState) -> Router {
    finish(api_routes(), server)
}

/// All functions behind one address, for one machine.
pub fn all(server: ServerState) -> Router {
    finish(all_routes(), server)
}

/// The OpenAPI document of all functions, made from the code.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = all_routes().into_openapi();
    openapi::complete(&mut document);
    document
}

fn receive_routes() -> OpenApiRouter<ServerState> {
    OpenApiRouter::with_openapi(ApiDoc::openapi()).routes(routes!(routes::lifecycle::receive))
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
        .routes(routes!(routes::targets::list))
        .routes(routes!(routes::targets::get))
        .routes(routes!(routes::targets::why))
        .routes(routes!(routes::targets::retry))
        .routes(routes!(routes::targets::force_complete))
        .routes(routes!(routes::targets::force_delete))
        .routes(routes!(routes::runs::get))
        .routes(routes!(routes::runs::logs))
        .routes(routes!(routes::plans::preview))
        .routes(routes!(routes::clusters::list))
        .routes(routes!(routes::clusters::poll))
        .routes(routes!(routes::checks::list))
        .routes(routes!(routes::orphans::list))
        .routes(routes!(routes::orphans::delete))
        .routes(routes!(routes::meta::openapi_document))
        .routes(routes!(routes::meta::health))
}

fn all_routes() -> OpenApiRouter<ServerState> {
    receive_routes().merge(complete_routes()).merge(api_routes())
}

fn finish(routes: OpenApiRouter<ServerState>, server: ServerState) -> Router {
    let (router, _) = routes.split_for_parts();
    router
        .fallback(routes::meta::not_found)
        .method_not_allowed_fallback(routes::meta::not_allowed)
        .layer(CatchPanicLayer::new())
        .layer(Extension(Arc::new(BodyBudget::default())))
        .with_state(server)
}
