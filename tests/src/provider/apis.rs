//! The requests of each API, and its answers, whose form `answers.yaml` has.

use std::collections::BTreeMap;
use std::slice;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Mishap, ProviderAnswer, ProviderApi, ProviderProblem, ProviderRequest, ProviderState, ProviderThing};
use crate::receiver::{CannedReply, ReceivedCall};

/// The fields of a thing: those of `all`, and those of its state.
type ThingForm = BTreeMap<String, Map<String, Value>>;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ApiAnswers {
    problems: BTreeMap<String, (u16, String)>,
    problem: Value,
    thing: ThingForm,
    detail: Option<ThingForm>,
    made: Value,
    found: Value,
    listed: Value,
    page: Value,
    access: Value,
    other: Value,
}

static ANSWERS: LazyLock<BTreeMap<String, ApiAnswers>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("answers.yaml")).unwrap());

/// The collections of things in paths.
const COLLECTIONS: [&str; 5] = ["branches", "buckets", "clusters", "customers", "tenants"];
/// The parameters of a query that ask for a further page.
const FURTHER: [&str; 4] = ["cursor", "page", "pageNum", "starting_after"];
/// The version of the API that requests to Atlas name.
const ATLAS_VERSION: &str = "application/vnd.atlas.2024-08-05+json";
/// The maximum number of objects of a bucket in an answer.
const OBJECTS_OF_PAGE: usize = 2;

