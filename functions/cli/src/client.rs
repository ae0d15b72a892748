//! A client of the server's HTTP API.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_api::mcp::ApiTransport;
use ebb_documents::template::is_loopback;
use ebb_protocol::sign::{self, MessageId, SecretError, WebhookSecret};
use ebb_protocol::{
    ApplyTarget, CallerInfo, ChangeList, DocumentBody, ErrorCode, HistoryPage, LifecycleData, LifecycleResponse,
    LifecycleType, PlanPreview, PluginDetail, PluginInfo, ProblemDetails, RelayOutage, RunDetail, SourceResponse,
    TargetDetail, TargetDiagnosis, TargetInfo, TargetPage, TargetReceipt, TargetSelector, Timestamp, UnitRendering,
    cloudevents,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use crate::silence::repeated;
use crate::{AddressOrigin, CliError, Result, ServerAccess, ServerArgs, TargetRef, fresh_uid, logins, refused, timing};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The response header with the number of the attempt that wrote the log.
const ATTEMPT: &str = "ebb-attempt";
/// The response header with the size of a log, which lines about its attempt follow.
const LOG_BYTES: &str = "ebb-log-bytes";
/// The query parameter with the token of the next page.
const NEXT_TOKEN: &str = "nextToken";
/// The beginning of a warning about a target that is missing in a list.
pub(crate) const UNREAD: &str = "cannot read a target";
/// The CloudEvents `source` of lifecycle webhooks.
const SOURCE: &str = "ebb-cli";

/// The end of a log, and what is known of its attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogTail {
    pub(crate) attempt: Option<u32>,
    pub(crate) log: String,
    /// Lines that are not from the log: what the attempt waits for, and the age of a late heartbeat.
    pub(crate) state: String,
}

impl LogTail {
    /// Divides a response. Without a valid size, all of it is the log.
    fn new(attempt: Option<u32>, text: &str, size: Option<usize>) -> Self {
        let (log, state) = size.and_then(|size| text.split_at_checked(size)).unwrap_or((text, ""));
        Self { attempt, log: log.to_owned(), state: state.trim_start_matches('\n').to_owned() }
    }

    pub(crate) fn text(self) -> String {
        let separator =
            if self.log.is_empty() || self.log.ends_with('\n') || self.state.is_empty() { "" } else { "\n" };
        [self.log.as_str(), separator, self.state.as_str()].concat()
    }
}

#[derive(Clone)]
pub(crate) struct ApiClient {
    http: reqwest::Client,
    /// True after a response, or a request that may have reached the server.
    has_server: Arc<AtomicBool>,
    pub(crate) server: ServerAccess,
}

pub(crate) fn connect(server: &ServerArgs) -> Result<ApiClient> {
    ApiClient::new(server.find()?)
}

/// Returns true if only this machine reaches the host of a URL.
pub(crate) fn is_local(url: &Url) -> bool {
    is_loopback(url) || matches!(url.host_str(), Some("0.0.0.0" | "[::]"))
}

