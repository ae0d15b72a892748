//! The life of a target at each sender that has a preset. Its events have the fields and the proofs of the sender.
//!
//! The proofs are made without the code that verifies them.

use std::collections::BTreeMap;

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ebb_documents::presets::preset;
use ebb_protocol::api::{TargetDetail, TargetState};
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::platform::now;
use crate::wait::until;

/// The zeros by which GitLab reports a deletion.
const ZEROS: &str = "0000000000000000000000000000000000000000";
/// The value of the document that an update changes to [`CHANGED`].
pub const FIRST: &str = "one";
pub const CHANGED: &str = "two";

/// The proof of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderProof {
    Github,
    Gitea,
    Vercel,
    /// Standard Webhooks.
    Standard,
    /// Standard Webhooks with the headers of Svix.
    Svix,
    GitlabToken,
    E2b,
    Bearer,
    Url,
}

/// A change at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderChange {
    Created,
    Changed,
    Deleted,
    /// A change that does not concern targets.
    Other,
}

/// An event of a sender.
#[derive(Clone, Debug)]
pub struct SenderEvent {
    /// The ID of the delivery.
    delivery: String,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

/// The life of a target of a preset.
#[derive(Clone, Copy, Debug)]
pub struct PresetLife {
    pub preset: &'static str,
    /// `KIND/NAME`.
    pub target: &'static str,
    /// The expression whose value an update changes.
    pub note: &'static str,
    proof: SenderProof,
    /// The events have a time of the sender.
    is_timed: bool,
    /// The sender has an event that changes `note`.
    pub is_changed: bool,
}

const fn life(
    preset: &'static str,
    target: &'static str,
    proof: SenderProof,
    note: &'static str,
    (is_timed, is_changed): (bool, bool),
) -> PresetLife {
    PresetLife { preset, target, note, proof, is_timed, is_changed }
}

/// The lives of all presets.
pub const LIVES: [PresetLife; 16] = {
    use SenderProof::{Bearer, E2b, Gitea, Github, GitlabToken, Standard, Svix, Url, Vercel};
    const CLAUDE: &str = "sandbox/claude-sesn-5-d1d700989ee14a04";
    const VERCEL: &str = "sandbox/vercel-dpl-5-84b773f9d272ca9f";
    [
        life("argocd", "sandbox/argocd-shop-pr-7", Bearer, "body.project", (true, true)),
        life("cdevents", "sandbox/cdevents-pr7", Bearer, "body.subject.content.name", (true, true)),
        life("claude-sessions", CLAUDE, Standard, "body.data.workspace_id", (true, false)),
        life("coder", "workspace/coder-ann-web-872582a7d926e107", Url, "body.payload.labels.version", (false, false)),
        life("daytona", "sandbox/daytona-s5", Svix, "fetched.body.labels.note", (true, true)),
        life("e2b", "sandbox/e2b-i5", E2b, "body.event_data.sandbox_metadata.note", (true, true)),
        life("gitea", "sandbox/pr-7-3", Gitea, "body.pull_request.head.sha", (true, true)),
        life("github", "sandbox/pr-7-1", Github, "body.pull_request.head.sha", (true, true)),
        life("github-branches", "sandbox/branch-1-fix", Github, "body.description", (true, false)),
        life("github-deployments", "sandbox/deployment-42", Github, "body.deployment.description", (true, false)),
        life("github-labels", "sandbox/pr-8-1", Github, "body.pull_request.head.sha", (true, true)),
        life("gitlab", "sandbox/mr-7-5", Standard, "body.object_attributes.last_commit.id", (true, true)),
        life("gitlab-branches", "sandbox/branch-5-fix", GitlabToken, "body.checkout_sha", (false, true)),
        life("gitlab-deployments", "sandbox/environment-5-review-a-x1", Standard, "body.short_sha", (true, true)),
        life("qovery", "sandbox/qovery-e1", Url, "body.payload.id", (true, true)),
        life("vercel", VERCEL, Vercel, "body.payload.deployment.meta.sha", (true, true)),
    ]
};

/// Returns one life of each kind: a token in a header, a secret in the URL without updates, and a signed body.
pub fn samples() -> impl Iterator<Item = PresetLife> {
    LIVES.into_iter().filter(|life| ["argocd", "coder", "github"].contains(&life.preset))
}

impl SenderProof {
    /// Returns the secret of a name, of the right or of another sender.
    fn secret(self, name: &str, is_right: bool) -> String {
        let owner = if is_right { name } else { "another-sender" };
        match self {
            Self::Standard | Self::Svix => format!("whsec_{}", STANDARD.encode(format!("{owner:-^32}"))),
            _ => format!("secret-of-{owner}"),
        }
    }

