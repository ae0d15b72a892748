//! The emulated S3 on a port of this machine, for programs such as `curl`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, HOST};
use axum::http::uri::Authority;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::access::LocalAccess;
use super::{ACCESS_KEY, EmbeddedError, SECRET_KEY};
use crate::files;

/// The header with the method of a body's signature.
const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// A running S3 endpoint. Drop stops it.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl S3Server {
    /// Serves the buckets of `folder` on `port` of the loopback interface; port 0 selects a free one.
    ///
    /// Requests may be unsigned or signed with any key. Only bodies that are signed in chunks need [`ACCESS_KEY`].
    /// Buckets are addressed by path.
    ///
    /// Keys are paths: a key cannot be the folder of another (`a` and `a/b`), cannot have a segment `.` or `..`, and
    /// has at most about 150 bytes.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be written, or the port is taken.
    pub async fn start(folder: &Path, port: u16) -> Result<Self, EmbeddedError> {
        let service = service(folder)?;
        let what = || format!("port {port} of 127.0.0.1");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.map_err(|source| EmbeddedError::Io { what: what(), source })?;
        let address = listener.local_addr().map_err(|source| EmbeddedError::Io { what: what(), source })?;
        let router = axum::Router::new().fallback(async move |request: Request| respond(&service, request).await);
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the S3 endpoint failed");
            }
        });
        Ok(Self { address, task })
    }

    /// Returns the URL of the endpoint, without a slash at the end.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the emulator of `folder`, for unsigned requests and for those signed with [`ACCESS_KEY`].
fn service(folder: &Path) -> Result<S3Service, EmbeddedError> {
    files::private_folder(folder)?;
    let files = FileSystem::new(folder).map_err(|error| EmbeddedError::Refused {
        what: format!("buckets in {}", folder.display()),
        reason: format!("{error:?}"),
    })?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    builder.set_access(LocalAccess { folder: folder.to_owned() });
    Ok(builder.build())
}

async fn respond(service: &S3Service, mut request: Request) -> Response {
    if !names_loopback(&request) {
        let text = "this S3 endpoint accepts only requests to 127.0.0.1, [::1] and localhost\n";
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    unsign(&mut request);
    match service.call(request.map(s3s::Body::http_body_unsync)).await {
        Ok(response) => response.map(axum::body::Body::new),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}")).into_response(),
    }
}

/// Returns true if the host of the request is a loopback address.
///
/// A web page whose host name resolves to loopback sends its own host, and must not reach the endpoint through a
/// browser.
fn names_loopback(request: &Request) -> bool {
    let header = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    let host = request.uri().authority().map(Authority::as_str).or(header);
    let Some(Ok(authority)) = host.map(str::parse::<Authority>) else { return false };
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
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
