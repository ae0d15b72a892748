//! Receivers at GitHub that take more than one request: comments and deployments.

use ebb_egress::{BytePermit, CallError, HttpResponse};
use ebb_protocol::id;
use serde_json::{Value, json};

use super::receiver::{NotificationDelivery, SubscriptionOrigin, verdict};
use crate::Env;

/// Comments that are searched for the one of a target, and those of a page. A large page is read in small ones.
const MAX_COMMENTS: usize = 300;
const LARGE_PAGE: usize = 100;
const SMALL_PAGE: usize = 10;
/// The last deployments of a target that are looked at. Each takes up to two requests.
const MAX_DEPLOYMENTS: usize = 5;
/// Derives the key of the marks in comments. It is not the name of a plugin.
const COMMENT_KEY: &str = "#comment";

/// The last response to a notification, with the permit of its bytes.
type LastResponse = (HttpResponse, BytePermit);

impl SubscriptionOrigin<'_> {
    /// Adds a status to the deployment of the commit that a query finds, or creates the deployment first. Ends the last ones
    /// of other commits, unless the deployment has only begun. Returns `None` if the status is an end and none is active.
    pub(super) async fn deployment(
        &self,
        (path, query): (&str, &str),
        body: &Value,
        status: &Value,
        is_end: bool,
    ) -> Result<Option<LastResponse>, NotificationDelivery> {
        let commit = body["ref"].as_str().unwrap_or_default();
        let known = self.list(&format!("{path}?{query}&sha={commit}&per_page=1")).await?;
        let own = known.first().and_then(|deployment| deployment["id"].as_u64());
        if status["state"] != "in_progress" {
            let listed = self.list(&format!("{path}?{query}&per_page={MAX_DEPLOYMENTS}")).await?;
            let ids: Vec<u64> = listed.iter().filter_map(|one| one["id"].as_u64()).collect();
            for id in ids.into_iter().filter(|id| Some(*id) != own) {
                if !self.is_inactive(path, id).await? {
                    let end = json!({"state": "inactive", "auto_inactive": false});
                    drop(self.call("POST", &format!("{path}/{id}/statuses"), Some(&end)).await?);
                }
            }
        }
        if let (true, Some(id)) = (is_end, own)
            && self.is_inactive(path, id).await?
        {
            return Ok(None);
        }
        let id = match own {
            Some(id) => id,
            None if is_end => return Ok(None),
            None => {
                let (response, bytes) = self.call("POST", path, Some(body)).await?;
                if response.status != 201 {
                    return Ok(Some((response, bytes)));
                }
                let created: Option<Value> = serde_json::from_slice(&response.body).ok();
                let unreadable = || NotificationDelivery::Failed("the deployment has no ID".to_owned(), None);
                created.and_then(|created| created["id"].as_u64()).ok_or_else(unreadable)?
            }
        };
        Ok(Some(self.call("POST", &format!("{path}/{id}/statuses"), Some(status)).await?))
    }

    /// Returns true if the last status of a deployment is the end.
    async fn is_inactive(&self, path: &str, id: u64) -> Result<bool, NotificationDelivery> {
        let last = self.list(&format!("{path}/{id}/statuses?per_page=1")).await?;
        Ok(last.first().is_some_and(|last| last["state"] == "inactive"))
    }

    /// Returns a list of few entries.
    async fn list(&self, path: &str) -> Result<Vec<Value>, NotificationDelivery> {
        let (response, _bytes) = self.call("GET", path, None).await?;
        match response.status {
            200..=299 => serde_json::from_slice(&response.body)
                .map_err(|_| NotificationDelivery::Failed("the list of deployments is not JSON".to_owned(), None)),
            _ => Err(verdict(&response, self.env.now())),
        }
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