    /// Returns the headers that prove the sender of a body.
    fn headers(self, secret: &str, delivery: &str, body: &[u8]) -> Vec<(&'static str, String)> {
        let hex = |algorithm| hex_mac(algorithm, secret, body);
        let id = delivery.to_owned();
        match self {
            Self::Github => {
                vec![("x-github-delivery", id), ("x-hub-signature-256", format!("sha256={}", hex(hmac::HMAC_SHA256)))]
            }
            Self::Gitea => vec![("x-gitea-delivery", id), ("x-gitea-signature", hex(hmac::HMAC_SHA256))],
            Self::Vercel => vec![("x-vercel-signature", hex(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY))],
            Self::Standard | Self::Svix => {
                let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
                let time = (now().0 / 1000).to_string();
                let signed = [format!("{delivery}.{time}.").as_bytes(), body].concat();
                let signature =
                    format!("v1,{}", STANDARD.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), &signed)));
                match self {
                    Self::Svix => vec![("svix-id", id), ("svix-timestamp", time), ("svix-signature", signature)],
                    _ => vec![("webhook-id", id), ("webhook-timestamp", time), ("webhook-signature", signature)],
                }
            }
            Self::GitlabToken => vec![("idempotency-key", id), ("x-gitlab-token", secret.to_owned())],
            Self::E2b => {
                let hash = digest::digest(&digest::SHA256, &[secret.as_bytes(), body].concat());
                vec![("e2b-signature", URL_SAFE_NO_PAD.encode(hash)), ("e2b-signature-version", "v1".to_owned())]
            }
            Self::Bearer => vec![("authorization", format!("Bearer {secret}"))],
            Self::Url => Vec::new(),
        }
    }

    fn covers_the_body(self) -> bool {
        !matches!(self, Self::GitlabToken | Self::Bearer | Self::Url)
    }
}

/// Returns the secrets of all presets, by name.
pub fn secrets() -> Value {
    let mut secrets = BTreeMap::<String, Vec<String>>::new();
    for life in LIVES {
        let name = life.secret_name();
        let values = secrets.entry(name.clone()).or_default();
        let secret = life.proof.secret(&name, true);
        if !values.contains(&secret) {
            values.push(secret);
        }
    }
    secrets.into_iter().map(|(name, values)| (name, values.join(" "))).collect()
}

impl PresetLife {
    fn secret_name(&self) -> String {
        let verify = preset(self.preset).and_then(|preset| preset.document().verify);
        verify.unwrap().scheme.secret().value.clone()
    }

