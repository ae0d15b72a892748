//! Receivers at GitHub that take more than one request: comments and deployments.

use ebb_protocol::id;
use serde_json::{Value, json};

use super::receiver::{LastResponse, NotificationDelivery, SubscriptionOrigin, verdict};
use crate::Env;

/// Comments that are searched for the one of a target, and those of a page. A large page is read in small ones.
const MAX_COMMENTS: usize = 300;
const LARGE_PAGE: usize = 100;
const SMALL_PAGE: usize = 10;
/// The last deployments of a target that are looked at. Each takes up to two requests.
const MAX_DEPLOYMENTS: usize = 5;
/// Derives the key of the marks in comments. It is not the name of a plugin.
const COMMENT_KEY: &str = "#comment";

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
        let ids = |all: &[Value]| all.iter().filter_map(|one| one["id"].as_u64()).collect::<Vec<u64>>();
        let own = self.list(&format!("{path}?{query}&sha={commit}&per_page=1"), ids).await?.first().copied();
        if status["state"] != "in_progress" {
            let listed = self.list(&format!("{path}?{query}&per_page={MAX_DEPLOYMENTS}"), ids).await?;
            for id in listed.into_iter().filter(|id| Some(*id) != own) {
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
        let is_end = |all: &[Value]| all.first().is_some_and(|last| last["state"] == "inactive");
        self.list(&format!("{path}/{id}/statuses?per_page=1"), is_end).await
    }

    /// Returns what `read` takes from a list. The next request needs the permit of its bytes.
    async fn list<T>(&self, path: &str, read: impl FnOnce(&[Value]) -> T) -> Result<T, NotificationDelivery> {
        let (response, _bytes) = self.call("GET", path, None).await?;
        match response.status {
            200..=299 => serde_json::from_slice::<Vec<Value>>(&response.body)
                .map(|all| read(&all))
                .map_err(|_| NotificationDelivery::Failed("the list at GitHub is not JSON".to_owned(), None)),
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
        // A log or a quotation in another comment can contain the mark, but not at its end.
        let is_own = |comment: &&Value| {
            let text = comment["body"].as_str().unwrap_or_default().trim_end();
            marks.iter().any(|mark| text.ends_with(mark))
        };
        let read = |all: &[Value]| (all.iter().find(is_own).and_then(|comment| comment["id"].as_u64()), all.len());
        let (mut size, mut seen) = (LARGE_PAGE, 0);
        while seen < MAX_COMMENTS {
            let list = format!("{path}?per_page={size}&page={}", seen / size + 1);
            let (own, count) = match self.list(&list, read).await {
                // The page may be too large.
                Err(NotificationDelivery::Failed(_, None)) if size > SMALL_PAGE => {
                    size = SMALL_PAGE;
                    continue;
                }
                found => found?,
            };
            if let Some(id) = own {
                return self.call("PATCH", &format!("{edit}/{id}"), Some(&body)).await;
            }
            if count < size {
                break;
            }
            seen += size;
        }
        self.call("POST", path, Some(&body)).await
    }
}

/// Returns the marks of the comment about a subject, the one of the present key first. People who can comment cannot
/// compute the mark before the comment exists, and another installation has another mark.
fn comment_marks(env: &Env, subject: &str) -> Vec<String> {
    let mark =
        |key: &str| format!("<!-- ebb:{} -->", id::short_digest(&[key, &env.settings.installation, subject], 26));
    env.settings.unit_keys.for_plugin(COMMENT_KEY).reveal().iter().map(|key| mark(key)).collect()
}
