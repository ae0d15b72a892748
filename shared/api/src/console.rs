//! The console: pages for browsers, with sessions in place of bearer tokens.
//!
//! 1. `sign_in` exchanges a token, the code of a link or the answer of an issuer for a session. Each request checks what is behind
//!    it. `logins` gives the command line a session of its own.
//! 2. `pages`, `logs`, `plugins`, `trials` and `selections` call the handlers of the API with the caller of the session, so
//!    that both permit the same.
//! 3. `renewals` answers open pages that ask whether anything has changed, by the feed of changes and by `stamps`. What they read
//!    is shared by `memory`.
//! 4. `responses` has the headers of all responses, entity tags and pages of failures.
//!
//! Only routes of this module read the cookie of a session. The API accepts bearer tokens only.

mod forms;
pub(crate) mod logins;
mod logs;
mod memory;
mod pages;
mod plugins;
mod renewals;
mod responses;
mod selections;
mod sessions;
mod sign_in;
mod stamps;
mod trials;

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware::map_response;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use ebb_console::paths;
use ebb_protocol::error_code::ErrorCode;

use crate::{HttpProblem, ServerState};

pub(crate) use memory::ConsoleMemory;

/// Refuses a method that a path does not accept, with a page for a path of the console, and with JSON for others.
pub(crate) async fn not_allowed(method: Method, uri: Uri) -> Response {
    let problem = HttpProblem::new(ErrorCode::MethodNotAllowed, format!("{} does not accept {method}", uri.path()));
    match uri.path().starts_with("/console/") || uri.path() == paths::ROOT {
        true => responses::secured(responses::failure(None, problem)).await,
        false => problem.into_response(),
    }
}

pub(crate) fn routes() -> Router<ServerState> {
    Router::new()
        .route("/", get(responses::to_console))
        .route(paths::ROOT, get(pages::overview))
        .route(paths::TARGETS, get(pages::targets))
        .route("/console/", get(responses::to_console))
        .route("/console/assets/{file}", get(responses::asset))
        .route(paths::SIGN_IN, get(sign_in::form).post(sign_in::sign_in))
        .route(paths::SIGN_IN_LINK, post(sign_in::link))
        .route(paths::SIGN_IN_BEGIN, get(sign_in::begin))
        .route(paths::SIGN_IN_RETURN, get(sign_in::finish))
        .route(paths::LOGIN, get(logins::show).post(logins::approve))
        .route(paths::SIGN_OUT, post(sign_in::sign_out))
        .route(paths::CHANGES, get(renewals::changes))
        .route("/console/targets/{kind}/{name}", get(renewals::target))
        .route(paths::SELECTION, get(selections::show).post(selections::confirm))
        .route(paths::CONFIRMED, get(responses::to_console).post(selections::execute))
        .route("/console/targets/{kind}/{name}/history", get(pages::history))
        .route("/console/targets/{kind}/{name}/history/{id}", get(pages::history_entry))
        .route("/console/runs/{run}/log", get(logs::log))
        .route("/console/runs/{run}/log.txt", get(logs::log_text))
        .route(paths::PLUGINS, get(plugins::list))
        .route("/console/plugins/{name}", get(plugins::plugin))
        .route(paths::SOURCES, get(pages::sources))
        .route("/console/sources/{name}", get(pages::source).post(trials::try_event))
        .route(paths::SUBSCRIPTIONS, get(pages::subscriptions))
        .route("/console/subscriptions/{name}", get(pages::subscription))
        .route(paths::CLUSTERS, get(pages::clusters))
        .route("/console/clusters/{name}", get(pages::cluster))
        .route("/console/{*rest}", get(pages::unknown))
        .layer(map_response(responses::secured))
}