    /// Returns the name of the target, without its kind.
    pub fn name(&self) -> &'static str {
        self.target.split_once('/').map_or(self.target, |(_, name)| name)
    }

    /// Returns the source that `ebb source new` prints for the preset, with `note` in a label and these resources.
    pub fn source(&self, resources: &str) -> String {
        let starter = preset(self.preset).unwrap().starter(self.preset);
        let labels = format!("  labels: {{note: \"${{{}}}\"}}\n  resources: {resources}\n", self.note);
        let source = starter.replace("  resources: {}\n", &labels);
        assert_ne!(source, starter);
        source
    }

    /// Returns the event of a change at a minute. `None` means that the sender has none.
    fn event(&self, change: SenderChange, minute: u64) -> Option<SenderEvent> {
        use SenderChange::{Changed, Created, Deleted, Other};
        if change == Changed && !self.is_changed {
            return None;
        }
        let delivery = format!("{change:?}-{minute}");
        let at = format!("2026-01-01T00:{minute:02}:00Z");
        let note = if change == Changed { CHANGED } else { FIRST };
        let of = |created: &'static str, changed: &'static str, deleted: &'static str, other: &'static str| match change
        {
            Created => created,
            Changed => changed,
            Deleted => deleted,
            Other => other,
        };
        let shop = json!({"id": 1, "name": "shop", "full_name": "acme/shop", "pushed_at": at});
        let project = json!({"id": 5, "path_with_namespace": "acme/shop", "default_branch": "main"});
        let pull_request = of("pull_request", "pull_request", "pull_request", "issues");
        let mut headers = Vec::new();
        let body = match self.preset {
            "argocd" => json!({
                "event": of("created", "synced", "deleted", "degraded"), "time": at, "uid": "u1", "application": "shop-pr-7",
                "namespace": "argocd", "project": note,
            }),
            "cdevents" => {
                let event =
                    of("environment.created", "environment.modified", "environment.deleted", "service.deployed");
                json!({
                    "context": {
                        "specversion": "0.5.0", "id": delivery, "source": "/dev/shop", "timestamp": at,
                        "type": format!("dev.cdevents.{event}.0.3.0"),
                    },
                    "subject": {"id": "pr7", "source": "/dev/shop", "content": {"name": note}},
                })
            }
            "claude-sessions" => {
                let event = of("session.created", "", "session.deleted", "session.status_idled");
                let data = json!({"type": event, "id": "sesn_5", "organization_id": "o1", "workspace_id": note});
                json!({"type": "event", "id": delivery, "created_at": at, "data": data})
            }
            "coder" => {
                headers.push(("x-message-id", delivery.clone()));
                let labels = match change {
                    Deleted => {
                        json!({"name": "web", "reason": "autodeleted due to dormancy", "initiator": "autobuild"})
                    }
                    _ => json!({
                        "workspace": "web", "template": "go", "version": note, "workspace_owner_username": "ann",
                    }),
                };
                let name = of("Workspace Created", "", "Workspace Deleted", "Workspace Marked as Dormant");
                let payload =
                    json!({"_version": "1.2", "notification_name": name, "user_username": "ann", "labels": labels});
                json!({"_version": "1.1", "msg_id": delivery, "title": "", "body": "", "payload": payload})
            }
            "daytona" => match change {
                Created => json!({"event": "sandbox.created", "timestamp": at, "id": "s5", "organizationId": "o1"}),
                _ => json!({
                    "event": "sandbox.state.updated", "timestamp": at, "id": "s5", "organizationId": "o1",
                    "oldState": "creating", "newState": of("", "started", "destroyed", "archived"), "updatedAt": at,
                }),
            },
            "e2b" => json!({
                "id": delivery, "version": "v2", "timestamp": at, "event_data": {"sandbox_metadata": {"note": note}},
                "type": format!("sandbox.lifecycle.{}", of("created", "updated", "killed", "paused")),
                "sandbox_id": "i5", "sandbox_template_id": "t1",
            }),
            "gitea" => {
                headers.push(("x-gitea-event", of("pull_request", "pull_request", "pull_request", "push").to_owned()));
                let request = json!({"updated_at": at, "head": {"repo_id": 3, "sha": note}, "base": {"repo_id": 3}});
                let mut body = json!({
                    "action": of("opened", "synchronized", "closed", ""), "number": 7,
                    "repository": {"id": 3, "full_name": "acme/shop"}, "pull_request": request,
                });
                without(&mut body, "pull_request", change == Other);
                body
            }
            "github" => {
                headers.push(("x-github-event", pull_request.to_owned()));
                let request = json!({"draft": false, "updated_at": at, "head": {"sha": note, "repo": {"id": 1}}});
                let action = of("opened", "synchronize", "closed", "opened");
                let mut body = json!({"action": action, "number": 7, "repository": shop, "pull_request": request});
                without(&mut body, "pull_request", change == Other);
                body
            }
            "github-labels" => {
                headers.push(("x-github-event", pull_request.to_owned()));
                let labels = if change == Deleted { json!([]) } else { json!([{"name": "preview"}]) };
                let request = json!({
                    "draft": false, "state": "open", "labels": labels, "updated_at": at,
                    "head": {"sha": note, "repo": {"id": 1}},
                });
                let action = of("labeled", "synchronize", "unlabeled", "labeled");
                let mut body = json!({"action": action, "number": 8, "repository": shop, "pull_request": request});
                without(&mut body, "pull_request", change == Other);
                body
            }
            "github-branches" => {
                headers.push(("x-github-event", of("create", "", "delete", "create").to_owned()));
                let ref_type = of("branch", "", "branch", "tag");
                let mut body = json!({
                    "ref": "fix", "ref_type": ref_type, "master_branch": "main", "description": note, "pusher_type": "user",
                    "repository": shop,
                });
                without(&mut body, "master_branch", change == Deleted);
                body
            }
            "github-deployments" => {
                let event = of("deployment", "", "deployment_status", "deployment_status");
                headers.push(("x-github-event", event.to_owned()));
                let deployment =
                    json!({"id": 42, "environment": "pr-7", "sha": "abc123", "description": note, "updated_at": at});
                let mut body = json!({"action": "created", "deployment": deployment, "repository": shop});
                if change != Created {
                    body["deployment_status"] = json!({"state": of("", "", "inactive", "pending"), "updated_at": at});
                }
                body
            }
            "gitlab" => {
                let mut attributes = json!({
                    "iid": 7, "action": of("open", "update", "close", "open"), "source_project_id": 5,
                    "target_project_id": 5, "updated_at": format!("2026-01-01 00:{minute:02}:00 UTC"),
                    "last_commit": {"id": note},
                });
                if change == Changed {
                    attributes["oldrev"] = json!(FIRST);
                }
                let kind = of("merge_request", "merge_request", "merge_request", "note");
                json!({"object_kind": kind, "project": project, "object_attributes": attributes})
            }
            "gitlab-branches" => json!({
                "object_kind": of("push", "push", "push", "tag_push"), "before": ZEROS, "checkout_sha": note,
                "ref": of("refs/heads/fix", "refs/heads/fix", "refs/heads/fix", "refs/tags/v1"),
                "after": of("1f", "2f", ZEROS, "1f"), "project": project,
            }),
            "gitlab-deployments" if change == Deleted => return None,
            "gitlab-deployments" => json!({
                "object_kind": "deployment", "status": of("running", "success", "", "failed"), "short_sha": note,
                "status_changed_at": format!("2026-01-01 02:{minute:02}:00 +0200"), "environment": "review/a",
                "environment_slug": "review-a-x1", "environment_tier": "development", "project": project,
            }),
            "qovery" => {
                let event =
                    of("DEPLOYMENT_STARTED", "DEPLOYMENT_SUCCESSFUL", "DEPLOYMENT_SUCCESSFUL", "DEPLOYMENT_FAILURE");
                let desired = of("DEPLOYED", "DEPLOYED", "DELETED", "DEPLOYED");
                json!({
                    "created_at": at, "event_type": event, "payload_type": "DEPLOYMENT", "payload_id": "p1",
                    "payload": {
                        "id": note, "desired_status": desired, "project": {"id": "p2"}, "environment": {"id": "e1"},
                    },
                })
            }
            "vercel" => {
                let event = of("created", "succeeded", "cleanup", "promoted");
                let deployment =
                    json!({"id": "dpl_5", "name": "shop", "url": "shop-5.vercel.app", "meta": {"sha": note}});
                json!({
                    "id": delivery, "type": format!("deployment.{event}"), "createdAt": 1_767_225_600_000 + minute * 60_000,
                    "region": null,
                    "payload": {"deployment": deployment, "target": null, "project": {"id": "prj_1"}},
                })
            }
            other => panic!("no events of {other}"),
        };
        Some(SenderEvent { delivery, headers, body })
    }
}

