//! A stand-in for the part of GitHub's REST API that subscriptions use. `github.yaml` has the schemas of its requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

#[derive(Clone, Debug, Default)]
pub struct GithubStandIn {
    /// The comments of all pull requests. Their IDs begin with 1.
    pub comments: Vec<String>,
    pub statuses: Vec<Value>,
    /// The deployments with their statuses. Their IDs begin with 1.
    pub deployments: Vec<(Value, Vec<Value>)>,
    /// The requests that the API rejects.
    pub wrong: Vec<String>,
}

impl GithubStandIn {
    /// Returns the status and the body of the response to a request below the origin, such as
    /// `/repos/acme/shop/statuses/SHA`.
    ///
    /// # Panics
    /// Panics if the schemas cannot be read.
    pub fn respond(&mut self, method: &str, path_and_query: &str, body: &Value) -> (u16, Value) {
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let number = |name: &str, default| query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default);
        let (size, page) = (number("per_page", 30_usize), number("page", 1_usize));
        let skipped = size * page.saturating_sub(1);
        let id = |text: &str| text.parse().unwrap_or(0_usize);
        match (method, path.trim_start_matches('/').split('/').skip(3).collect::<Vec<_>>().as_slice()) {
            ("POST", ["statuses", sha]) => self.checked("create-commit-status", body, |github| {
                let mut status = body.clone();
                status["sha"] = json!(sha);
                github.statuses.push(status);
                (201, json!({"id": github.statuses.len()}))
            }),
            ("GET", ["issues", _, "comments"]) => {
                let listed = (1..).zip(&self.comments).skip(skipped).take(size);
                (200, listed.map(|(id, body)| json!({"id": id, "body": body})).collect())
            }
            ("POST", ["issues", _, "comments"]) => self.checked("create-comment", body, |github| {
                github.comments.push(body["body"].as_str().unwrap_or_default().to_owned());
                (201, json!({"id": github.comments.len()}))
            }),
            ("PATCH", ["issues", "comments", of]) => self.checked("update-comment", body, |github| {
                let Some(comment) = github.comments.get_mut(id(of).wrapping_sub(1)) else { return (404, Value::Null) };
                body["body"].as_str().unwrap_or_default().clone_into(comment);
                (200, json!({"id": id(of)}))
            }),
            ("GET", ["deployments"]) => {
                let is_wanted = |(_, (one, _)): &(usize, &(Value, Vec<Value>))| {
                    let wanted = [("sha", "ref"), ("task", "task"), ("environment", "environment")];
                    wanted.iter().all(|(name, key)| query.get(*name).is_none_or(|value| one[*key] == **value))
                };
                let newest = (1..).zip(&self.deployments).collect::<Vec<_>>().into_iter().rev();
                let listed = newest.filter(is_wanted).skip(skipped).take(size);
                (200, listed.map(|(id, (one, _))| json!({"id": id, "description": one["description"]})).collect())
            }
            ("POST", ["deployments"]) => self.checked("create-deployment", body, |github| {
                github.deployments.push((body.clone(), Vec::new()));
                (201, json!({"id": github.deployments.len()}))
            }),
            ("GET", ["deployments", of, "statuses"]) => {
                let made = self.deployments.get(id(of).wrapping_sub(1));
                (200, made.iter().flat_map(|(_, statuses)| statuses.iter().rev()).take(size).cloned().collect())
            }
            ("POST", ["deployments", of, "statuses"]) => self.checked("create-deployment-status", body, |github| {
                let Some((_, statuses)) = github.deployments.get_mut(id(of).wrapping_sub(1)) else {
                    return (404, Value::Null);
                };
                statuses.push(body.clone());
                (201, json!({"id": statuses.len()}))
            }),
            _ => {
                self.wrong.push(format!("{method} {path_and_query}"));
                (404, json!({"message": "Not Found"}))
            }
        }
    }

    fn checked(
        &mut self,
        operation: &str,
        body: &Value,
        apply: impl FnOnce(&mut Self) -> (u16, Value),
    ) -> (u16, Value) {
        let schemas: BTreeMap<String, Value> = serde_saphyr::from_str(include_str!("github.yaml")).expect("valid YAML");
        let schema = jsonschema::validator_for(&schemas[operation]).expect("a valid schema");
        if let Err(problem) = schema.validate(body) {
            self.wrong.push(format!("{operation}: {problem}"));
            return (422, json!({"message": "Validation Failed"}));
        }
        apply(self)
    }
}