impl ApiClient {
    pub(crate) fn new(server: ServerAccess) -> Result<Self> {
        let http = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).connect_timeout(CONNECT_TIMEOUT);
        // The API redirects nowhere. A redirect would lead the code of a sign-in and documents elsewhere.
        let mut http = http.redirect(Policy::none());
        if is_local(&server.url) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|e| CliError::broken("cannot create an HTTP client").with_causes(&e))?;
        Ok(Self { http, has_server: Arc::default(), server })
    }

    /// Returns true if the server existed in this command. Otherwise the address may be wrong.
    pub(crate) fn has_server(&self) -> bool {
        self.has_server.load(Ordering::Relaxed)
    }

    pub(crate) async fn fetch<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T> {
        self.read(self.request(Method::GET, path)).await
    }

    /// Returns the data of a path of the API, or `None` if it does not exist.
    pub(crate) async fn find<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>> {
        found(self.fetch(path).await)
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T> {
        self.read(self.request(Method::POST, path).json(body)).await
    }

    /// Returns the versions of a plugin, highest first, or `None` if it was never published.
    pub(crate) async fn versions(&self, name: &str) -> Result<Option<Vec<PluginInfo>>> {
        found(self.list(&["plugins", name], "plugins").await)
    }

    /// Returns a version of a plugin. `latest` selects the highest one.
    pub(crate) async fn plugin(&self, name: &str, version: &str) -> Result<Option<PluginDetail>> {
        self.find(&["plugins", name, "versions", version]).await
    }

    /// Publishes the plugin in `document`. The status is 200 if the same document was published before, and 201
    /// otherwise.
    pub(crate) async fn publish(&self, document: &str) -> Result<(StatusCode, PluginInfo)> {
        let body = DocumentBody { document: document.to_owned() };
        let response = self.send(self.request(Method::POST, &["plugins"]).json(&body)).await?;
        Ok((response.status(), self.parse(response).await?))
    }

    /// Returns all items of a collection: `plugins`, `sources`, `connections`, `subscriptions`, `tokens` or `clusters`.
    pub(crate) async fn all<T: DeserializeOwned>(&self, collection: &str) -> Result<Vec<T>> {
        self.list(&[collection], collection).await
    }

    async fn list<T: DeserializeOwned>(&self, path: &[&str], member: &str) -> Result<Vec<T>> {
        let mut body: serde_json::Map<_, _> = self.fetch(path).await?;
        serde_json::from_value(body.remove(member).unwrap_or_default())
            .map_err(|error| unexpected(StatusCode::OK, &format!("`{member}` does not match the API: {error}")))
    }

    /// Creates or replaces what a path of the API names, with these options.
    pub(crate) async fn put<T: DeserializeOwned>(&self, path: &[&str], body: &Value, options: &[&str]) -> Result<T> {
        let options: Vec<_> = options.iter().map(|option| (*option, Some("true"))).collect();
        self.read(self.query(Method::PUT, path, &options).json(body)).await
    }

    /// Deletes what a path of the API names, with these options. Returns `None` if it does not exist.
    pub(crate) async fn delete(&self, path: &[&str], options: &[&str]) -> Result<Option<()>> {
        let options: Vec<_> = options.iter().map(|option| (*option, Some("true"))).collect();
        found(self.send(self.query(Method::DELETE, path, &options)).await.map(drop))
    }

    /// Posts an event of a source. Headers and `url_secret` have the proof of its sender.
    pub(crate) async fn source_event(
        &self,
        name: &str,
        headers: BTreeMap<String, String>,
        url_secret: Option<&str>,
        body: String,
    ) -> Result<SourceResponse> {
        // Without the token of the API, because the sender has its own credentials.
        let request = self.http.post(self.url(&["sources", name], &[("secret", url_secret)]));
        let request = headers.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        let response = self.send(request.body(body)).await?;
        self.parse(response).await
    }

    /// Returns the state folder of the server, if `ebb dev` of this machine is the server.
    pub(crate) fn state_folder(&self) -> Option<&Path> {
        match &self.server.origin {
            AddressOrigin::File(file) => file.parent(),
            AddressOrigin::Given | AddressOrigin::Own => None,
        }
    }

    /// Returns the active targets of a selector. `flags` are further parameters of the list: `gone`, `unconfirmed`, `keys`.
    ///
    /// The set contains one warning for each target that cannot be read, and for each recorded outage of a cluster.
    pub(crate) async fn targets(
        &self,
        TargetSelector { kind, phases, labels, owner, plugin, text, .. }: &TargetSelector,
        flags: &[&str],
    ) -> Result<(Vec<TargetInfo>, BTreeSet<String>)> {
        let one = [("kind", kind), ("owner", owner), ("plugin", plugin), ("q", text)];
        let one = one.map(|(name, value)| (name, value.as_deref()));
        let phases = phases.iter().map(|phase| ("phase", Some(phase.name())));
        let labels = labels.iter().map(|label| ("label", Some(label.as_str())));
        let flags = flags.iter().map(|flag| (*flag, Some("true")));
        let selected: Vec<(&str, Option<&str>)> = one.into_iter().chain(phases).chain(labels).chain(flags).collect();
        let (mut targets, mut warnings) = (Vec::new(), BTreeSet::new());
        let mut token: Option<String> = None;
        loop {
            let query = [&selected[..], &[(NEXT_TOKEN, token.as_deref())]].concat();
            let page: TargetPage = self.read(self.query(Method::GET, &["targets"], &query)).await?;
            targets.extend(page.targets);
            warnings.extend(page.damaged.iter().map(|reason| format!("{UNREAD}: {reason}")));
            warnings.extend(page.outages.iter().map(|outage| {
                let RelayOutage { cluster, since, reason, .. } = outage;
                format!("cluster {cluster} has not responded since {}: {reason}", timing::clock(since))
            }));
            if page.next_token.is_none() || page.next_token == token {
                return Ok((targets, warnings));
            }
            token = page.next_token;
        }
    }

    /// Returns an error if a target that the server does not show may exist: the token does not read all targets.
    pub(crate) async fn hidden(&self, target: &TargetRef) -> Result<Option<CliError>> {
        let CallerInfo { scopes, .. } = self.fetch(&["caller"]).await?;
        let hidden = CliError::failed(format!("{target} does not exist, or the token may not read it"))
            .with_hint("use a token with the scope `read`; `ebb whoami` shows the scopes of this one");
        Ok(if scopes.iter().any(|scope| scope == "read" || scope == "operate") { None } else { Some(hidden) })
    }

    /// Returns the targets that have changed since the answer with the number `since`.
    pub(crate) async fn changes(&self, since: Option<&str>) -> Result<ChangeList> {
        self.read(self.query(Method::GET, &["changes"], &[("since", since)])).await
    }

    /// Returns a target with all units of its runs, or `None` if the server does not have it.
    pub(crate) async fn target(&self, target: &TargetRef) -> Result<Option<TargetDetail>> {
        found(self.detail(target, &[]).await)
    }

    /// Returns a target, or the reason of the server if it does not have it because it has rejected an event.
    pub(crate) async fn target_or_rejection(
        &self,
        target: &TargetRef,
    ) -> Result<(Option<TargetDetail>, Option<String>)> {
        match self.detail(target, &[]).await {
            Err(error) if error.has_status(StatusCode::NOT_FOUND.as_u16()) => {
                let rejection = error.problem().filter(|problem| problem.code == ErrorCode::EventRejected.name());
                Ok((None, rejection.map(|problem| problem.detail.clone())))
            }
            seen => Ok((Some(seen?), None)),
        }
    }

    async fn detail(&self, target: &TargetRef, query: &[(&str, Option<&str>)]) -> Result<TargetDetail> {
        let request = self.query(Method::GET, &["targets", &target.kind, &target.name], query);
        let mut detail: TargetDetail = self.read(request).await?;
        for run in &mut detail.runs {
            while let Some(token) = run.next_token.take() {
                let request = self.query(Method::GET, &["runs", &run.id], &[(NEXT_TOKEN, Some(&token))]);
                let page: RunDetail = self.read(request).await?;
                run.units.extend(page.units);
                run.next_token = page.next_token.filter(|next| *next != token);
            }
        }
        Ok(detail)
    }

    /// Returns a target. A missing target is an error.
    pub(crate) async fn existing(&self, target: &TargetRef) -> Result<TargetDetail> {
        self.with_values(target, None, false).await
    }

    /// Returns a target with its values: with the sensitive ones that the server stores if `reveal` is true, and with
    /// those of `RESOURCE` or `RESOURCE/OUTPUT` only, without `env`, if `outputs` is given. A missing target is an error.
    pub(crate) async fn with_values(
        &self,
        target: &TargetRef,
        outputs: Option<&str>,
        reveal: bool,
    ) -> Result<TargetDetail> {
        let query = [("outputs", outputs), ("reveal", reveal.then_some("true"))];
        self.detail(target, &query).await.map_err(|error| missing(target, error))
    }

    /// Returns at most `limit` entries of the history of a target, the newest first, as one page. A missing target is an
    /// error.
    pub(crate) async fn history(&self, target: &TargetRef, limit: usize) -> Result<HistoryPage> {
        let mut all = HistoryPage::default();
        loop {
            let path = ["targets", &target.kind, &target.name, "history"];
            let request = self.query(Method::GET, &path, &[(NEXT_TOKEN, all.next_token.as_deref())]);
            let page: HistoryPage = self.of_target(target, request).await?;
            all.entries.extend(page.entries);
            all.notifications.extend(page.notifications);
            if all.entries.len() >= limit || page.next_token.is_none() || page.next_token == all.next_token {
                all.entries.truncate(limit);
                return Ok(all);
            }
            all.next_token = page.next_token;
        }
    }

    /// Creates a target or updates a living one. The UID of a new instance follows from `key`.
    pub(crate) async fn apply_target(&self, body: &ApplyTarget, key: Option<&str>) -> Result<TargetReceipt> {
        let key = key.map_or_else(fresh_uid, str::to_owned);
        let request = || self.request(Method::POST, &["targets"]).header("idempotency-key", &key).json(body);
        repeated(|| self.has_server(), || self.read(request())).await
    }

    /// Returns the effect of [`Self::apply_target`], which it does not make.
    pub(crate) async fn preview_target(&self, body: &ApplyTarget, key: Option<&str>) -> Result<TargetReceipt> {
        let request = self.query(Method::POST, &["targets"], &[("dryRun", Some("true"))]).json(body);
        self.read(key.into_iter().fold(request, |request, key| request.header("idempotency-key", key))).await
    }

    /// Deletes a target, and the instance that waits for its name, or only the instance `uid`. `allow_protected` needs the
    /// scope `operate`.
    pub(crate) async fn delete_target(
        &self,
        target: &TargetRef,
        uid: Option<&str>,
        allow_protected: bool,
    ) -> Result<TargetReceipt> {
        let query = [("uid", uid), ("allowProtected", allow_protected.then_some("true"))];
        let request = self.query(Method::DELETE, &["targets", &target.kind, &target.name], &query);
        self.of_target(target, request).await
    }

    pub(crate) async fn why(&self, target: &TargetRef) -> Result<TargetDiagnosis> {
        let request = self.request(Method::GET, &["targets", &target.kind, &target.name, "why"]);
        self.of_target(target, request).await
    }

    /// Posts a request for an action on a target: `retry`, `force-complete` or `force-delete`.
    pub(crate) async fn act<T: DeserializeOwned>(
        &self,
        target: &TargetRef,
        action: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let request = self.request(Method::POST, &["targets", &target.kind, &target.name, action]);
        self.of_target(target, request.json(body)).await
    }

    /// Posts a signed event of an unknown type. Returns the server's rejection, or `None` if the server accepts the
    /// event.
    pub(crate) async fn probe_signature(&self) -> Result<Option<ProblemDetails>> {
        let body = br#"{"specversion":"1.0","id":"check","source":"ebb-cli","type":"dev.ebb.check"}"#;
        refusal(self.send(self.event("msg_check", timestamp(), cloudevents::CONTENT_TYPE, body.into())?).await)
    }

    /// Posts a callback without a token to `url`. Returns the server's rejection, or `None` if the server accepts the
    /// callback.
    pub(crate) async fn probe_callback(&self, url: Url) -> Result<Option<ProblemDetails>> {
        refusal(self.send(self.http.post(url)).await)
    }

    /// Returns true if a page of the console leads to another one.
    pub(crate) async fn redirects(&self, page: Url) -> Result<bool> {
        let response = self.http.get(page).send().await;
        Ok(response.map_err(|error| self.unreachable(error))?.status().is_redirection())
    }

    /// Returns a request for a part of a run: `logs` or `rendered` of an attempt of a unit.
    fn of_attempt(&self, run: &str, part: &str, unit: &str, attempt: Option<u32>) -> RequestBuilder {
        let number = attempt.map(|attempt| attempt.to_string());
        let query = [("unit", Some(unit)), ("attempt", number.as_deref())];
        self.query(Method::GET, &["runs", run, part], &query)
    }

    /// Returns what a unit was rendered to, in its last attempt by default.
    pub(crate) async fn rendered(&self, run: &str, unit: &str, attempt: Option<u32>) -> Result<UnitRendering> {
        self.read(self.of_attempt(run, "rendered", unit, attempt)).await
    }

    /// Returns the log of an attempt and the number of the attempt.
    ///
    /// Without `attempt`, the server selects the last attempt that has a log.
    pub(crate) async fn log(&self, run: &str, unit: &str, attempt: Option<u32>) -> Result<Option<LogTail>> {
        let sent = self.send(self.of_attempt(run, "logs", unit, attempt)).await;
        let Some(response) = found(sent)? else { return Ok(None) };
        let header = |name: &str| response.headers().get(name)?.to_str().ok()?.parse::<usize>().ok();
        let number = header(ATTEMPT).and_then(|number| u32::try_from(number).ok());
        let size = header(LOG_BYTES);
        let text = response.text().await.map_err(|error| self.unreachable(error))?;
        Ok(Some(LogTail::new(number.or(attempt), &text, size)))
    }

    /// Returns the plan of a document without applying the document.
    pub(crate) async fn preview(&self, document: &str) -> Result<PlanPreview> {
        self.post(&["plans"], &DocumentBody { document: document.to_owned() }).await
    }

    /// Posts a signed lifecycle webhook.
    ///
    /// Target, uid and generation determine the id of the CloudEvent, so a repeated post is recognised. Each event of a
    /// target has an id of its own.
    pub(crate) async fn lifecycle(&self, change: LifecycleType, data: &LifecycleData) -> Result<LifecycleResponse> {
        let number = if matches!(change, LifecycleType::Event) { fresh_uid() } else { data.generation.to_string() };
        let parts = [SOURCE, change.as_type(), &data.kind, &data.name, &data.uid, &number];
        let id = format!("msg_{}", ebb_protocol::id::short_digest(&parts, 26));
        let now = timestamp();
        let (content_type, body) = cloudevents::lifecycle(&id, SOURCE, change, now, data);
        self.read(self.event(&id, now, content_type, body)?).await
    }

    fn event(&self, id: &str, now: Timestamp, content_type: &str, body: Vec<u8>) -> Result<RequestBuilder> {
        let unsigned = |error: SecretError| {
            CliError::broken(format!("cannot sign the lifecycle webhook: {error}")).with_hint("set EBB_WEBHOOK_SECRET")
        };
        let secret =
            WebhookSecret::parse(self.server.webhook_secret.as_deref().unwrap_or_default()).map_err(unsigned)?;
        let id = MessageId::parse(id).expect("letters, digits and an underscore");
        let request = self.request(Method::POST, &["events"]);
        let signed = sign::sign(&secret, &id, now, &body).into_iter();
        let request = signed.fold(request, |request, (name, value)| request.header(name, value));
        Ok(request.header("content-type", content_type).body(body))
    }

    pub(crate) fn address(&self, path: &str) -> String {
        format!("{}{path}", self.server.url.as_str().trim_end_matches('/'))
    }

    /// Returns the URL of the console, or of the page of a target.
    pub(crate) fn console(&self, target: Option<&TargetRef>) -> Url {
        let mut url = self.server.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("console");
            if let Some(TargetRef { kind, name }) = target {
                path.extend(["targets", kind.as_str(), name.as_str()]);
            }
        }
        url
    }

    /// Returns a link that signs in to the console once and leads to a page of it. Only a server on this machine makes one.
    pub(crate) async fn console_link(&self, page: &Url) -> Option<Url> {
        if self.server.origin == AddressOrigin::Given && !is_local(&self.server.url) {
            return None;
        }
        let request = self.authorized(self.http.post(self.address("/console/sign-in/link")));
        let path = self.send(request).await.ok()?.text().await.ok()?;
        let mut link = self.server.url.join(&path).ok()?;
        link.query_pairs_mut().append_pair("next", page.path());
        (link.origin() == self.server.url.origin()).then_some(link)
    }

    /// Returns the URL of a path of the API, with the parameters that have a value.
    fn url(&self, path: &[&str], parameters: &[(&str, Option<&str>)]) -> Url {
        let mut url = self.server.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        let mut given = parameters.iter().filter_map(|(name, value)| Some((name, (*value)?))).peekable();
        if given.peek().is_some() {
            url.query_pairs_mut().extend_pairs(given);
        }
        url
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        self.query(method, path, &[])
    }

    fn query(&self, method: Method, path: &[&str], parameters: &[(&str, Option<&str>)]) -> RequestBuilder {
        self.authorized(self.http.request(method, self.url(path, parameters)))
    }

    fn authorized(&self, request: RequestBuilder) -> RequestBuilder {
        if let Some(token) = &self.server.token { request.bearer_auth(token) } else { request }
    }

    fn unreachable(&self, error: reqwest::Error) -> CliError {
        let ServerAccess { url, origin, .. } = &self.server;
        self.has_server.fetch_or(!error.is_connect(), Ordering::Relaxed);
        let error = error.without_url();
        // The other causes only name layers of the client.
        let mut root: &(dyn std::error::Error + 'static) = &error;
        while let Some(source) = root.source() {
            root = source;
        }
        let report = CliError::unreachable(format!("no server responds at {url}")).with_causes(root);
        match origin {
            AddressOrigin::Given => report.with_hint("check --server or EBB_URL"),
            AddressOrigin::File(file) => report.with_hint(format!(
                "start `ebb dev`, or set EBB_URL; {} belongs to a server that has stopped",
                file.display()
            )),
            AddressOrigin::Own => report,
        }
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T> {
        let response = self.send(request).await?;
        self.parse(response).await
    }

    /// Reads the response to a request for a target. A missing target is an error.
    async fn of_target<T: DeserializeOwned>(&self, target: &TargetRef, request: RequestBuilder) -> Result<T> {
        self.read(request).await.map_err(|error| missing(target, error))
    }

    async fn parse<T: DeserializeOwned>(&self, response: Response) -> Result<T> {
        let status = response.status();
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        serde_json::from_slice(&body)
            .map_err(|error| unexpected(status, &format!("the body does not match the API: {error}")))
    }

    /// Sends a request and returns its response if the status is a success.
    async fn send(&self, request: RequestBuilder) -> Result<Response> {
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        self.has_server.store(true, Ordering::Relaxed);
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = response.bytes().await.map_err(|error| self.unreachable(error))?;
        let error = match serde_json::from_slice::<ProblemDetails>(&body) {
            Ok(problem)
                if self.server.has_given_token
                    && status == StatusCode::UNAUTHORIZED
                    && problem.code != ErrorCode::InvalidSignature.name() =>
            {
                let hint = "EBB_TOKEN is set and refused: unset it to use the login of `ebb login`, or set it to a valid token";
                CliError::failed(problem.detail.clone()).with_hint(hint).of(&problem)
            }
            Ok(problem) => refused(&problem),
            Err(_) => unexpected(status, &start_of(&body)),
        };
        let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        Err(if is_busy { error.busy() } else { error })
    }
}

impl ApiTransport for ApiClient {
    fn send(&self, request: http::Request<String>) -> BoxFuture<'_, Result<http::Response<Vec<u8>>, String>> {
        let (parts, body) = request.into_parts();
        let url = self.address(&parts.uri.to_string());
        // An agent starts the program once, and a person signs in later.
        let find = || logins::find(&self.server.login_name(), self.server.token.is_some()).ok().flatten();
        let login = if self.server.has_given_token { None } else { find() };
        let token = login.filter(|login| !login.rest().is_zero()).map(|login| login.token);
        let mut client = self.clone();
        client.server.token = token.or(client.server.token);
        let request = client.authorized(self.http.request(parts.method, url).headers(parts.headers).body(body));
        let unreachable = move |error| self.unreachable(error).message_with_steps();
        async move {
            let response = request.send().await.map_err(unreachable)?;
            let status = response.status();
            let mut reply = http::Response::new(response.bytes().await.map_err(unreachable)?.to_vec());
            *reply.status_mut() = status;
            Ok(reply)
        }
        .boxed()
    }
}

