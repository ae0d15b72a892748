//! Receivers at GitHub that take more than one request: comments and deployments.

use ebb_egress::{BytePermit, CallError, HttpResponse};
use ebb_protocol::id;
use serde_json::{Value, json};

use super::receiver::{NotificationDelivery, SubscriptionOrigin};
use crate::Env;

/// Comments that are searched for the one of a target, and those of a page. A large page is read in small ones.
const MAX_COMMENTS: usize = 300;
const LARGE_PAGE: usize = 100;
const SMALL_PAGE: usize = 10;
/// Derives the key of the marks in comments. It is not the name of a plugin.
const COMMENT_KEY: &str = "#comment";

/// The last response to a notification, with the permit of its bytes.
type LastResponse = (HttpResponse, BytePermit);

impl SubscriptionOrigin<'_> {
    /// Adds a status to the deployment of the commit that a query finds, or creates the deployment first. Returns `None` if
    /// none exists and the status is an end.
    pub(super) async fn deployment(
        &self,
        (path, query): (&str, &str),
        body: &Value,
        status: &Value,
        is_end: bool,
    ) -> Result<Option<LastResponse>, NotificationDelivery> {
        let commit = body["ref"].as_str().unwrap_or_default();
        let (response, bytes) = self.call("GET", &format!("{path}?{query}&sha={commit}&per_page=1"), None).await?;
        if !matches!(response.status, 200..=299) {
            return Ok(Some((response, bytes)));
        }
        let unreadable = |what: &str| NotificationDelivery::Failed(format!("{what} is not JSON"), None);
        let known: Vec<Value> =
            serde_json::from_slice(&response.body).map_err(|_| unreadable("the list of deployments"))?;
        drop((response, bytes));
        let own = known.first().and_then(|deployment| deployment["id"].as_u64());
        // GitHub ends those of earlier commits after a success only.
        if matches!(status["state"].as_str(), Some("failure" | "error" | "inactive")) {
            let (response, bytes) = self.call("GET", &format!("{path}?{query}&per_page=5"), None).await?;
            let listed: Vec<Value> = serde_json::from_slice(&response.body).unwrap_or_default();
            drop((response, bytes));
            let of_target = listed.iter().filter(|one| one["description"] == body["description"]);
            let ids = of_target.filter_map(|one| one["id"].as_u64());
            let earlier: Vec<u64> = ids.filter(|id| own.is_none_or(|own| *id < own)).collect();
            for id in earlier {
                drop(self.call("POST", &format!("{path}/{id}/statuses"), Some(&json!({"state": "inactive"}))).await?);
            }
        }
        let id = match own {
            Some(id) => id,
            None if is_end => return Ok(None),
            None => {
                let (response, bytes) = self.call("POST", path, Some(body)).await?;
                if response.status != 201 {
                    return Ok(Some((response, bytes)));
                }
                let created: Value =
                    serde_json::from_slice(&response.body).map_err(|_| unreadable("the deployment"))?;
                created["id"].as_u64().ok_or_else(|| unreadable("the ID of the deployment"))?
            }
        };
        Ok(Some(self.call("POST", &format!("{path}/{id}/statuses"), Some(status)).await?))
    }

    /// Changes the comment about a subject, or creates it.
    pub(super) async fn comment(
        &self,
        path: &str,
        edit: &str,
        (subject, text): (&str, &str),
    ) -> Result<LastResponse, NotificationDelivery> {
        let marks = comment_marks(self.env, subject);
        let mark = marks.first().map(String::as_str).unwrap_or_default();
        let body = json!({ "body": format!("{text}\n\n{mark}") });
        let (mut size, mut seen) = (LARGE_PAGE, 0);
        while seen < MAX_COMMENTS {
            let list = format!("{path}?per_page={size}&page={}", seen / size + 1);
            let (response, bytes) = match self.call("GET", &list, None).await {
                Err(CallError::TooLarge(_)) if size > SMALL_PAGE => {
                    size = SMALL_PAGE;
                    continue;
                }
                response => response?,
            };
            if !matches!(response.status, 200..=299) {
                return Ok((response, bytes));
            }
            let comments: Vec<Value> = serde_json::from_slice(&response.body)
                .map_err(|_| NotificationDelivery::Failed("the list of comments is not JSON".to_owned(), None))?;
            // A log or a quotation in another comment can contain the mark, but not at its end.
            let is_own = |comment: &&Value| {
                let text = comment["body"].as_str().unwrap_or_default().trim_end();
                marks.iter().any(|mark| text.ends_with(mark))
            };
            let own = comments.iter().find(is_own).and_then(|comment| comment["id"].as_u64());
            let count = comments.len();
            // The next request needs the permit.
            drop((comments, response, bytes));
            if let Some(id) = own {
                return Ok(self.call("PATCH", &format!("{edit}/{id}"), Some(&body)).await?);
            }
            if count < size {
                break;
            }
            seen += size;
        }
        Ok(self.call("POST", path, Some(&body)).await?)
    }
}

/// Returns the marks of the comment about a subject, the one of the present key first. People who can comment cannot
/// compute the mark before the comment exists, and another installation has another mark.
fn comment_marks(env: &Env, subject: &str) -> Vec<String> {
    let mark =
        |key: &str| format!("<!-- ebb:{} -->", id::short_digest(&[key, &env.settings.installation, subject], 26));
    env.settings.unit_keys.for_plugin(COMMENT_KEY).reveal().iter().map(|key| mark(key)).collect()
}
