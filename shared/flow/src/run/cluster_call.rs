//! Requests to Services of a cluster, which its relay sends.

use std::time::Duration;

use ebb_egress::{BytePermit, CallError, CallResult, HttpRequest, HttpResponse};
use ebb_protocol::relay::{NOT_SENT, ServiceCredential, ServiceRequest, ServiceResponse, UNREADABLE};
use ebb_protocol::{Millis, limits};
use futures::future::{Either, select};
use url::{Position, Url};

use crate::guarded_relay::{NOT_AWAITED, NOT_NOW};
use crate::{Env, RelayError, UnitCluster, guarded};

/// The cluster whose relay sends the requests of a webhook unit.
pub(crate) struct ClusterRoute {
    pub(crate) cluster: String,
    /// As [`UnitCluster::uid`].
    pub(crate) uid: Option<String>,
    /// The Secret of the cluster that authorizes the requests.
    pub(crate) credential: Option<ServiceCredential>,
}

/// Returns true if the Service has received nothing.
fn is_unsent(error: &RelayError) -> bool {
    match error {
        // An earlier relay cannot read a request with a credential.
        RelayError::Unreachable(why) | RelayError::Busy(why) => {
            why.ends_with(NOT_NOW) || [NOT_SENT, UNREADABLE].iter().any(|text| why.starts_with(text))
        }
        RelayError::Refused(_) => true,
    }
}

/// Sends a request to a Service, and waits for the response while the request is valid.
pub(super) async fn call_service(
    env: &Env,
    cluster: UnitCluster<'_>,
    request: ServiceRequest,
) -> Result<ServiceResponse, RelayError> {
    let timeout = Duration::from_millis(request.valid_for_ms);
    let answer = async {
        match select(env.relay.call(cluster, request), env.clock.sleep(timeout)).await {
            // The relay works, and the Service is slow.
            Either::Left((Err(RelayError::Busy(why)), _)) => Ok(Err(RelayError::Busy(why))),
            Either::Left((answer, _)) => answer.map(Ok),
            Either::Right(_) => Err(RelayError::Unreachable(NOT_AWAITED.to_owned())),
        }
    };
    guarded(env, cluster.name, answer).await.flatten()
}

impl ClusterRoute {
    /// Sends a request, once. A refusal of the relay is final, and so is that of the operator's policy.
    pub(super) async fn send(&self, env: &Env, request: HttpRequest) -> CallResult<(HttpResponse, BytePermit)> {
        let cluster = UnitCluster { name: Some(&self.cluster), uid: self.uid.as_deref() };
        let at = |why: String| format!("cluster {}: {why}", self.cluster);
        let timeout = request.timeout;
        let call = self.service_request(request).map_err(|why| CallError::Refused(at(why)))?;
        let permit = env.cache.budgets.bytes.reserve(limits::RESPONSE_BODY).await;
        match call_service(env, cluster, call).await {
            Ok(ServiceResponse { status, headers, body }) => {
                Ok((HttpResponse { status, headers, body: body.into_bytes() }, permit))
            }
            Err(RelayError::Refused(why)) => Err(CallError::Refused(at(why))),
            Err(RelayError::Unreachable(why)) if why == NOT_AWAITED => Err(CallError::Timeout(timeout)),
            Err(error) if is_unsent(&error) => Err(CallError::NoConnection(at(error.to_string()))),
            Err(error) => Err(CallError::Connect(at(error.to_string()))),
        }
    }

    fn service_request(&self, request: HttpRequest) -> Result<ServiceRequest, String> {
        let HttpRequest { method, url, headers, body, timeout, .. } = request;
        let url = Url::parse(&url).map_err(|error| error.to_string())?;
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        Ok(ServiceRequest {
            service: format!("{host}:{port}"),
            method,
            path: url[Position::BeforePath..Position::AfterQuery].to_owned(),
            headers,
            body: String::from_utf8(body).map_err(|_| "the body is not text in UTF-8".to_owned())?,
            valid_for_ms: Millis::from(timeout).0,
            credential: self.credential.clone(),
        })
    }
}