/// Returns the error of a request for a target, for people if the server does not have the target.
fn missing(target: &TargetRef, error: CliError) -> CliError {
    // Another 404 has its reason: an event of the target was rejected, or a version of a plugin is not published.
    if error.problem().is_none_or(|problem| problem.status != 404 || problem.code != ErrorCode::NotFound.name()) {
        return error;
    }
    CliError::failed(format!("{target} does not exist")).with_hint(list_command(&target.kind))
}

pub(crate) fn list_command(kind: &str) -> String {
    format!("ebb get {}", if kind == "sandbox" { "sandboxes" } else { kind })
}

/// Returns the error for a response that does not have the format of the API.
fn unexpected(status: StatusCode, text: &str) -> CliError {
    CliError::broken(format!("unexpected response of the server: status {}, {text}", status.as_u16()))
        .with_hint("check that the address belongs to an Ebb server of the same version")
}

/// Converts status 404 to `None`.
fn found<T>(response: Result<T>) -> Result<Option<T>> {
    response.map(Some).or_else(|error| if error.has_status(404) { Ok(None) } else { Err(error) })
}

/// Returns the problem document of a rejected request, or `None` for an accepted one.
fn refusal(response: Result<Response>) -> Result<Option<ProblemDetails>> {
    let Err(error) = response else { return Ok(None) };
    error.problem().cloned().map(Some).ok_or(error)
}

pub(crate) fn timestamp() -> Timestamp {
    Timestamp(u64::try_from(timing::now().as_millisecond()).unwrap_or_default())
}

fn start_of(body: &[u8]) -> String {
    const SHOWN: usize = 200;
    let text = String::from_utf8_lossy(body);
    let text = text.trim();
    if text.is_empty() { "empty body".to_owned() } else { text.chars().take(SHOWN).collect() }
}

#[cfg(test)]
mod tests;
