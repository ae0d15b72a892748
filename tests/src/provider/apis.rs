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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiAnswers {
    problems: BTreeMap<String, (u16, String)>,
    thing: ThingForm,
    detail: Option<ThingForm>,
    #[serde(default)]
    made: Value,
    #[serde(default)]
    found: Value,
    #[serde(default)]
    listed: Value,
    #[serde(default)]
    access: Value,
    other: Value,
}

static ANSWERS: LazyLock<BTreeMap<String, ApiAnswers>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("answers.yaml")).unwrap());

impl ProviderApi {
    pub(super) fn request(self, call: &ReceivedCall) -> Option<(String, ProviderRequest)> {
        use ProviderRequest::{Access, Create, Delete, Identity, List, Read};
        let (method, path) = call.line.split_once(' ')?;
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (account, rest) = match (self, parts.as_slice()) {
            (Self::Neon, ["api", "v2", "projects", account, rest @ ..])
            | (Self::Planetscale, ["v1", "organizations", _, "databases", account, rest @ ..])
            | (Self::Supabase, ["v1", "projects", account, rest @ ..])
            | (Self::Rds, ["rds", account, rest @ ..])
            | (Self::Tenants, ["regions", account, rest @ ..]) => (*account, rest),
            (Self::Supabase, ["v1", rest @ ..]) => (rest.last()?.rsplit_once('-')?.0, rest),
            _ => return None,
        };
        let name = match self {
            Self::Neon => &call.body["branch"]["name"],
            Self::Planetscale => &call.body["name"],
            Self::Supabase => &call.body["branch_name"],
            Self::Rds | Self::Tenants => &call.body["key"],
        };
        let request = match (method, rest) {
            ("POST", ["branches" | "tenants"]) => Create(name.as_str()?.to_owned()),
            ("GET", ["branches" | "tenants"]) => List,
            ("GET", ["branches", key]) => Read((*key).to_owned()),
            ("DELETE", ["branches" | "tenants", key]) => Delete((*key).to_owned()),
            ("GET", ["connection_uri"]) | ("POST", ["branches", _, "passwords"]) => Access,
            ("POST", []) if self == Self::Rds => {
                let fields = call.body.as_str()?.split('&').filter_map(|field| field.split_once('='));
                let fields: BTreeMap<&str, &str> = fields.collect();
                let name = || fields.get("DBInstanceIdentifier").map(|name| (*name).to_owned());
                match *fields.get("Action")? {
                    "CreateDBInstance" => Create(name()?),
                    "DescribeDBInstances" => Read(name()?),
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
            Self::Neon | Self::Supabase => header.strip_prefix("Bearer "),
            Self::Planetscale => Some(header),
            Self::Rds => header.split_once("Credential=")?.1.split('/').next(),
            Self::Tenants => None,
        }
    }
}

impl ProviderState {
    fn answers(&self) -> &'static ApiAnswers {
        &ANSWERS[&format!("{:?}", self.api).to_lowercase()]
    }

    pub(super) fn problem(&self, problem: ProviderProblem) -> CannedReply {
        let name = format!("{problem:?}");
        let (status, code) = &self.answers().problems[&name];
        if !code.is_empty() {
            let error = json!({"Type": "Sender", "Code": code, "Message": name});
            return CannedReply::xml(*status, &xml(&json!({"ErrorResponse": {"Error": error}})));
        }
        let reply = CannedReply::status(*status).with(json!({"message": name}));
        if problem == ProviderProblem::Limited { reply.after(1) } else { reply }
    }

    pub(super) fn reply(&self, mishap: Mishap, request: &ProviderRequest, answer: &ProviderAnswer) -> CannedReply {
        let body = self.body(request, answer);
        if self.api == ProviderApi::Rds {
            let kind = match request {
                ProviderRequest::Create(_) => "CreateDBInstance",
                ProviderRequest::Delete(_) => "DeleteDBInstance",
                ProviderRequest::Identity => "GetCallerIdentity",
                _ => "DescribeDBInstances",
            };
            let (response, result) = (format!("{kind}Response"), format!("{kind}Result"));
            return CannedReply::xml(200, &xml(&json!({ response: { result: body } })));
        }
        let status = match answer {
            ProviderAnswer::Made(_) if mishap == Mishap::FailingCreation => 202,
            ProviderAnswer::Removing if mishap == Mishap::FailingDeletion => 202,
            ProviderAnswer::Removed => 204,
            ProviderAnswer::Removing if self.api == ProviderApi::Planetscale => 204,
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
            ProviderAnswer::Listed(things) => (&answers.listed, things.as_slice()),
            ProviderAnswer::Identity(account) => return json!({"Account": account}),
            _ => return answers.other.clone(),
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

    /// Sets the values of a thing in a text.
    fn filled(&self, text: &str, thing: &ProviderThing) -> String {
        text.replace("{id}", &thing.id).replace("{name}", &thing.name).replace("{password}", &self.password)
    }
}

/// Returns the elements of an object, in their order.
fn xml(content: &Value) -> String {
    match content {
        Value::Object(elements) => {
            elements.iter().map(|(name, content)| format!("<{name}>{}</{name}>", xml(content))).collect()
        }
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}
