//! Plugins of InfraKit on this machine. The plugin NAME listens on the Unix socket `NAME` of a folder, or on the address
//! in its file `NAME.listen`, such as `tcp://127.0.0.1:24864`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_flow::ports::RelayError;
use ebb_protocol::limits::RESPONSE_BODY;
use ebb_protocol::relay::{RESPONSE_TIMEOUT, ServiceRequest, ServiceResponse};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// The time within which a plugin accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the folder of InfraKit's tools: `$INFRAKIT_PLUGINS_DIR`, or `plugins` in `$INFRAKIT_HOME`, or in
/// `~/.infrakit`.
pub fn default_folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || variable("INFRAKIT_HOME").or_else(|| Some(variable("HOME")?.join(".infrakit")));
    variable("INFRAKIT_PLUGINS_DIR").unwrap_or_else(|| home().unwrap_or_default().join("plugins"))
}

trait PluginStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> PluginStream for T {}

/// Sends a request to a plugin, once.
///
/// # Errors
/// Returns [`RelayError::Refused`] if the plugin does not run, and [`RelayError::Busy`] if it may have received the request.
pub async fn call(folder: &Path, request: ServiceRequest) -> Result<ServiceResponse, RelayError> {
    let name = request.service.clone();
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect(folder, &name)).await;
    let stream = stream.unwrap_or_else(|_| Err("it accepts no connection".to_owned()));
    let stream = stream.map_err(|why| RelayError::Refused(format!("the plugin `{name}`: {why}")))?;
    let sent = tokio::time::timeout(RESPONSE_TIMEOUT, send(stream, request)).await;
    let response = sent.unwrap_or_else(|_| Err(format!("no response within {} s", RESPONSE_TIMEOUT.as_secs()).into()));
    response.map_err(|error| RelayError::Busy(format!("the plugin `{name}`: {error}")))
}

async fn connect(folder: &Path, name: &str) -> Result<Box<dyn PluginStream>, String> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err("the name is not valid".to_owned());
    }
    let socket = folder.join(name);
    let file = folder.join(format!("{name}.listen"));
    let failed = |error: std::io::Error| format!("it is not running: {error}");
    if let Ok(text) = tokio::fs::read_to_string(&file).await {
        let text = text.trim();
        let address = text.strip_prefix("tcp://").unwrap_or(text).trim_end_matches('/');
        let stream = TcpStream::connect(address).await;
        return Ok(Box::new(stream.map_err(|error| format!("{}: {}", file.display(), failed(error)))?));
    }
    if !tokio::fs::try_exists(&socket).await.unwrap_or_default() {
        return Err(format!("neither the socket {} nor the file {} exists", socket.display(), file.display()));
    }
    Ok(Box::new(UnixStream::connect(&socket).await.map_err(failed)?))
}

async fn send(
    stream: Box<dyn PluginStream>,
    request: ServiceRequest,
) -> Result<ServiceResponse, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with its sender.
    tokio::spawn(connection);
    let mut http = hyper::Request::builder().method(request.method.as_str()).uri(&request.path).header(HOST, "plugin");
    for (name, value) in &request.headers {
        http = http.header(name, value);
    }
    let response = sender.send_request(http.body(Full::new(Bytes::from(request.body)))?).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), RESPONSE_BODY).collect().await?.to_bytes();
    Ok(ServiceResponse { status, headers: Vec::new(), body: String::from_utf8_lossy(&body).into_owned() })
}
