//! Receives an event of a source: verifies it, maps it to a target, records and applies it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_documents::EventSource;
use ebb_documents::event::{EventInput, EventOutcome};
use ebb_documents::model::VerifyDoc;
use ebb_engine::{SignedPiece, Timestamp};
use ebb_protocol::sign::MAX_ID;
use ebb_protocol::source_signature::{self, JwsScheme, SignedText, SignedTime, SourceScheme};
use ebb_protocol::{ErrorCode, SourceResponse, SourceResult, id, lifecycle, limits};
use ebb_store::{DesiredKey, DesiredTarget};
use http::HeaderMap;

use super::{fetch, find, reconcile, record};
use crate::instance::rejected_events;
use crate::run::credential::{self, ConnectionUser, secret_value};
use crate::{Env, FlowResult, FollowUp, RequestError, offload};

/// Headers that expressions do not see, because they contain credentials.
const CREDENTIALS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "x-gitlab-token"];

/// The greatest age of a signature by default, in milliseconds: that of Standard Webhooks.
const SIGNATURE_TOLERANCE: u64 = 5 * 60 * 1000;

/// A request to the URL of a source.
#[derive(Clone, Copy, Debug)]
pub struct DeliveryRequest<'a> {
    pub headers: &'a HeaderMap,
    /// The query parameter `secret`.
    pub url_secret: Option<&'a str>,
    pub body: &'a [u8],
}

/// Returns the compiled source of a name, if the request has the kind of proof that the source requires. The proof is
/// verified with the body, in [`receive`].
///
/// # Errors
/// Returns a refusal if the source does not exist, and if the request has no proof.
pub async fn open(
    env: &Env,
    name: &str,
    (headers, url_secret): (&HeaderMap, Option<&str>),
) -> Result<Arc<EventSource>, RequestError> {
    let source = find(env, name).await?;
    source_signature::check_given(&scheme(&source.verify), headers, url_secret)
        .map_err(|error| RequestError::refused(ErrorCode::InvalidSignature, error.to_string()))?;
    Ok(source)
}

/// Checks that the secret of a source can verify events.
///
/// # Errors
/// Returns the reason why it cannot. The reason contains no secret.
pub async fn check_secret(env: &Env, source: &str) -> Result<(), String> {
    let source = find(env, source).await.map_err(|error| error.to_string())?;
    let name = &source.verify.secret().value;
    let value = secret_value(env.settings.secrets.checked(name), name, "")?;
    source_signature::check_secret(&scheme(&source.verify), &value).map_err(|error| format!("{error} as {name}"))
}

/// Returns the reason why a connection cannot complete the events of a source.
pub async fn connection_problem(env: &Env, source: &str, connection: &str) -> FlowResult<Option<String>> {
    Ok(credential::of_user(env, connection, ConnectionUser::Source(source)).await?.err())
}

