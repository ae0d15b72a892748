//! Creates named API tokens.

use ebb_documents::durations;
use ebb_flow::{Env, RequestError};
use ebb_protocol::{CreateToken, CreatedToken, ErrorCode, Millis, Timestamp, TokenInfo, api_token, parse_scopes};
use ebb_store::TokenItem;

const DAY: u64 = 86_400_000;
/// The time after which a token expires, unless its creator gives another one.
const DEFAULT_TTL: Millis = Millis(90 * DAY);
const MAX_TTL: Millis = Millis(366 * DAY);
/// The maximum number of scopes of a token.
const MAX_SCOPES: usize = 50;

/// Creates a token. Only the response contains its secret.
pub async fn create(env: &Env, request: &CreateToken, created_by: String) -> Result<CreatedToken, RequestError> {
    let invalid = |detail: String| RequestError::refused(ErrorCode::InvalidField, detail);
    api_token::check_name(&request.name).map_err(invalid)?;
    if !(1..=MAX_SCOPES).contains(&request.scopes.len()) {
        return Err(invalid(format!("the token has {} scopes; expected 1 to {MAX_SCOPES}", request.scopes.len())));
    }
    let scopes = parse_scopes(request.scopes.iter().map(String::as_str)).map_err(|error| invalid(error.to_string()))?;
    let mut scopes: Vec<String> = scopes.iter().map(ToString::to_string).collect();
    if scopes.iter().any(|scope| scope.chars().any(|c| c.is_whitespace() || c.is_control()) || scope.len() > 300) {
        return Err(invalid("a scope contains white space or is too long".to_owned()));
    }
    scopes.sort();
    scopes.dedup();
    let ttl = match request.ttl.as_deref() {
        None => Some(DEFAULT_TTL),
        Some(text) => durations::duration(text, &durations::UNITS).map(Millis).filter(|ttl| *ttl <= MAX_TTL),
    };
    let ttl = ttl.ok_or_else(|| {
        invalid("`ttl` is invalid; expected a number with its unit, such as 12h or 30d, at most 366d".to_owned())
    })?;
    let created: Timestamp = env.now();
    let token = api_token::issue(&request.name, std::array::from_fn(|_| env.random.next()));
    let (name, expires) = (request.name.clone(), created.plus(ttl));
    let info = TokenInfo { name, display: None, scopes, created, expires, created_by, created_by_name: None };
    let item = TokenItem { info, digest: api_token::token_digest(&token), revoked: None };
    if !env.store.create_token(&item).await? {
        let detail = format!("the token {} exists: revoke it first, or use another name", request.name);
        return Err(RequestError::refused(ErrorCode::AlreadyExists, detail));
    }
    Ok(CreatedToken { token: token.to_string(), info: item.info })
}
