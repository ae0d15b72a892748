//! The requests of rows: to the API and to sources, lifecycle webhooks, callbacks, pages and forms.

use reqwest::RequestBuilder;

use super::{TableRow, completed};
use crate::harness::*;
use crate::lifecycle::documented::signature;

#[derive(Default)]
pub(super) struct TableCallers {
    pub(super) tokens: BTreeMap<String, String>,
    browsers: BTreeMap<String, Browser>,
}

impl TableCallers {
    /// Returns the token with a name or text, or that of the operator.
    fn token<'a>(&'a self, harness: &'a Harness, name: Option<&'a String>) -> &'a str {
        name.map_or(harness.stack().token(), |name| self.tokens.get(name).unwrap_or(name).as_str())
    }
}

impl TableRow {
    /// Signs in the browser of the row, unless it has signed in for an earlier one.
    pub(super) async fn sign_in(&self, harness: &Harness, callers: &mut TableCallers) {
        let name = self.browser.as_deref().unwrap_or_default();
        if (self.open.is_some() || self.form.is_some()) && !callers.browsers.contains_key(name) {
            let browser = match name {
                "anonymous" => Browser::new(harness.stack().url()),
                _ => Browser::signed_in(harness.stack().url(), callers.token(harness, self.browser.as_ref())).await,
            };
            callers.browsers.insert(name.to_owned(), browser);
        }
    }

    pub(super) fn request(&self, harness: &Harness, callers: &TableCallers) -> Option<RequestBuilder> {
        let (method, path) = self.send.as_ref()?.split_once(' ').unwrap();
        let request = harness.http.request(method.parse().unwrap(), harness.url(path));
        let key = self.key.iter().map(|key| ("idempotency-key", key));
        let headers = self.with.iter().map(|(name, value)| (name.as_str(), value)).chain(key);
        let with_headers = |request: RequestBuilder| {
            headers
                .filter(|(_, value)| !value.is_empty())
                .fold(request, |request, (name, value)| request.header(name, value))
        };
        if let Some(secret) = &self.signed {
            let secret = WebhookSecret::parse(secret).unwrap();
            let body = self.raw_body().unwrap_or_else(|| self.body.as_ref().unwrap().to_string().into_bytes());
            let time = Timestamp(now().0.saturating_add_signed(self.at * 1_000));
            let mut signed = SignedRequest::new(&secret, "m", time, body);
            signed.headers.retain(|(name, _)| !self.with.contains_key(*name));
            signed.body.extend(self.altered.bytes());
            return Some(with_headers(signed.post(&harness.http, &harness.url(path))));
        }
        let token = callers.token(harness, self.by.as_ref());
        let request = with_headers(if token.is_empty() { request } else { request.bearer_auth(token) });
        if let Some(raw) = self.raw_body() {
            return Some(request.body(raw));
        }
        let Some(body) = self.body.clone() else { return Some(request) };
        let Some([secret, delivery]) = &self.github else { return Some(request.json(&completed(body))) };
        let (content_type, body) = match body {
            Value::String(form) => ("application/x-www-form-urlencoded", form),
            body => ("application/json", body.to_string()),
        };
        let signature = signature(secret, body.as_bytes());
        let request = request.header("content-type", content_type).header("x-hub-signature-256", signature);
        Some(request.header("x-github-delivery", delivery).body(body))
    }

    /// Sends the request of the row, if it has one.
    pub(super) async fn answer(&self, harness: &Harness, callers: &TableCallers) -> Option<ApiReply> {
        if let Some(request) = self.request(harness, callers) {
            return Some(ApiReply::to(request).await);
        }
        let browser = || &callers.browsers[self.browser.as_deref().unwrap_or_default()];
        if let Some(path) = &self.open {
            return Some(browser().open(&harness.url(path), &self.with).await);
        }
        if let Some(path) = &self.form {
            return Some(browser().submit(path, self.origin.as_deref(), &self.fields).await);
        }
        if let Some(line) = &self.callback {
            let number = harness.receiver.count(line).max(1);
            let call = harness.receiver.call(line, number).await;
            let body = self.raw_body().unwrap_or_else(|| self.body.as_ref().unwrap().to_string().into_bytes());
            return Some(harness.callback_bytes(call.token(), body).await);
        }
        let event = self.event.as_ref()?;
        Some(self.lifecycle(harness, event).await)
    }

    fn raw_body(&self) -> Option<Vec<u8>> {
        let parts = self.raw.as_ref()?.iter().map(|(text, count)| match text.contains("NUMBER") {
            true => (0..*count).map(|at| text.replace("NUMBER", &at.to_string())).collect(),
            false => text.repeat(*count),
        });
        let text: String = parts.collect();
        Some(text.chars().map(|byte| u8::try_from(byte).unwrap()).collect())
    }

    async fn lifecycle(&self, harness: &Harness, event: &str) -> ApiReply {
        let (event_type, name) = event.split_once(' ').unwrap();
        let (event_type, event) = match event_type {
            "created" => (LifecycleType::Created, None),
            "updated" => (LifecycleType::Updated, None),
            "deleted" => (LifecycleType::Deleted, None),
            event => (LifecycleType::Event, Some(event.to_owned())),
        };
        let (kind, name) = name.split_once('/').unwrap_or(("sandbox", name));
        let document = self.body.clone().map(|mut body| {
            body["name"] = json!(name);
            completed(body)["document"].as_str().unwrap().to_owned()
        });
        let data = LifecycleData {
            kind: kind.to_owned(),
            generation: self.generation.unwrap_or(1),
            document,
            event,
            routing_key: self.routing_key.clone(),
            ..sandbox(name, self.uid.as_ref().unwrap_or(&format!("{name}-uid")), "none")
        };
        let Some(id) = &self.id else { return harness.lifecycle(event_type, &data).await };
        harness.cloud_event(id, event_type, &data).await
    }
}
