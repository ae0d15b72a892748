//! The servers of webhook units, and that of the platform.

use ebb_egress::HttpCall;
use ebb_protocol::unit::CALLBACK_TOKEN;

use super::*;
use crate::fakes::PLATFORM;

/// The number of an attempt, and its result after its end.
type ServerAttempt = (usize, Option<SimOutputs>);

/// The servers of webhook units, and that of the platform. They identify an attempt by its `webhook-id` and execute it once.
pub(super) struct SimServers {
    executor: Arc<SimExecutor>,
    attempts: Arc<Mutex<BTreeMap<String, ServerAttempt>>>,
    receivers: SimReceivers,
    provider: SimProvider,
    platform_outage_until: Mutex<u64>,
}

/// The longest outage of the platform.
const OUTAGE_MS: u64 = 300_000;
/// A repeated request for an attempt in progress polls for its end.
const POLL_MS: u64 = 50;
/// The responses of gateways that have no response of the server behind them.
const GATEWAY: [u16; 3] = [502, 503, 504];

/// Returns the status if a gateway responds instead of the server behind it.
pub(super) fn gateway_status(executor: &SimExecutor) -> Option<u16> {
    let number = executor.inject_below(FaultKind::GatewayGivesUp, GATEWAY.len() as u64)?;
    Some(GATEWAY[number as usize])
}

/// Returns the value of a header, or an empty text.
pub fn header(request: &HttpRequest, name: &str) -> String {
    request.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).unwrap_or_default()
}

pub(super) fn retry_after(status: u16, seconds: u64) -> HttpResponse {
    HttpResponse { headers: vec![("retry-after".to_owned(), seconds.to_string())], ..HttpResponse::new(status, "") }
}

fn notification(request: &HttpRequest, at: u64) -> Option<NotificationEntry> {
    let event: serde_json::Value = serde_json::from_slice(&request.body).ok()?;
    let text = |path: &str| event.pointer(path)?.as_str().map(str::to_owned);
    let (time, kind, uid) = (parse_rfc3339(&text("/time")?)?, text("/type")?, text("/data/uid")?);
    Some(NotificationEntry { id: text("/id")?, at, time, kind, uid })
}

/// Returns a response whose body has the same value under every name that a document may use.
fn response_of(ended: &SimOutputs) -> HttpResponse {
    match ended {
        Ok(outputs) => {
            let id = outputs.values().next().cloned().unwrap_or_default();
            HttpResponse::new(200, serde_json::json!({ "id": id, "endpoint": id }).to_string())
        }
        Err(reason) => HttpResponse::new(503, reason.as_str()),
    }
}

impl SimServers {
    pub(super) fn new(executor: Arc<SimExecutor>) -> Self {
        let receivers = SimReceivers { executor: Arc::clone(&executor), outages: Mutex::default() };
        let provider = SimProvider { executor: Arc::clone(&executor), state: Mutex::default() };
        Self { receivers, provider, executor, attempts: Arc::default(), platform_outage_until: Mutex::default() }
    }

    fn attempt(&self, id: &str) -> Option<ServerAttempt> {
        lock(&self.attempts).get(id).cloned()
    }

