//! Handles documents that a deployment stores by name: `/v1/sources`, `/v1/connections`, `/v1/subscriptions`.

use axum::Json;
use axum::body::Body;
use ebb_documents::{SourceDoc, SubscriptionDoc};
use ebb_flow::instance::outbox;
use ebb_flow::source::observe;
use ebb_protocol::SubscriptionDetail;
use ebb_protocol::api::{ReconcileSource, SourceDetail};

use super::{parse_json, read};
use crate::queries::named_documents;
use crate::{HttpProblem, HttpResult, NoQuery, Operate, Path, Permitted};

/// Maximum bytes of the UIDs of a request.
const MAX_BODY: usize = 64 << 10;

/// Defines the handlers of a kind of document, in a module. utoipa needs a function for each path.
macro_rules! document_routes {
    (
        mod $module:ident of $document:ident: $noun:literal, $all:literal, $one:literal, $read:ident, $write:ident;
        $(#[$list_about:meta])* $list_id:literal: $list:ident;
        $(#[$get_about:meta])* $get_id:literal: $detail:ident;
        $(#[$put_about:meta])* $put_id:literal;
        $(#[$delete_about:meta])* $delete_id:literal;
    ) => {
        pub(crate) mod $module {
            use axum::Json;
            use axum::body::Body;
            use axum::http::StatusCode;
            use ebb_documents::model::$document;
            use ebb_protocol::limits;
            use ebb_protocol::api::{$detail, $list, DocumentBody};

            use crate::queries::named_documents::{self, ChangeDocumentQuery, StoredKind as _};
            use crate::routes::permitted::{$read, $write};
            use crate::{HttpProblem, HttpResult, NoQuery, Path, Permitted, Query};

            $(#[$list_about])*
            #[utoipa::path(get, path = $all, operation_id = $list_id, tag = stringify!($module), responses(
                (status = 200, body = $list),
            ))]
            pub(crate) async fn list(_: NoQuery, server: Permitted<$read>) -> HttpResult<Json<$list>> {
                Ok(Json($document::list(&server.env).await?))
            }

            $(#[$get_about])*
            #[utoipa::path(get, path = $one, operation_id = $get_id, tag = stringify!($module), responses(
                (status = 200, body = $detail),
            ))]
            pub(crate) async fn get(Path(name): Path<String>, server: Permitted<$read>) -> HttpResult<Json<$detail>> {
                named_documents::get::<$document>(&server.env, &name).await?.map(Json).ok_or_else(|| unknown(&name))
            }

            $(#[$put_about])*
            #[utoipa::path(put, path = $one, operation_id = $put_id, tag = stringify!($module), params(ChangeDocumentQuery), request_body = DocumentBody, responses(
                (status = 200, body = $detail, description = concat!("The ", $noun, " is created or replaced.")),
            ))]
            pub(crate) async fn put(
                Path(name): Path<String>,
                server: Permitted<$write>,
                Query(query): Query<ChangeDocumentQuery>,
                body: Body,
            ) -> HttpResult<Json<$detail>> {
                let request: DocumentBody = crate::routes::read_json_within(body, limits::API_BODY).await?;
                let stored = named_documents::put::<$document>(&server.env, &name, &request.document, query).await?;
                if !query.dry_run {
                    server.caller.log_change(concat!("put ", $noun), &name);
                }
                Ok(Json(stored))
            }

            $(#[$delete_about])*
            #[utoipa::path(delete, path = $one, operation_id = $delete_id, tag = stringify!($module), params(ChangeDocumentQuery))]
            pub(crate) async fn delete(
                Path(name): Path<String>,
                server: Permitted<$write>,
                Query(query): Query<ChangeDocumentQuery>,
            ) -> HttpResult<StatusCode> {
                if !named_documents::delete::<$document>(&server.env, &name, query).await? {
                    return Err(unknown(&name));
                }
                if !query.dry_run {
                    server.caller.log_change(concat!("delete ", $noun), &name);
                }
                Ok(StatusCode::NO_CONTENT)
            }

            fn unknown(name: &str) -> HttpProblem {
                HttpProblem::not_found(format!(concat!("no ", $noun, " {:?} exists"), name))
            }
        }
    };
}

