//! Sends the result of a task to the control plane.

use std::time::Duration;

use ebb_egress::{CallError, HttpCall, HttpRequest};
use ebb_protocol::callback::Callback;
use ebb_protocol::relay::{EnsureTask, ScriptTask};

/// The timeout of a callback. The control plane dispatches the units that became ready before it responds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends a result to `url`. Returns the reason if the result must be sent again.
pub(super) async fn send(
    call: &dyn HttpCall,
    url: &str,
    request: &EnsureTask<ScriptTask>,
    result: &Callback,
) -> Result<(), String> {
    let body = serde_json::to_vec(result).map_err(|error| error.to_string())?;
    let EnsureTask { task, callback, .. } = request;
    let request = HttpRequest {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![
            ("authorization".to_owned(), format!("Bearer {}", callback.token)),
            ("content-type".to_owned(), "application/json".to_owned()),
        ],
        body,
        timeout: TIMEOUT,
    };
    match call.call(request).await {
        Ok(response) if (200..300).contains(&response.status) => Ok(()),
        // These three statuses are temporary. Any other 4xx is the final rejection of the result.
        Ok(response) if (400..500).contains(&response.status) && !matches!(response.status, 408 | 425 | 429) => {
            tracing::warn!(?task, status = response.status, "callback refused");
            Ok(())
        }
        Ok(response) => Err(format!("status {}", response.status)),
        Err(error @ CallError::Refused(_)) => {
            tracing::warn!(?task, %error, "callback not allowed");
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}
