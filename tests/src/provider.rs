//! A stand-in for the APIs of providers, with their faults.
//!
//! It creates and deletes asynchronously, and each of its accounts has one [`Mishap`]. An account is what a provider calls
//! a project or a database: a part of each path. A state changes with the requests that ask for it and not with time, so
//! a slow machine changes nothing.

mod apis;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::mem::{Discriminant, discriminant};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::receiver::{CallbackReply, CannedReply, ReceivedCall, TestReceiver};

/// The name of what each account has besides the things of the test. Theirs begin with the same letters.
const FOREIGN: &str = "ebb-of-another";
/// The numbers of the AWS account, and of another one.
const AWS_ACCOUNTS: [&str; 2] = ["111122223333", "444455556666"];
/// The number of objects in a new bucket.
const OBJECTS: usize = 3;

/// An API with its paths, fields and states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderApi {
    Neon,
    Planetscale,
    Supabase,
    /// MongoDB Atlas, with access tokens of OAuth.
    Atlas,
    Stripe,
    /// Cloudflare R2.
    Bucket,
    /// GraphQL over `POST`.
    Railway,
    /// Amazon RDS and STS.
    Rds,
    /// A service of one's own, which answers 202 and calls back.
    Tenants,
}

impl ProviderApi {
    /// Returns true if creations and deletions have ended when they are answered.
    pub fn is_instant(self) -> bool {
        matches!(self, Self::Stripe | Self::Bucket | Self::Railway)
    }
}

/// What goes wrong in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mishap {
    Nothing,
    /// The first list does not have the new thing.
    LateList,
    /// The first request for the new thing is answered *not found*.
    LateRead,
    /// A creation is answered 202, and fails later.
    FailingCreation,
    EndlessCreation,
    /// A creation gets no response, and the first list is late.
    LostCreation,
    /// A deletion gets no response.
    LostDeletion,
    /// A deletion is answered 202, and fails later.
    FailingDeletion,
    /// The first request of each kind is rejected, with the time of the next one.
    RateLimit,
    /// The first creation and the first deletion are rejected, because another operation runs.
    Busy,
    /// Creations are rejected, because the account has reached a limit.
    Full,
    /// The credential loses the account: all of it is *not found*.
    Hidden,
    /// The credential becomes invalid.
    Revoked,
    /// The second token replaces the first one.
    Rotated,
    /// The first creation and the first deletion are answered 200 with an error.
    ErrorInSuccess,
    /// A creation gets no response, and the second page of the list has the new thing.
    SecondPage,
    /// The answer to a creation lacks the ID and the name.
    MissingField,
    /// The access token of the first request of each kind has expired.
    Expired,
    /// A creation is answered 500, although it has made the thing.
    ServerError,
}