    /// Begins an attempt. Returns its number and its task.
    fn begin(&self, request: &HttpRequest, id: &str) -> Option<(usize, SimTask<()>)> {
        let unit = self.executor.ledger.unit(&header(request, IDEMPOTENCY_KEY))?;
        let attempt = header(request, ATTEMPT).parse().ok()?;
        let body: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&request.body).unwrap_or_default();
        let reads = body.values().flat_map(texts_of).collect();
        let run = run_of(id.rsplit_once('-')?.0)?;
        // A server that makes another object with each attempt reports it.
        let forgets =
            unit.effect != UnitEffect::PerAttempt && self.executor.faults.should_inject(FaultKind::CallbackForgotten);
        let reports = unit.action == UnitAction::Later && !forgets;
        let running = self.executor.begin(&unit, run, attempt, AttemptReceiver::Server, reports, reads);
        let number = running.number;
        lock(&self.attempts).insert(id.to_owned(), (number, None));
        let (work, attempts, id) = (Arc::clone(&self.executor), Arc::clone(&self.attempts), id.to_owned());
        let token = header(request, CALLBACK_TOKEN);
        let task = self.executor.runtime.spawn(async move {
            let _active = work.ledger.activity();
            let ended = work.execute(running).await;
            lock(&attempts).insert(id, (number, Some(ended.clone())));
            if reports {
                Arc::clone(&work).call_back(token.clone(), callback_of(&ended)).await;
                let makes = unit.effect != UnitEffect::Nothing && !unit.plan.outputs.is_empty();
                if makes && ended.is_ok() && work.faults.should_inject(FaultKind::ResultsFlooded) {
                    work.flood(number, token).await;
                }
            }
        });
        Some((number, task))
    }

    /// Returns the number of the requested attempt. Starts a new attempt and returns its task, too.
    fn find_or_begin(&self, request: &HttpRequest) -> CallResult<(usize, Option<SimTask<()>>)> {
        let id = header(request, WEBHOOK_ID);
        if let Some((number, _)) = self.attempt(&id) {
            self.executor.ledger.state().attempts[number].requests += 1;
            return Ok((number, None));
        }
        let begun = self.begin(request, &id).map(|(number, task)| (number, Some(task)));
        begun.ok_or_else(|| CallError::Refused(format!("no such unit: {}", request.url)))
    }

    /// Records that the sender of an attempt gets no response from the server.
    fn give_up(&self, number: usize) {
        self.executor.ledger.state().attempts[number].given_up = Some(self.executor.runtime.elapsed());
    }

    async fn take(&self, request: &HttpRequest) -> CallResult<(HttpResponse, usize)> {
        let id = header(request, WEBHOOK_ID);
        let (number, task) = self.find_or_begin(request)?;
        let runtime = &self.executor.runtime;
        let timeout = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        let response = match (UnitAction::of_url(&request.url), self.attempt(&id)) {
            (_, Some((_, Some(ended)))) => response_of(&ended),
            (UnitAction::Later, _) => HttpResponse::new(202, ""),
            (UnitAction::Again, _) => retry_after(202, 2),
            (UnitAction::Once | UnitAction::Pod | UnitAction::Plugin | UnitAction::Provider, _) => {
                let until = runtime.elapsed() + timeout;
                if let Some(task) = task {
                    runtime.first(task, runtime.sleep(timeout)).await;
                }
                loop {
                    if let Some((_, Some(ended))) = self.attempt(&id) {
                        break response_of(&ended);
                    }
                    if runtime.elapsed() >= until {
                        self.give_up(number);
                        return Err(CallError::Timeout(request.timeout));
                    }
                    runtime.sleep(POLL_MS).await;
                }
            }
        };
        Ok((response, number))
    }

    /// Receives a notification, as the server of the platform.
    async fn notify(&self, request: &HttpRequest) -> CallResult<HttpResponse> {
        let SimExecutor { runtime, faults, ledger, .. } = self.executor.as_ref();
        if faults.should_inject(FaultKind::PlatformHangs) {
            runtime.sleep(u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX)).await;
            return Err(CallError::Timeout(request.timeout));
        }
        let now = runtime.elapsed();
        let is_away = self.executor.is_away(FaultKind::PlatformAway, &mut lock(&self.platform_outage_until), OUTAGE_MS);
        if is_away || faults.should_inject(FaultKind::PlatformRefuses) {
            return Ok(HttpResponse::new(503, ""));
        }
        match notification(request, now) {
            Some(notification) => {
                ledger.trace(|| format!("notified {notification:?}"));
                ledger.state().notifications.push(notification);
            }
            None => {
                let body = String::from_utf8_lossy(&request.body);
                ledger.report_violation(format!("the platform cannot read {body}"));
            }
        }
        self.executor.answer(FaultKind::PlatformAnswerLost, HttpResponse::new(204, "")).await
    }
}

#[async_trait]
impl HttpCall for SimServers {
    async fn call(&self, mut request: HttpRequest) -> CallResult<HttpResponse> {
        let SimExecutor { faults, ledger, .. } = self.executor.as_ref();
        self.executor.may_die(FaultKind::DeathBeforeCall).await;
        if request.url == PLATFORM {
            return self.notify(&request).await;
        }
        if faults.should_inject(FaultKind::RequestLost) {
            return Err(CallError::Connect("as planned".to_owned()));
        }
        if let Some(seconds) = self.executor.inject_below(FaultKind::ServerBusy, 5) {
            return Ok(retry_after(429, seconds));
        }
        if let Some(subscription) = request.url.strip_prefix(RECEIVERS) {
            return self.receivers.receive(subscription, &request).await;
        }
        if let Some(path) = request.url.strip_prefix(SENDERS) {
            return self.executor.show_origin(path).await;
        }
        if let Some(path) = request.url.strip_prefix(ORIGIN) {
            if path == TOKENS || UnitAction::of_url(path) == UnitAction::Provider {
                return self.provider.respond(path, request.clone()).await;
            }
            // Requests over a connection are not signed, and do not have the header that identifies an attempt.
            let unit = ledger.unit(&header(&request, IDEMPOTENCY_KEY));
            let unit = unit.ok_or_else(|| CallError::Refused(format!("no such unit: {}", request.url)))?;
            let id = format!("{}-{}-{}", unit.run(), unit.unit, header(&request, ATTEMPT));
            request.headers.push((WEBHOOK_ID.to_owned(), id));
        }
        let _posted = ledger.post(header(&request, WEBHOOK_ID));
        if let Some(status) = gateway_status(&self.executor) {
            let (number, _) = self.find_or_begin(&request)?;
            ledger.trace(|| format!("{status} for {}", header(&request, WEBHOOK_ID)));
            self.give_up(number);
            return Ok(HttpResponse::new(status, ""));
        }
        let (response, number) = self.take(&request).await?;
        let answered = self.executor.answer(FaultKind::ResponseLost, response).await;
        if answered.is_err() {
            ledger.trace(|| format!("the response of {} is lost", header(&request, WEBHOOK_ID)));
            self.give_up(number);
        }
        answered
    }
}
