//! A browser at the console.

use std::collections::BTreeMap;

use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, header};
use serde_json::{Value, json};
use url::form_urlencoded;

use crate::api_client::ApiReply;

/// A browser that follows no redirect.
pub struct Browser {
    pub http: Client,
    pub base: String,
    pub cookie: String,
}

impl Browser {
    pub fn new(base: &str) -> Self {
        let http = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
        Self { http, base: base.to_owned(), cookie: String::new() }
    }

    pub async fn signed_in(base: &str, token: &str) -> Self {
        let mut browser = Self::new(base);
        let origin = browser.base.clone();
        let reply = browser.post("/console/sign-in", Some(&origin), &[("token", token)]).await;
        reply.leads_to("/console");
        let cookie = reply.header("set-cookie");
        for attribute in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age="] {
            assert!(cookie.contains(attribute), "{cookie}");
        }
        browser.cookie = cookie.split(';').next().unwrap().to_owned();
        browser
    }

    async fn send(&self, request: RequestBuilder) -> ApiReply {
        ApiReply::to(request.header(header::COOKIE, &self.cookie)).await
    }

    /// Requests a page, also of another server, with further headers.
    pub async fn open(&self, url: &str, headers: &BTreeMap<String, String>) -> ApiReply {
        let request = self.http.get(url);
        self.send(headers.iter().fold(request, |request, (name, value)| request.header(name, value))).await
    }

    pub async fn get(&self, path: &str) -> ApiReply {
        self.send(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Requests a page with an entity tag.
    pub async fn again(&self, path: &str, tag: &str) -> ApiReply {
        self.send(self.http.get(format!("{}{path}", self.base)).header(header::IF_NONE_MATCH, tag)).await
    }

    pub async fn post(&self, path: &str, origin: Option<&str>, fields: &[(&str, &str)]) -> ApiReply {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        let mut request = self.http.post(format!("{}{path}", self.base)).body(body);
        request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        self.send(request).await
    }

    /// Sends a form with the token of the session, unless its fields have another one. A field without a value is left out,
    /// as is an empty origin.
    pub async fn submit(&self, path: &str, origin: Option<&str>, fields: &[(String, Option<String>)]) -> ApiReply {
        let mut sent = Vec::new();
        if !fields.iter().any(|(name, _)| name == "form") {
            sent.push(("form", self.get("/console").await.field("form")));
        }
        sent.extend(fields.iter().filter_map(|(name, value)| Some((name.as_str(), value.clone()?))));
        let sent: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.post(path, origin.or(Some(&self.base)).filter(|origin| !origin.is_empty()), &sent).await
    }

    /// Approves a login of the command line. Returns the request that exchanges its code.
    pub async fn approve_login(&self) -> Value {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let challenge = ebb_protocol::code_challenge(verifier);
        let fields = ["challenge", "state"].map(|name| (name.to_owned(), Some(challenge.clone())));
        let code = self.submit("/console/login", None, &fields).await.is(200).field("code");
        json!({"code": code, "verifier": verifier})
    }
}