impl Mishap {
    /// Returns the name of the account with this mishap: letters.
    pub fn account(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ProviderRequest {
    Create(String),
    /// True for a page after the first one.
    List(bool),
    /// Asks for a thing by its ID or name.
    Read(String),
    Delete(String),
    /// Removes so many objects of a bucket, and asks for the others.
    Objects(String, usize),
    /// Asks for the password of the newest thing.
    Access,
    /// Asks for the number of the account.
    Identity,
}

enum ProviderAnswer {
    Made(ProviderThing),
    Found(ProviderThing),
    /// True if there is a further page.
    Listed(Vec<ProviderThing>, bool),
    Objects(usize),
    Removing,
    /// It was removed before.
    Removed,
    Access(ProviderThing),
    Identity(&'static str),
    /// The request was processed, and the connection breaks.
    Lost,
    Rejected(ProviderProblem),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProviderProblem {
    NotFound,
    Exists,
    Busy,
    Full,
    Limited,
    Unauthorized,
    InSuccess,
    Failure,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThingState {
    Creating,
    Ready,
    Failed,
    Deleting,
}

#[derive(Clone, Debug)]
struct ProviderThing {
    /// `ACCOUNT-NUMBER`.
    id: String,
    name: String,
    state: ThingState,
    /// The number of requests for the thing until its state changes.
    questions: usize,
    objects: usize,
}

struct ProviderAccount {
    mishap: Mishap,
    /// True after the setup.
    is_turned: bool,
    things: Vec<ProviderThing>,
    /// The number of creations.
    made: usize,
    /// The IDs and names of removed things.
    removed: BTreeSet<String>,
    /// The credentials that are not valid any more.
    expired: BTreeSet<String>,
    /// The kinds of requests that have met the mishap.
    met: HashSet<Discriminant<ProviderRequest>>,
}

struct ProviderState {
    api: ProviderApi,
    tokens: [String; 2],
    password: String,
    /// The number of access tokens.
    granted: AtomicUsize,
    accounts: Mutex<BTreeMap<String, ProviderAccount>>,
}

/// A running provider. It stops when its last clone is dropped.
#[derive(Clone)]
pub struct Provider {
    pub receiver: TestReceiver,
    state: Arc<ProviderState>,
}

impl Provider {
    /// Starts a provider with an account for each mishap. It accepts two tokens, and requests that are verified.
    pub async fn start(
        api: ProviderApi,
        tokens: [String; 2],
        password: &str,
        verify: impl Fn(&ReceivedCall, &[u8]) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let receiver = TestReceiver::start_at(Ipv4Addr::LOCALHOST.into(), verify).await;
        let mishaps = Mishap::value_variants().iter();
        let accounts = mishaps.map(|&mishap| (mishap.account(), ProviderAccount::new(mishap)));
        let accounts = Mutex::new(accounts.collect());
        let (password, granted) = (password.to_owned(), AtomicUsize::new(0));
        let state = Arc::new(ProviderState { api, tokens, password, granted, accounts });
        let answering = Arc::clone(&state);
        receiver.on("*", move |call, _| answering.respond(call));
        Self { receiver, state }
    }

    /// Returns true if a request has met a mishap of the first request of its kind.
    pub fn has_met(&self, account: &str) -> bool {
        self.account(account, |account| !account.met.is_empty())
    }

    fn account<T>(&self, name: &str, read: impl FnOnce(&mut ProviderAccount) -> T) -> T {
        read(self.state.accounts.lock().unwrap().get_mut(name).unwrap())
    }

    /// Returns the names of all things of the test in an account, without a request.
    ///
    /// # Panics
    /// Panics if the thing of another user is missing.
    pub fn inventory(&self, account: &str) -> Vec<String> {
        self.account(account, |account| {
            let is_foreign = |thing: &ProviderThing| thing.name == FOREIGN && thing.objects == OBJECTS;
            assert!(account.things.iter().any(is_foreign), "the thing of another user was removed");
            account.own().map(|thing| thing.name.clone()).collect()
        })
    }

    pub fn is_ready(&self, account: &str) -> bool {
        self.account(account, |account| account.own().any(|thing| thing.state == ThingState::Ready))
    }

    pub fn made(&self, account: &str) -> usize {
        self.account(account, |account| account.made)
    }

    /// Ends the setup: credentials change.
    pub fn turn(&self) {
        self.state.accounts.lock().unwrap().values_mut().for_each(|account| account.is_turned = true);
    }

    /// Ends the mishap of an account. A person removes what the provider did not remove, or did not show.
    pub fn heal(&self, account: &str) {
        self.account(account, |account| {
            if account.mishap == Mishap::FailingDeletion {
                while let Some(at) = account.things.iter().position(|thing| thing.name != FOREIGN) {
                    account.remove(at);
                }
            }
            account.mishap = Mishap::Nothing;
        });
    }
}

impl ProviderAccount {
    fn new(mishap: Mishap) -> Self {
        let (id, name) = (format!("{}-0", mishap.account()), FOREIGN.to_owned());
        let foreign = ProviderThing { id, name, state: ThingState::Ready, questions: 0, objects: OBJECTS };
        let (removed, expired, met) = (BTreeSet::new(), BTreeSet::new(), HashSet::new());
        Self { mishap, is_turned: false, things: vec![foreign], made: 0, removed, expired, met }
    }

    fn own(&self) -> impl Iterator<Item = &ProviderThing> {
        self.things.iter().filter(|thing| thing.name != FOREIGN)
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.things.iter().position(|thing| thing.id == key || thing.name == key)
    }

    /// Returns a thing in its state, which may change by this request.
    fn ask(&mut self, key: &str) -> Option<ProviderThing> {
        let at = self.position(key)?;
        let thing = &mut self.things[at];
        match (thing.state, self.mishap) {
            _ if thing.questions > 0 => thing.questions -= 1,
            (ThingState::Creating, Mishap::EndlessCreation) => {}
            (ThingState::Creating, Mishap::FailingCreation) => thing.state = ThingState::Failed,
            (ThingState::Creating, _) => thing.state = ThingState::Ready,
            (ThingState::Deleting, _) => {
                self.things.remove(at);
                return None;
            }
            (ThingState::Ready | ThingState::Failed, _) => {}
        }
        Some(self.things[at].clone())
    }

    fn is_first(&mut self, request: &ProviderRequest) -> bool {
        self.met.insert(discriminant(request))
    }

    /// Returns true for the credential of the first request of each kind.
    fn has_expired(&mut self, request: &ProviderRequest, credential: &str) -> bool {
        if self.is_first(request) {
            self.expired.insert(credential.to_owned());
        }
        self.expired.contains(credential)
    }

    fn act(&mut self, api: ProviderApi, request: &ProviderRequest) -> ProviderAnswer {
        use ProviderRequest::{Access, Create, Delete, Identity, List, Objects, Read};
        let problem = match (self.mishap, request) {
            (Mishap::RateLimit, _) => Some(ProviderProblem::Limited),
            (Mishap::Busy, Create(_) | Delete(_)) => Some(ProviderProblem::Busy),
            (Mishap::ErrorInSuccess, Create(_) | Delete(_)) => Some(ProviderProblem::InSuccess),
            (Mishap::LateRead, Read(_)) => Some(ProviderProblem::NotFound),
            _ => None,
        };
        if let Some(problem) = problem
            && self.is_first(request)
        {
            return ProviderAnswer::Rejected(problem);
        }
        let or_not_found = |thing: Option<ProviderThing>, answer: fn(ProviderThing) -> ProviderAnswer| {
            thing.map_or(ProviderAnswer::Rejected(ProviderProblem::NotFound), answer)
        };
        match request {
            Create(_) if self.mishap == Mishap::Full => ProviderAnswer::Rejected(ProviderProblem::Full),
            Create(name) => self.create(api, name),
            Read(key) if api == ProviderApi::Stripe && self.removed.contains(key) => ProviderAnswer::Removing,
            Read(key) => or_not_found(self.ask(key), ProviderAnswer::Found),
            List(is_further) => {
                let is_late = matches!(self.mishap, Mishap::LateList | Mishap::LostCreation) && self.is_first(request);
                let has_pages = self.mishap == Mishap::SecondPage;
                let names: Vec<String> = self.things.iter().map(|thing| thing.name.clone()).collect();
                let shown = names.iter().filter(|name| {
                    let is_own = *name != FOREIGN;
                    if has_pages { is_own == *is_further } else { !(is_own && is_late) }
                });
                let things = shown.filter_map(|name| self.ask(name)).collect();
                ProviderAnswer::Listed(things, has_pages && !is_further)
            }
            Delete(key) => self.delete(api, key),
            Objects(key, removed) => match self.position(key) {
                Some(at) => {
                    let objects = &mut self.things[at].objects;
                    *objects = objects.saturating_sub(*removed);
                    ProviderAnswer::Objects(*objects)
                }
                None => ProviderAnswer::Rejected(ProviderProblem::NotFound),
            },
            Access => {
                let ready = self.own().filter(|thing| thing.state == ThingState::Ready).last().cloned();
                or_not_found(ready, ProviderAnswer::Access)
            }
            Identity => ProviderAnswer::Identity(AWS_ACCOUNTS[0]),
        }
    }

    fn create(&mut self, api: ProviderApi, name: &str) -> ProviderAnswer {
        if let Some(at) = self.position(name) {
            return match api {
                ProviderApi::Tenants => ProviderAnswer::Made(self.things[at].clone()),
                _ => ProviderAnswer::Rejected(ProviderProblem::Exists),
            };
        }
        self.made += 1;
        let id = format!("{}-{}", self.mishap.account(), self.made);
        let state = if api.is_instant() { ThingState::Ready } else { ThingState::Creating };
        let thing = ProviderThing { id, name: name.to_owned(), state, questions: 1, objects: OBJECTS };
        self.things.push(thing.clone());
        match self.mishap {
            Mishap::LostCreation | Mishap::SecondPage => ProviderAnswer::Lost,
            Mishap::ServerError => ProviderAnswer::Rejected(ProviderProblem::Failure),
            _ => ProviderAnswer::Made(thing),
        }
    }

    fn delete(&mut self, api: ProviderApi, key: &str) -> ProviderAnswer {
        let Some(at) = self.position(key) else {
            return match api {
                ProviderApi::Tenants if self.removed.contains(key) => ProviderAnswer::Removed,
                _ => ProviderAnswer::Rejected(ProviderProblem::NotFound),
            };
        };
        if api == ProviderApi::Bucket && self.things[at].objects > 0 {
            return ProviderAnswer::Rejected(ProviderProblem::Busy);
        }
        match self.mishap {
            Mishap::FailingDeletion => {}
            Mishap::LostDeletion => {
                self.remove(at);
                return ProviderAnswer::Lost;
            }
            _ if api.is_instant() => self.remove(at),
            _ => {
                self.things[at].state = ThingState::Deleting;
                self.things[at].questions = 1;
            }
        }
        ProviderAnswer::Removing
    }

    fn remove(&mut self, at: usize) {
        let thing = self.things.remove(at);
        self.removed.extend([thing.id, thing.name]);
    }
}

impl ProviderState {
    fn respond(self: &Arc<Self>, call: &ReceivedCall) -> CallbackReply {
        if self.api == ProviderApi::Atlas && call.line == "POST /api/oauth/token" {
            return self.grant(call).into();
        }
        let Some((account, request)) = self.api.request(call) else {
            return CannedReply::status(404).with(json!({"message": "the API has no such request"})).into();
        };
        let (mishap, answer) = self.act(&account, &request, call);
        let answer = match answer {
            ProviderAnswer::Lost => CannedReply::lost(),
            ProviderAnswer::Rejected(problem) => return self.problem(problem).into(),
            ProviderAnswer::Made(thing) if self.api == ProviderApi::Tenants => {
                return self.call_back(account, thing.name, mishap != Mishap::EndlessCreation);
            }
            ProviderAnswer::Removing if self.api == ProviderApi::Tenants => {
                let ProviderRequest::Delete(name) = request else { unreachable!("only a deletion removes") };
                return self.call_back(account, name, true);
            }
            other => other,
        };
        self.reply(mishap, &request, &answer).into()
    }

    /// Acts on a request. Returns the answer, and the mishap of the account.
    fn act(&self, name: &str, request: &ProviderRequest, call: &ReceivedCall) -> (Mishap, ProviderAnswer) {
        let mut accounts = self.accounts.lock().unwrap();
        let Some(account) = accounts.get_mut(name) else {
            return (Mishap::Nothing, ProviderAnswer::Rejected(ProviderProblem::NotFound));
        };
        let sent = match self.api {
            ProviderApi::Tenants => Some(0),
            api => self.tokens.iter().position(|token| api.token(call) == Some(token.as_str())),
        };
        let has_expired =
            account.mishap == Mishap::Expired && account.has_expired(request, call.header("authorization"));
        let answer = match (account.mishap, account.is_turned, sent) {
            _ if has_expired => ProviderAnswer::Rejected(ProviderProblem::Unauthorized),
            (_, _, None) | (Mishap::Revoked, true, _) | (Mishap::Rotated, true, Some(0)) => {
                ProviderAnswer::Rejected(ProviderProblem::Unauthorized)
            }
            (Mishap::Hidden, true, _) if *request == ProviderRequest::Identity => {
                ProviderAnswer::Identity(AWS_ACCOUNTS[1])
            }
            (Mishap::Hidden, true, _) => ProviderAnswer::Rejected(ProviderProblem::NotFound),
            _ => account.act(self.api, request),
        };
        (account.mishap, answer)
    }

    /// Answers a client of OAuth with an access token: one of the tokens, and a number.
    fn grant(&self, call: &ReceivedCall) -> CannedReply {
        let known = self.tokens.iter().find(|token| {
            let client = STANDARD.encode(format!("mdb_sa_id_1234:{token}"));
            call.header("authorization").strip_prefix("Basic ") == Some(client.as_str())
        });
        let Some(token) = known else { return CannedReply::status(401).with(json!({"error": "invalid_client"})) };
        let token = format!("{token}.{}", self.granted.fetch_add(1, Ordering::Relaxed));
        CannedReply::ok(json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600}))
    }

    /// Accepts a request of a unit, and reports its end if there is one.
    fn call_back(self: &Arc<Self>, account: String, name: String, has_end: bool) -> CallbackReply {
        let accepted = CannedReply::status(202);
        if !has_end {
            return accepted.into();
        }
        let state = Arc::clone(self);
        accepted.then(async move { vec![state.finish(&account, &name)] })
    }

    /// Ends the creation or deletion of a tenant. Returns the body of the callback.
    fn finish(&self, account: &str, name: &str) -> Value {
        let mut accounts = self.accounts.lock().unwrap();
        let account = accounts.get_mut(account).unwrap();
        let failed = |why: &str| json!({"status": "failed", "reason": {"code": "no-capacity", "message": why}});
        let Some(at) = account.position(name) else { return json!({"status": "succeeded"}) };
        match (account.mishap, account.things[at].state) {
            (_, ThingState::Deleting) => {
                account.remove(at);
                json!({"status": "succeeded"})
            }
            (Mishap::FailingDeletion, ThingState::Ready) => failed("the tenant has open invoices"),
            (Mishap::FailingCreation, _) => {
                account.things[at].state = ThingState::Failed;
                failed("no host has room")
            }
            _ => {
                account.things[at].state = ThingState::Ready;
                let mut outputs = json!({"url": format!("https://{name}.example.net")});
                if account.mishap != Mishap::MissingField {
                    outputs["token"] = self.password.as_str().into();
                }
                json!({"status": "succeeded", "outputs": outputs})
            }
        }
    }
}