/// Returns the MAC of a body in hexadecimal digits.
pub fn hex_mac(algorithm: hmac::Algorithm, secret: &str, body: &[u8]) -> String {
    let mac = hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), body);
    mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes a key from an object.
fn without(body: &mut Value, key: &str, is_removed: bool) {
    if is_removed {
        body.as_object_mut().unwrap().remove(key);
    }
}

/// The forgery of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderForgery {
    None,
    OtherSecret,
    /// The body was changed after it was signed.
    AlteredBody,
}

/// A deployment in which targets live.
#[derive(Clone, Debug)]
pub struct LifeServer {
    pub http: Client,
    pub url: String,
    /// The token of an operator.
    pub token: String,
}

impl LifeServer {
    /// Publishes a plugin.
    pub async fn publish(&self, document: &str) {
        let (status, body) = self.operator(Method::POST, "/v1/plugins", Some(json!({"document": document}))).await;
        assert_eq!(status, 201, "{body}");
    }

    async fn operator(&self, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(&body);
        }
        answer(request).await
    }

    /// Returns a target, or `None` if it does not exist.
    pub async fn target(&self, target: &str) -> Option<TargetDetail> {
        let (status, body) = self.operator(Method::GET, &format!("/v1/targets/{target}"), None).await;
        (status != 404).then(|| serde_json::from_value(body).unwrap())
    }

    async fn send(&self, life: &PresetLife, event: &SenderEvent, forgery: SenderForgery) -> (u16, Value) {
        let secret = life.proof.secret(&life.secret_name(), forgery != SenderForgery::OtherSecret);
        let mut body = event.body.to_string().into_bytes();
        let proof = life.proof.headers(&secret, &event.delivery, &body);
        if forgery == SenderForgery::AlteredBody {
            body.push(b' ');
        }
        let query = if life.proof == SenderProof::Url { format!("?secret={secret}") } else { String::new() };
        let mut request = self.http.post(format!("{}/v1/sources/{}{query}", self.url, life.preset));
        for (name, value) in event.headers.iter().chain(&proof) {
            request = request.header(*name, value);
        }
        answer(request.header("content-type", "application/json").body(body)).await
    }
}

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

