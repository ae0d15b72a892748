//! The emulated S3 for programs of this machine such as `curl`.

use std::net::IpAddr;
use std::path::Path;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;

use super::access::LocalAccess;
use super::{ACCESS_KEY, EmbeddedError, SECRET_KEY};
use crate::files;

/// The header with the method of a body's signature.
const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// Returns an S3 endpoint for the buckets of `folder`.
///
/// Requests may be unsigned or signed with any key. Only bodies that are signed in chunks need [`ACCESS_KEY`]. Buckets
/// are addressed by path.
///
/// Keys are paths: a key cannot be the folder of another (`a` and `a/b`), cannot have a segment `.` or `..`, and has at
/// most about 150 bytes.
///
/// # Errors
/// Returns an error if the folder cannot be written.
pub(crate) fn s3_router(folder: &Path) -> Result<Router, EmbeddedError> {
    files::private_folder(folder)?;
    let files = FileSystem::new(folder).map_err(|error| EmbeddedError::Refused {
        what: format!("buckets in {}", folder.display()),
        reason: format!("{error:?}"),
    })?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    builder.set_access(LocalAccess { folder: folder.to_owned() });
    let service = builder.build();
    Ok(Router::new().fallback(async move |request: Request| respond(&service, request).await))
}

async fn respond(service: &S3Service, mut request: Request) -> Response {
    if !names_loopback(request.headers()) {
        let text = "this S3 endpoint accepts only requests to 127.0.0.1, [::1] and localhost\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    unsign(&mut request);
    match service.call(request.map(s3s::Body::http_body_unsync)).await {
        Ok(response) => response.map(axum::body::Body::new),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")).into_response(),
    }
}

/// Returns true if the header `Host` is `localhost` or a loopback address. A page in a browser can give its own name the
/// address of this machine, and its requests have this name.
pub(crate) fn names_loopback(headers: &HeaderMap) -> bool {
    let named = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    named.is_some_and(|named| {
        let host = named.host().trim_start_matches('[').trim_end_matches(']');
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

/// Removes the signature of a request whose body can be read without it.
fn unsign(request: &mut Request) {
    let chunked = request.headers().get(CONTENT_SHA256).and_then(|value| value.to_str().ok());
    if chunked.is_some_and(|value| value.starts_with("STREAMING-AWS4")) {
        return;
    }
    request.headers_mut().remove(AUTHORIZATION);
    let Some(query) = request.uri().query() else { return };
    let signature = |pair: &&str| !pair.to_ascii_lowercase().starts_with("x-amz-");
    let kept: Vec<&str> = query.split('&').filter(signature).collect();
    let target = match kept.is_empty() {
        true => request.uri().path().to_owned(),
        false => format!("{}?{}", request.uri().path(), kept.join("&")),
    };
    if let Ok(uri) = target.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
}
