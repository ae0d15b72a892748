//! Handles named API tokens, and questions of callers about their own: `/v1/tokens`, `/v1/caller`.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use ebb_protocol::api::{CallerInfo, CreateToken, CreatedToken, TokenInfo, TokenList};

use crate::queries::named_tokens;
use crate::{HttpProblem, HttpResult, JsonBody, NoQuery, Operate, Path, Permitted, ServerState, no_store};

/// Lists the named tokens that are not revoked, without their secrets. Scope: `operate`.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "listTokens", tag = "tokens", responses(
    (status = 200, body = TokenList),
))]
pub(crate) async fn list(_: NoQuery, server: Permitted<Operate>) -> HttpResult<Json<TokenList>> {
    let name = |info: &TokenInfo| server.tokens.issuers.owner_name(Some(&info.created_by));
    let tokens = server.env.store.list_tokens().await?.into_iter().map(|token| token.info);
    let tokens = tokens.map(|info| TokenInfo { created_by_name: name(&info), ..info }).collect();
    Ok(Json(TokenList { tokens }))
}

/// Creates a named token and returns it with its secret, which no other response contains. Scope: `operate`.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "createToken", tag = "tokens", request_body = CreateToken, responses(
    (status = 201, body = CreatedToken),
))]
pub(crate) async fn create(
    server: Permitted<Operate>,
    JsonBody(request): JsonBody<CreateToken>,
) -> HttpResult<(StatusCode, HeaderMap, Json<CreatedToken>)> {
    let caller = &server.caller;
    let created = named_tokens::create(&server.env, &request, caller.stored_name()).await?;
    caller.log_change("create token", format_args!("{} with {}", created.info.name, created.info.scopes.join(", ")));
    Ok((StatusCode::CREATED, no_store(), Json(created)))
}

/// Revokes a named token. The next request with it is refused. Scope: `operate`.
#[utoipa::path(delete, path = "/v1/tokens/{name}", operation_id = "revokeToken", tag = "tokens")]
pub(crate) async fn revoke(Path(name): Path<String>, server: Permitted<Operate>, _: NoQuery) -> HttpResult<StatusCode> {
    if !server.env.store.revoke_token(&name, server.env.now()).await? {
        return Err(HttpProblem::not_found(format!("the token {name:?} does not exist")));
    }
    server.caller.log_change("revoke token", &name);
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the name of the caller and the scopes of its token.
#[utoipa::path(get, path = "/v1/caller", operation_id = "getCaller", tag = "tokens", responses(
    (status = 200, body = CallerInfo),
))]
pub(crate) async fn caller(State(server): State<ServerState>, headers: HeaderMap) -> HttpResult<Json<CallerInfo>> {
    Ok(Json(server.authenticate(&headers).await?.info()))
}