/// Receives an event. Returns the response with the follow-ups of an applied one. The event is stored when this returns,
/// unless the response says otherwise.
///
/// # Errors
/// Returns a rejection, or an error if the event could not be stored. The sender repeats it.
pub async fn receive(
    env: &Env,
    (name, source): (&str, Arc<EventSource>),
    request: DeliveryRequest<'_>,
) -> Result<(SourceResponse, Vec<FollowUp>), RequestError> {
    let sender_id = verify(env, &source.verify, request)?;
    // The other schemes that have an id in a header sign the body only.
    let is_id_signed = matches!(source.verify, VerifyDoc::Standard(_) | VerifyDoc::Gitlab(_));
    let digest = |fetched: &str| id::digest(&[request.body, fetched.as_bytes()].concat());
    let delivery_id = |id: Option<String>, fetched: &str| {
        let id = id.or_else(|| sender_id.clone()).unwrap_or_else(|| digest(fetched));
        if id.len() <= MAX_ID { id } else { id::digest(id.as_bytes()) }
    };
    let values = limits::check_json_values(request.body, limits::JSON_VALUES)
        .map_err(|problem| RequestError::refused(ErrorCode::TooLarge, format!("the body has {problem}")))?;
    let permit = env.cache.budgets.event_values.reserve(values).await;
    let body = serde_json::from_slice(request.body).map_err(|error| {
        let detail = match is_form(request.headers) {
            true => "the body is a form: choose the content type application/json at the sender".to_owned(),
            false => format!("the body is not JSON: {error}"),
        };
        RequestError::refused(ErrorCode::InvalidJson, detail)
    })?;
    let is_limited = source.limit.is_some();
    let mut input = EventInput { headers: visible(request.headers), body, fetched: None };
    match source.fetch(&input) {
        Ok(None) => {}
        Ok(Some(fetch)) => match fetch::fetch(env, name, fetch, limits::JSON_VALUES - values).await? {
            Ok(fetched) => input.fetched = Some(fetched),
            Err(why) => {
                let detail = format!("the event cannot be completed now: {why}");
                reject(env, (name, &delivery_id(None, "")), None, detail.clone()).await;
                return Err(RequestError::refused(ErrorCode::IncompleteEvent, detail));
            }
        },
        Err(error) => return Ok(reject(env, (name, &delivery_id(None, "")), None, error.to_string()).await),
    }
    // The same event can be about another state.
    let fetched = input.fetched.as_ref().map_or_else(String::new, ToString::to_string);
    let evaluated = offload(move || {
        let (id, outcome) = match source.delivery_id(&input) {
            Ok(id) => (id, source.explain(&input).outcome),
            Err(error) => (None, Err(error)),
        };
        let evaluated = (id, outcome.map_err(|error| (error, source.target(&input))));
        drop((input, permit));
        evaluated
    });
    let (id, outcome) = evaluated.await?;
    // If the signature covers the body only, a captured request could be sent again with another id.
    let is_unsigned = id.is_none() && sender_id.is_some() && !is_id_signed;
    let identity = is_unsigned.then(|| digest(&fetched));
    let delivery = delivery_id(id, &fetched);
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err((error, target)) => return Ok(reject(env, (name, &delivery), target, error.to_string()).await),
    };
    let event =
        |kind, name_of_target, uid, (time_ms, order): (Option<u64>, u8), document: Option<String>| DesiredTarget {
            delivery,
            identity,
            key: DesiredKey { source: name.to_owned(), kind, name: name_of_target, uid },
            sent: time_ms.map(Timestamp),
            order,
            is_delete: document.is_none(),
            document,
            is_limited,
            ..DesiredTarget::default()
        };
    let (event, reason) = match outcome {
        EventOutcome::Ignored { reason } => {
            let outcome = SourceResponse { result: SourceResult::Ignored, target: None, uid: None, detail: reason };
            return Ok((outcome, Vec::new()));
        }
        EventOutcome::Apply { kind, name, uid, time_ms, order, document } => {
            (event(kind, name, uid, (time_ms, order), Some(document)), None)
        }
        EventOutcome::Delete { kind, name, uid, time_ms, order, reason } => {
            (event(kind, name, uid, (time_ms, order), None), reason)
        }
    };
    if let Err(reason) = check(&event.key) {
        return Ok(reject(env, (name, &event.delivery), None, reason).await);
    }
    let (mut response, follow_ups) = apply(env, &event).await?;
    response.detail.extend(reason.map(|reason| format!(" ({reason})")));
    Ok((response, follow_ups))
}

async fn apply(env: &Env, event: &DesiredTarget) -> FlowResult<(SourceResponse, Vec<FollowUp>)> {
    if let Some(outcome) = record::record(env, event).await? {
        return Ok((outcome, Vec::new()));
    }
    // The event is stored, so an error is not the sender's concern.
    match reconcile::apply(env, &event.key).await {
        Ok((outcome, follow_ups)) => Ok((outcome.unwrap_or_else(|| accepted(event)), follow_ups)),
        Err(error) => {
            tracing::warn!(%error, kind = event.key.kind, name = event.key.name, "cannot apply a stored event; a sweep does");
            Ok((accepted(event), Vec::new()))
        }
    }
}

fn accepted(event: &DesiredTarget) -> SourceResponse {
    reconcile::outcome(&event.key, SourceResult::Accepted, None, "the event is stored and will be applied".to_owned())
}

