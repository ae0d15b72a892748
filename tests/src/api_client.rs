//! A client of the API of a server, and the replies that it gets.

use ebb_protocol::api::{ProblemDetails, TargetDetail};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(Debug)]
pub struct ApiReply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl ApiReply {
    /// Sends a request, which must have a reply.
    pub async fn to(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self { status, headers, body: response.text().await.unwrap() }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn is(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }

    #[track_caller]
    pub fn leads_to(&self, location: &str) {
        assert_eq!((self.status, self.header("location")), (303, location), "{self:?}");
    }

    /// Returns the value of a hidden field of a page.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        let (_, rest) = self.body.split_once(&format!("name=\"{name}\" value=\"")).expect("the page has the field");
        rest.split('"').next().unwrap().to_owned()
    }

    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) -> ProblemDetails {
        assert_eq!(self.is(status).header("content-type"), "application/problem+json", "{self:?}");
        let problem: ProblemDetails = self.json();
        assert_eq!((problem.status, problem.code.as_str()), (status, code), "{self:?}");
        assert!(!problem.detail.is_empty(), "{self:?}");
        problem
    }
}

#[derive(Clone, Debug)]
pub struct ApiClient {
    pub http: Client,
    pub url: String,
    /// The header `authorization`, if the caller sends one.
    pub authorization: Option<String>,
}

impl ApiClient {
    pub fn new(http: &Client, url: &str, token: &str) -> Self {
        Self { http: http.clone(), url: url.to_owned(), authorization: Some(format!("Bearer {token}")) }
    }

    pub async fn request(&self, method: Method, path: &str, body: Option<Value>) -> ApiReply {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        ApiReply::to(request).await
    }

    pub async fn get(&self, path: &str) -> ApiReply {
        self.request(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> ApiReply {
        self.request(Method::POST, path, Some(body)).await
    }

    pub async fn publish(&self, document: &str) {
        self.post("/v1/plugins", json!({ "document": document })).await.is(201);
    }

    /// Stores a document of a kind such as `Source`.
    pub async fn put(&self, kind: &str, name: &str, document: &str) -> ApiReply {
        let path = format!("/v1/{}s/{name}", kind.to_lowercase());
        self.request(Method::PUT, &path, Some(json!({ "document": document }))).await
    }

    /// Returns a target, `KIND/NAME`, or `None` if it does not exist.
    pub async fn target(&self, target: &str) -> Option<TargetDetail> {
        let reply = self.get(&format!("/v1/targets/{target}")).await;
        (reply.status != 404).then(|| reply.is(200).json())
    }
}