document_routes! {
    mod sources of SourceDoc: "source", "/v1/sources", "/v1/sources/{name}", ReadSources, WriteSources;
    /// Lists all sources. Scope: `sources:write` or `plugins:write`.
    "listSources": SourceList;
    /// Returns a source with its document, and the events that were rejected. Scope: `sources:write` or `plugins:write`.
    "getSource": SourceDetail;
    /// Creates or replaces a source. Targets that its events created stay. Scope: `sources:write`.
    "putSource";
    /// Deletes a source, with `force` also one with living targets. These stay. Scope: `sources:write`.
    "deleteSource";
}

document_routes! {
    mod connections of ConnectionDoc: "connection", "/v1/connections", "/v1/connections/{name}", ReadConnections, Operate;
    /// Lists all connections. Shows whether their secrets exist, and no value. Scope: `plugins:write`.
    "listConnections": ConnectionList;
    /// Returns a connection with its document. Scope: `plugins:write`.
    "getConnection": ConnectionDetail;
    /// Creates or replaces a connection. The next request of each unit uses it. If living targets, sources or subscriptions lose
    /// it, it needs `force`: units fail then, also those of the teardown. Scope: `operate`.
    "putConnection";
    /// Deletes a connection, with `force` also one that living targets, sources or subscriptions need. Units fail then, also
    /// those of the teardown. Scope: `operate`.
    "deleteConnection";
}

document_routes! {
    mod subscriptions of SubscriptionDoc: "subscription", "/v1/subscriptions", "/v1/subscriptions/{name}", ReadConnections, Operate;
    /// Lists all subscriptions, with the numbers of notifications that wait and that were given up. Scope: `plugins:write`.
    "listSubscriptions": SubscriptionList;
    /// Returns a subscription with its document, its last error and the notifications that were given up. Scope:
    /// `plugins:write`.
    "getSubscription": SubscriptionDetail;
    /// Creates or replaces a subscription. It reports the changes of targets that begin a minute later or earlier. Scope:
    /// `operate`.
    "putSubscription";
    /// Deletes a subscription. Its waiting notifications are dropped. Scope: `operate`.
    "deleteSubscription";
}

/// Sends the notifications of a subscription again that were given up, ends the waits of others, and returns the subscription with
/// those that stay given up. Scope: `operate`.
#[utoipa::path(post, path = "/v1/subscriptions/{name}/retry", operation_id = "retrySubscription", tag = "subscriptions", responses(
    (status = 200, body = SubscriptionDetail),
))]
pub(crate) async fn retry_subscription(
    Path(name): Path<String>,
    server: Permitted<Operate>,
    _: NoQuery,
) -> HttpResult<Json<SubscriptionDetail>> {
    let retried = Some(outbox::resend(&server.env, &name).await?);
    let found = named_documents::get::<SubscriptionDoc>(&server.env, &name).await?;
    let found = found.ok_or_else(|| HttpProblem::not_found(format!("no subscription {name:?} exists")))?;
    server.caller.log_change("retry subscription", &name);
    Ok(Json(SubscriptionDetail { retried, ..found }))
}

/// Deletes targets whose things are missing at the sender of a source, after one more observation that lacks them: without the
/// grace period, and also if more are missing than may be at once. Scope: `operate`.
#[utoipa::path(post, path = "/v1/sources/{name}/reconcile", operation_id = "reconcileSource", tag = "sources", request_body = ReconcileSource, responses(
    (status = 200, body = SourceDetail),
))]
pub(crate) async fn reconcile_source(
    Path(name): Path<String>,
    server: Permitted<Operate>,
    _: NoQuery,
    body: Body,
) -> HttpResult<Json<SourceDetail>> {
    let ReconcileSource { uids } = parse_json(&read(body, MAX_BODY).await?)?;
    observe::accept(&server.env, &name, uids).await?;
    let found = named_documents::get::<SourceDoc>(&server.env, &name).await?;
    let found = found.ok_or_else(|| HttpProblem::not_found(format!("no source {name:?} exists")))?;
    server.caller.log_change("reconcile source", &name);
    Ok(Json(found))
}