/// Lists an event that is rejected before its target is looked up, and returns the response. `target` is kind, name and UID.
pub(super) async fn reject(
    env: &Env,
    (source, delivery): (&str, &str),
    target: Option<(String, String, Option<String>)>,
    detail: String,
) -> (SourceResponse, Vec<FollowUp>) {
    let (target, uid) = target.map_or((None, None), |(kind, name, uid)| (Some(format!("{kind}/{name}")), uid));
    let response = SourceResponse { result: SourceResult::Rejected, target, uid, detail };
    rejected_events::note(env, source, delivery, &response).await;
    (response, Vec::new())
}

/// Checks the fields that become keys.
fn check(DesiredKey { kind, name, uid, .. }: &DesiredKey) -> Result<(), String> {
    let of_target = |error: lifecycle::FieldError| format!("the target's {error}");
    lifecycle::kind(kind).map_err(of_target)?;
    lifecycle::name(name).map_err(of_target)?;
    let Some(uid) = uid else { return Ok(()) };
    lifecycle::uid(uid).and_then(|()| lifecycle::unreserved_uid(uid)).map_err(of_target)
}

/// Verifies the sender. Returns the id of the delivery that its headers give.
fn verify(env: &Env, verify: &VerifyDoc, request: DeliveryRequest<'_>) -> Result<Option<String>, RequestError> {
    let name = &verify.secret().value;
    let secret = env.settings.secrets.secret(name).map_err(|error| {
        tracing::error!(error, "the secrets of sources cannot be used");
        let text = "the secrets of this deployment cannot be used: the log of the server has the reason";
        RequestError::refused(ErrorCode::InvalidSecrets, text)
    })?;
    let Some(secret) = secret else {
        let text = format!("the deployment has no secret {name}: add it, then send the event again");
        return Err(RequestError::refused(ErrorCode::MissingSecret, text));
    };
    let DeliveryRequest { headers, url_secret, body } = request;
    let verified = source_signature::verify(&scheme(verify), &secret, headers, url_secret, body, env.now());
    verified.map_err(|error| RequestError::refused(ErrorCode::InvalidSignature, error.to_string()))
}

pub fn scheme(verify: &VerifyDoc) -> SourceScheme {
    match verify {
        VerifyDoc::Github(_) => SourceScheme::github(),
        VerifyDoc::Gitlab(_) => SourceScheme::Gitlab,
        VerifyDoc::Gitea(_) => SourceScheme::gitea(),
        VerifyDoc::Vercel(_) => SourceScheme::vercel(),
        VerifyDoc::Standard(_) => SourceScheme::Standard,
        VerifyDoc::E2b(_) => SourceScheme::E2b,
        VerifyDoc::Bearer(_) => SourceScheme::Bearer,
        VerifyDoc::Basic(basic) => SourceScheme::Basic { user: basic.user.value.clone() },
        VerifyDoc::Url(_) => SourceScheme::Url,
        VerifyDoc::Hmac(hmac) => SourceScheme::Hmac {
            header: hmac.header.value.to_ascii_lowercase(),
            prefix: hmac.prefix.clone(),
            algorithm: hmac.algorithm,
            encoding: hmac.encoding,
            text: SignedText {
                pieces: hmac.signed.as_ref().map_or_else(Vec::new, |signed| {
                    SignedPiece::parse(&signed.value, hmac.timestamp.is_some()).expect("the loader checks it")
                }),
                timestamp: hmac.timestamp.as_ref().map(|time| SignedTime {
                    header: time.header.value.to_ascii_lowercase(),
                    field: time.field.clone(),
                    tolerance: time.tolerance.map_or(SIGNATURE_TOLERANCE, |tolerance| tolerance.0),
                }),
            },
        },
        VerifyDoc::Jws(jws) => SourceScheme::Jws(JwsScheme {
            header: jws.header.value.to_ascii_lowercase(),
            prefix: jws.prefix.clone(),
            algorithm: jws.algorithm,
            body_hash: jws.body_hash.clone(),
            issuer: jws.issuer.clone(),
        }),
    }
}

/// Returns true for the content type of HTML forms, which GitHub proposes for a new webhook.
fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Returns the headers that expressions see: the first value of each, without credentials.
pub(super) fn visible(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut visible = BTreeMap::new();
    for (name, value) in headers {
        if let Ok(value) = value.to_str()
            && !CREDENTIALS.contains(&name.as_str())
        {
            visible.entry(name.as_str().to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    visible
}