impl ProviderApi {
    pub(super) fn request(self, call: &ReceivedCall) -> Option<(String, ProviderRequest)> {
        use ProviderRequest::{Access, Create, Delete, Identity, List, Objects, Read};
        let (method, path) = call.line.split_once(' ')?;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let is_further =
            call.query.split('&').any(|pair| FURTHER.contains(&pair.split('=').next().unwrap_or_default()));
        let form: BTreeMap<&str, &str> =
            call.body.as_str().unwrap_or_default().split('&').filter_map(|field| field.split_once('=')).collect();
        let (account, rest) = match (self, parts.as_slice()) {
            (Self::Neon, ["api", "v2", "projects", account, rest @ ..])
            | (Self::Planetscale, ["v1", "organizations", _, "databases", account, rest @ ..])
            | (Self::Supabase, ["v1", "projects", account, rest @ ..])
            | (Self::Bucket, ["client", "v4", "accounts", account, "r2", rest @ ..])
            | (Self::Rds, ["rds", account, rest @ ..])
            | (Self::Tenants, ["regions", account, rest @ ..]) => (*account, rest),
            (Self::Atlas, ["api", "atlas", "v2", "groups", account, rest @ ..])
                if call.header("accept") == ATLAS_VERSION =>
            {
                (*account, rest)
            }
            (Self::Supabase, ["v1", rest @ ..]) => (rest.last()?.rsplit_once('-')?.0, rest),
            (Self::Stripe, ["v1", rest @ ..]) => (call.header("stripe-account"), rest),
            (Self::Railway, ["graphql", "v2"]) => return of_graphql(&call.body),
            _ => return None,
        };
        let name = match self {
            Self::Neon => call.body["branch"]["name"].as_str(),
            Self::Supabase => call.body["branch_name"].as_str(),
            Self::Stripe => form.get("name").copied(),
            Self::Tenants => call.body["key"].as_str(),
            Self::Planetscale | Self::Atlas | Self::Bucket | Self::Railway | Self::Rds => call.body["name"].as_str(),
        };
        let request = match (method, rest) {
            ("POST", [kind]) if COLLECTIONS.contains(kind) => Create(name?.to_owned()),
            ("GET", [kind]) if COLLECTIONS.contains(kind) => List(is_further),
            ("GET", [kind, key]) if COLLECTIONS.contains(kind) => Read((*key).to_owned()),
            ("DELETE", [kind, key]) if COLLECTIONS.contains(kind) => Delete((*key).to_owned()),
            ("GET", ["buckets", key, "objects"]) => Objects((*key).to_owned(), 0),
            ("DELETE", ["buckets", key, "objects"]) => Objects((*key).to_owned(), call.body.as_array()?.len()),
            ("GET", ["connection_uri"]) | ("POST", ["branches", _, "passwords"]) => Access,
            ("POST", []) if self == Self::Rds => {
                let name = || form.get("DBInstanceIdentifier").map(|name| (*name).to_owned());
                match *form.get("Action")? {
                    "CreateDBInstance" => Create(name()?),
                    "DescribeDBInstances" => name().map_or(List(false), Read),
                    "DeleteDBInstance" => Delete(name()?),
                    "GetCallerIdentity" => Identity,
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some((account.to_owned(), request))
    }

    /// Returns the token of a request. The service of one's own has verified a signature.
    pub(super) fn token(self, call: &ReceivedCall) -> Option<&str> {
        let header = call.header("authorization");
        match self {
            Self::Neon | Self::Supabase | Self::Stripe | Self::Bucket | Self::Railway => header.strip_prefix("Bearer "),
            Self::Atlas => header.strip_prefix("Bearer ")?.split('.').next(),
            Self::Planetscale => Some(header),
            Self::Rds => header.split_once("Credential=")?.1.split('/').next(),
            Self::Tenants => None,
        }
    }
}

/// Returns the account and the request of an operation of GraphQL.
fn of_graphql(body: &Value) -> Option<(String, ProviderRequest)> {
    let (query, variables) = (body["query"].as_str()?, &body["variables"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if query.contains("environmentCreate(") {
        let input = &variables["input"];
        return Some((text(&input["projectId"])?, ProviderRequest::Create(text(&input["name"])?)));
    }
    if query.contains("environmentDelete(") {
        let id = text(&variables["id"])?;
        return Some((id.rsplit_once('-')?.0.to_owned(), ProviderRequest::Delete(id)));
    }
    Some((text(&variables["projectId"])?, ProviderRequest::List(false)))
}

impl ProviderState {
    fn answers(&self) -> &'static ApiAnswers {
        &ANSWERS[&format!("{:?}", self.api).to_lowercase()]
    }

    pub(super) fn problem(&self, problem: ProviderProblem) -> CannedReply {
        let name = format!("{problem:?}");
        let (status, code) = &self.answers().problems[&name];
        if self.api == ProviderApi::Rds && !code.is_empty() {
            let error = json!({"Type": "Sender", "Code": code, "Message": name});
            return CannedReply::text(*status, "text/xml", &xml(&json!({"ErrorResponse": {"Error": error}})));
        }
        let message = if code.is_empty() { &name } else { code };
        let body = self.answers().problem.to_string().replace("{problem}", message);
        let reply = CannedReply::status(*status).with(serde_json::from_str(&body).unwrap());
        if problem == ProviderProblem::Limited { reply.after(1) } else { reply }
    }

    pub(super) fn reply(&self, mishap: Mishap, request: &ProviderRequest, answer: &ProviderAnswer) -> CannedReply {
        let mut body = self.body(request, answer);
        if mishap == Mishap::MissingField && matches!(answer, ProviderAnswer::Made(_)) {
            remove_names(&mut body);
        }
        if self.api == ProviderApi::Rds {
            let kind = match request {
                ProviderRequest::Create(_) => "CreateDBInstance",
                ProviderRequest::Delete(_) => "DeleteDBInstance",
                ProviderRequest::Identity => "GetCallerIdentity",
                _ => "DescribeDBInstances",
            };
            let (response, result) = (format!("{kind}Response"), format!("{kind}Result"));
            return CannedReply::text(200, "text/xml", &xml(&json!({ response: { result: body } })));
        }
        let status = match answer {
            _ if self.api.is_instant() => 200,
            ProviderAnswer::Made(_) if mishap == Mishap::FailingCreation => 202,
            ProviderAnswer::Removing if mishap == Mishap::FailingDeletion => 202,
            ProviderAnswer::Removed => 204,
            ProviderAnswer::Removing if self.api == ProviderApi::Planetscale => 204,
            ProviderAnswer::Removing if self.api == ProviderApi::Atlas => 202,
            ProviderAnswer::Made(_) => 201,
            _ => 200,
        };
        CannedReply::status(status).with(body)
    }

    fn body(&self, request: &ProviderRequest, answer: &ProviderAnswer) -> Value {
        let answers = self.answers();
        let (body, things) = match answer {
            ProviderAnswer::Made(thing) => (&answers.made, slice::from_ref(thing)),
            ProviderAnswer::Found(thing) => (&answers.found, slice::from_ref(thing)),
            ProviderAnswer::Access(thing) => (&answers.access, slice::from_ref(thing)),
            ProviderAnswer::Listed(things, true) => (&answers.page, things.as_slice()),
            ProviderAnswer::Listed(things, false) => (&answers.listed, things.as_slice()),
            ProviderAnswer::Identity(account) => return json!({"Account": account}),
            ProviderAnswer::Objects(count) => {
                let shown = (1..=*count).take(OBJECTS_OF_PAGE).map(|number| json!({"key": format!("a/{number}")}));
                let more = json!({"cursor": "next", "is_truncated": *count > OBJECTS_OF_PAGE});
                return json!({"success": true, "errors": [], "result": shown.collect::<Value>(), "result_info": more});
            }
            _ => {
                let key = match request {
                    ProviderRequest::Delete(key) | ProviderRequest::Read(key) => key.as_str(),
                    _ => "",
                };
                return serde_json::from_str(&answers.other.to_string().replace("{id}", key)).unwrap();
            }
        };
        let shown = |thing: &ProviderThing| {
            let is_detailed = *request == ProviderRequest::Read(thing.id.clone());
            let form = answers.detail.as_ref().filter(|_| is_detailed).unwrap_or(&answers.thing);
            let state = format!("{:?}", thing.state);
            let parts = ["all", state.as_str()].into_iter().filter_map(|part| form.get(part));
            let fields: Map<String, Value> =
                parts.flatten().map(|(name, value)| (name.clone(), value.clone())).collect();
            self.filled(&Value::Object(fields).to_string(), thing)
        };
        let all: Vec<String> = things.iter().map(shown).collect();
        let body = body.to_string().replace("\"THINGS\"", &format!("[{}]", all.join(",")));
        let body = match (things, all.as_slice()) {
            ([thing], [shown]) => self.filled(&body.replace("\"THING\"", shown), thing),
            _ => body,
        };
        serde_json::from_str(&body).unwrap()
    }

    fn filled(&self, text: &str, thing: &ProviderThing) -> String {
        text.replace("{id}", &thing.id).replace("{name}", &thing.name).replace("{password}", &self.password)
    }
}

fn remove_names(body: &mut Value) {
    match body {
        Value::Object(fields) => {
            fields.retain(|name, _| !["id", "name"].contains(&name.as_str()));
            fields.values_mut().for_each(remove_names);
        }
        Value::Array(list) => list.iter_mut().for_each(remove_names),
        _ => {}
    }
}

/// Returns the elements of an object or of a list of objects, in their order.
fn xml(content: &Value) -> String {
    match content {
        Value::Object(elements) => {
            elements.iter().map(|(name, content)| format!("<{name}>{}</{name}>", xml(content))).collect()
        }
        Value::Array(list) => list.iter().map(xml).collect(),
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}
