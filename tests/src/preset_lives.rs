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

/// The events of each preset.
const EVENTS: &str = include_str!("preset_lives.yaml");
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
    headers: Vec<(String, String)>,
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
        use SenderChange::{Changed, Deleted};
        if (change == Changed && !self.is_changed) || (change == Deleted && self.preset == "gitlab-deployments") {
            return None;
        }
        let delivery = format!("{change:?}-{minute}");
        let note = if change == Changed { CHANGED } else { FIRST };
        let text = |given: &str| match given {
            "MILLIS" => Value::from(1_767_225_600_000 + minute * 60_000),
            given => {
                let given = given.replace("MINUTE", &format!("{minute:02}")).replace("DELIVERY", &delivery);
                given.replace("NOTE", note).into()
            }
        };
        let events: Value = serde_saphyr::from_str(EVENTS).unwrap();
        let part = |name: &str| filled(&events[self.preset][name], change, &text).unwrap();
        let header = |(name, value): (&String, &Value)| (name.clone(), value.as_str().unwrap().to_owned());
        let headers = part("headers").as_object().into_iter().flatten().map(header).collect();
        let body = part("body");
        Some(SenderEvent { delivery, headers, body })
    }
}

/// Returns a value of [`EVENTS`] with its words and choices replaced, or `None` if the event does not have it.
fn filled(value: &Value, change: SenderChange, text: &impl Fn(&str) -> Value) -> Option<Value> {
    Some(match value {
        Value::String(given) => text(given),
        Value::Array(items) => items.iter().filter_map(|item| filled(item, change, text)).collect(),
        Value::Object(fields) => match fields.get("of").and_then(Value::as_array) {
            Some(choices) => {
                let chosen = choices.get(change as usize).unwrap_or(&choices[0]);
                return if chosen.is_null() { None } else { filled(chosen, change, text) };
            }
            None => {
                fields.iter().filter_map(|(name, field)| Some((name.clone(), filled(field, change, text)?))).collect()
            }
        },
        other => other.clone(),
    })
}

/// Returns the MAC of a body in hexadecimal digits.
pub fn hex_mac(algorithm: hmac::Algorithm, secret: &str, body: &[u8]) -> String {
    let mac = hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), body);
    mac.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
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
        let proof = proof.into_iter().map(|(name, value)| (name.to_owned(), value));
        for (name, value) in event.headers.iter().cloned().chain(proof) {
            request = request.header(name, value);
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
