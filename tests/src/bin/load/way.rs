//! The way to the table: every request of the SDK passes here, is counted, and some fail on purpose.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use serde_json::Value;

/// Which part of the calls fails. A call is what the SDK is asked for; it sends up to three requests for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chances {
    /// Before they reach the table.
    pub(crate) failing: f64,
    /// The table has done what was asked; the reply is lost.
    pub(crate) lost: f64,
}

impl Chances {
    pub(crate) const NONE: Self = Self { failing: 0.0, lost: 0.0 };
}

/// What has passed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passed {
    /// Calls that failed before they reached the table, and those whose reply was lost.
    pub(crate) failed: u64,
    pub(crate) lost: u64,
    /// Of both, those for which the SDK's own tries did not help: the function has got an error.
    pub(crate) for_good: u64,
    /// Writes of completions.
    pub(crate) completions: u64,
    /// Transactions that write the head of a run, with which a completion could meet. DynamoDB Local lets writes wait for
    /// transactions and answers none with a conflict; AWS does.
    pub(crate) transactions: u64,
    /// Completions that were answered that the item is in a transaction.
    pub(crate) conflicts: u64,
    /// Answers that the condition does not hold.
    pub(crate) refused: u64,
    /// Completions that were sent once more after such an answer.
    pub(crate) again: u64,
    /// Transactions that were cancelled.
    pub(crate) cancelled: u64,
}

/// Gives requests of the SDK to a server.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    client: reqwest::Client,
    chances: Chances,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    passed: Passed,
    /// Digests of the completions that have got an answer which some would follow by another try.
    turned_away: HashSet<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Passes,
    Fails,
    IsLost,
}

impl Way {
    pub(crate) fn new(chances: Chances) -> anyhow::Result<Self> {
        Ok(Self { client: reqwest::Client::builder().no_proxy().build()?, chances, state: Arc::default() })
    }

    /// `client`, this way.
    pub(crate) fn through(&self, client: &aws_sdk_dynamodb::Client) -> aws_sdk_dynamodb::Client {
        let connector = SharedHttpConnector::new(self.clone());
        let config = client.config().to_builder().http_client(http_client_fn(move |_, _| connector.clone()));
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }

    pub(crate) fn passed(&self) -> Passed {
        self.state().passed.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a request, by the random id of its call: half of the calls that fail do so for the first request
    /// alone, the others for all.
    fn fate(&self, request: &HttpRequest) -> Fate {
        let header = |name| request.headers().get(name).unwrap_or_default();
        let id: String = header("amz-sdk-invocation-id").chars().filter(char::is_ascii_hexdigit).collect();
        let part = |from: usize, to: usize| {
            u32::from_str_radix(id.get(from..to).unwrap_or_default(), 16).unwrap_or(u32::MAX)
        };
        let chance = f64::from(part(0, 8)) / f64::from(u32::MAX);
        let fate = match chance {
            _ if chance < self.chances.failing => Fate::Fails,
            _ if chance < self.chances.failing + self.chances.lost => Fate::IsLost,
            _ => return Fate::Passes,
        };
        let (first, once) = (header("amz-sdk-request").starts_with("attempt=1"), part(8, 10) % 2 == 0);
        if once && !first {
            return Fate::Passes;
        }
        if first {
            let passed = &mut self.state().passed;
            passed.for_good += u64::from(!once);
            match fate {
                Fate::Fails => passed.failed += 1,
                _ => passed.lost += 1,
            }
        }
        fate
    }

    async fn pass(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let broken = |error: Box<dyn std::error::Error + Send + Sync>| ConnectorError::io(error);
        let fate = self.fate(&request);
        if fate == Fate::Fails {
            return Err(broken("the request is lost, by plan".into()));
        }
        let body = request.body().bytes().unwrap_or_default().to_vec();
        let mut sent = self.client.post(request.uri());
        for (name, value) in request.headers() {
            sent = sent.header(name, value);
        }
        let (completion, transaction) = (completion(&request, &body), is_transaction(&request, &body));
        let answer = sent.body(body).send().await.map_err(|error| broken(error.into()))?;
        let status = answer.status().as_u16();
        let answer = answer.bytes().await.map_err(|error| broken(error.into()))?;
        self.state().passed.transactions += u64::from(transaction);
        self.note(completion, status, &answer, fate);
        if fate == Fate::IsLost {
            return Err(broken("the reply is lost, by plan".into()));
        }
        let status = status.try_into().map_err(|_| broken("no HTTP status".into()))?;
        let mut response = HttpResponse::new(status, answer.to_vec().into());
        response.headers_mut().insert("content-type", "application/x-amz-json-1.0");
        Ok(response)
    }

    fn note(&self, completion: Option<u64>, status: u16, answer: &[u8], fate: Fate) {
        let error: Value = match status {
            400 => serde_json::from_slice(answer).unwrap_or_default(),
            _ => Value::Null,
        };
        let code = error["__type"].as_str().unwrap_or_default();
        let code = code.rsplit('#').next().unwrap_or_default();
        let mut state = self.state();
        state.passed.cancelled += u64::from(code == "TransactionCanceledException");
        let Some(digest) = completion else { return };
        state.passed.completions += 1;
        state.passed.again += u64::from(state.turned_away.contains(&digest));
        match code {
            "TransactionConflictException" => state.passed.conflicts += 1,
            "ConditionalCheckFailedException" => state.passed.refused += 1,
            _ => return,
        }
        // Who has not seen the answer does not follow it.
        if fate == Fate::Passes {
            state.turned_away.insert(digest);
        }
    }
}

/// Whether an item, or a key, is that of the head of a run.
fn is_head(item: &Value) -> bool {
    let begins = |name: &str, with| item[name]["S"].as_str().is_some_and(|text| text.starts_with(with));
    begins("pk", "r#") && begins("sk", "h")
}

/// Whether this is a transaction with the head of a run in it.
fn is_transaction(request: &HttpRequest, body: &[u8]) -> bool {
    let is = |target: &str| target.ends_with(".TransactWriteItems");
    if !request.headers().get("x-amz-target").is_some_and(is) {
        return false;
    }
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let items = asked["TransactItems"].as_array().into_iter().flatten();
    let writes = items.filter_map(Value::as_object).flat_map(|item| item.values());
    writes.into_iter().any(|write| is_head(&write["Item"]) || is_head(&write["Key"]))
}

/// The digest of a write that adds to the head of a run, if this is one.
fn completion(request: &HttpRequest, body: &[u8]) -> Option<u64> {
    request.headers().get("x-amz-target").filter(|target| target.ends_with(".UpdateItem"))?;
    let asked: Value = serde_json::from_slice(body).ok()?;
    let adds = asked["UpdateExpression"].as_str().is_some_and(|update| update.contains("ADD "));
    if !adds || !is_head(&asked["Key"]) {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    Some(hasher.finish())
}

impl HttpConnector for Way {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().pass(request))
    }
}