impl PresetLife {
    /// Stores a source, sends all events of a target's life, and checks the effect of each. Returns the steps.
    pub async fn live(&self, server: &LifeServer, source: &str) -> Vec<&'static str> {
        use SenderChange::{Changed, Created, Deleted, Other};
        use SenderForgery::{AlteredBody, None as Honest, OtherSecret};
        let (path, put) = (format!("/v1/sources/{}", self.preset), json!({"document": source}));
        let (status, body) = server.operator(Method::PUT, &path, Some(put)).await;
        assert_eq!(status, 200, "{}: {body}", self.preset);
        let ready = Some(TargetState::Ready);
        let timed = |change, minute| self.event(change, minute).filter(|_| self.is_timed);
        let late = if self.is_changed { Changed } else { Created };
        let sealed = |event: Option<SenderEvent>| event.filter(|_| self.proof.covers_the_body());
        let steps = [
            ("forged creation", self.event(Created, 1), OtherSecret, 401, "invalid-signature", None),
            ("altered creation", sealed(self.event(Created, 1)), AlteredBody, 401, "invalid-signature", None),
            ("unknown event", self.event(Other, 1), Honest, 200, "ignored", None),
            ("creation", self.event(Created, 1), Honest, 202, "starting", ready),
            ("redelivery", self.event(Created, 1), Honest, 200, "repeated", ready),
            ("update", self.event(Changed, 2), Honest, 202, "updating", ready),
            ("older event", timed(Created, 0), Honest, 200, "outdated", ready),
            ("unknown event of a living target", self.event(Other, 3), Honest, 200, "ignored", ready),
            ("forged deletion", self.event(Deleted, 4), OtherSecret, 401, "invalid-signature", ready),
            ("deletion", self.event(Deleted, 4), Honest, 202, "stopping", Some(TargetState::Gone)),
            ("redelivery of the deletion", self.event(Deleted, 4), Honest, 200, "repeated", Some(TargetState::Gone)),
        ];
        let mut taken = Vec::new();
        for (step, event, forgery, status, result, state) in steps {
            let Some(event) = event else { continue };
            self.step(server, (step, &event, forgery), (status, result), state).await;
            taken.push(step);
        }
        if self.event(Deleted, 4).is_none() {
            let (status, body) = server.operator(Method::DELETE, &format!("/v1/targets/{}", self.target), None).await;
            assert_eq!(status, 202, "{}: {body}", self.preset);
            self.reaches(server, TargetState::Gone).await;
        } else if let Some(event) = timed(late, 3) {
            let gone = Some(TargetState::Gone);
            self.step(server, ("event after the end", &event, Honest), (200, "outdated"), gone).await;
        }
        taken
    }

    async fn step(
        &self,
        server: &LifeServer,
        (step, event, forgery): (&str, &SenderEvent, SenderForgery),
        expected: (u16, &str),
        state: Option<TargetState>,
    ) {
        let place = format!("{step} of {}", self.preset);
        let before = server.target(self.target).await;
        let (status, body) = server.send(self, event, forgery).await;
        let result = body["result"].as_str().or(body["code"].as_str()).unwrap_or_default();
        assert_eq!((status, result), expected, "{place}: {body}");
        assert!(body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{place}: {body}");
        let Some(state) = state else {
            assert_eq!(server.target(self.target).await, None, "{place}");
            return;
        };
        if status == 202 {
            self.reaches(server, state).await;
            return;
        }
        let after = server.target(self.target).await;
        let shown = |target: &Option<TargetDetail>| {
            target.as_ref().map(|it| (it.info.uid.clone(), it.info.generation, it.info.phase, it.decided_by.clone()))
        };
        assert_eq!(shown(&before), shown(&after), "{place}");
        assert_eq!(after.map(|target| target.info.phase), Some(state), "{place}");
    }

    async fn reaches(&self, server: &LifeServer, state: TargetState) {
        let reached = async || server.target(self.target).await.filter(|target| target.info.phase == state).map(drop);
        until(&format!("{} of {} to be {state:?}", self.target, self.preset), reached).await;
    }
}
