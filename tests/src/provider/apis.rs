//! The requests and answers of each API.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    AWS_ACCOUNTS, Mishap, ProviderAnswer, ProviderApi, ProviderProblem, ProviderRequest, ProviderState, ProviderThing,
    ThingState,
};
use crate::receiver::{CannedReply, ReceivedCall};

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
    pub(super) fn problem(&self, problem: ProviderProblem) -> CannedReply {
        use ProviderProblem::{Busy, Exists, Full, Limited, NotFound, Unauthorized};
        if self.api == ProviderApi::Rds {
            let (status, code) = match problem {
                NotFound => (404, "DBInstanceNotFound"),
                Exists => (400, "DBInstanceAlreadyExists"),
                Busy => (400, "InvalidDBInstanceState"),
                Full => (400, "InstanceQuotaExceeded"),
                Limited => (400, "Throttling"),
                Unauthorized => (403, "InvalidClientTokenId"),
            };
            let error = format!("<Error><Type>Sender</Type><Code>{code}</Code><Message>{problem:?}</Message></Error>");
            return CannedReply::xml(status, &format!("<ErrorResponse>{error}</ErrorResponse>"));
        }
        let status = match problem {
            NotFound => 404,
            Busy if self.api == ProviderApi::Neon => 423,
            Exists | Busy => 409,
            Full => 422,
            Limited => 429,
            Unauthorized => 401,
        };
        let reply = CannedReply::status(status).with(json!({"message": format!("{problem:?}")}));
        if problem == Limited { reply.after(1) } else { reply }
    }

    pub(super) fn reply(&self, mishap: Mishap, request: &ProviderRequest, answer: &ProviderAnswer) -> CannedReply {
        if self.api == ProviderApi::Rds {
            return rds_reply(request, answer);
        }
        let status = match answer {
            ProviderAnswer::Made(_) if mishap == Mishap::FailingCreation => 202,
            ProviderAnswer::Removing if mishap == Mishap::FailingDeletion => 202,
            ProviderAnswer::Removed => 204,
            ProviderAnswer::Removing if self.api == ProviderApi::Planetscale => 204,
            ProviderAnswer::Made(_) => 201,
            _ => 200,
        };
        CannedReply::status(status).with(self.body(request, answer))
    }

    fn body(&self, request: &ProviderRequest, answer: &ProviderAnswer) -> Value {
        let dsn = |thing: &ProviderThing| {
            format!("postgresql://neondb_owner:{}@ep-{}.example.net/neondb", self.password, thing.id)
        };
        match (self.api, answer) {
            (ProviderApi::Neon, ProviderAnswer::Made(thing)) => json!({
                "branch": self.shown(thing),
                "endpoints": [{"id": format!("ep-{}", thing.id), "type": "read_write", "current_state": "init"}],
                "operations": [{"action": "create_branch", "status": "running"}],
                "connection_uris": [{"connection_uri": dsn(thing)}],
            }),
            (ProviderApi::Neon, ProviderAnswer::Found(thing)) => json!({"branch": self.shown(thing)}),
            (ProviderApi::Neon, ProviderAnswer::Access(thing)) => json!({"uri": dsn(thing)}),
            (ProviderApi::Neon, ProviderAnswer::Listed(things)) => json!({"branches": self.all(things)}),
            (ProviderApi::Planetscale, ProviderAnswer::Listed(things)) => {
                json!({"current_page": 1, "next_page": null, "data": self.all(things)})
            }
            (_, ProviderAnswer::Listed(things)) => self.all(things),
            (ProviderApi::Supabase, ProviderAnswer::Found(thing))
                if *request == ProviderRequest::Read(thing.id.clone()) =>
            {
                let mut detail = json!({
                    "ref": thing.id, "status": supabase_status(thing), "postgres_version": "17",
                    "db_host": format!("db.{}.example.net", thing.id), "db_port": 5432,
                });
                if thing.state == ThingState::Ready {
                    detail["db_user"] = json!("postgres");
                    detail["db_pass"] = json!(self.password);
                }
                detail
            }
            (_, ProviderAnswer::Access(thing)) => json!({
                "id": format!("pw-{}", thing.id), "role": "readwriter", "username": "u", "plain_text": self.password,
                "access_host_url": "eu-west.connect.example.net",
            }),
            (_, ProviderAnswer::Made(thing) | ProviderAnswer::Found(thing)) => self.shown(thing),
            _ => json!({"message": "ok"}),
        }
    }

    fn all(&self, things: &[ProviderThing]) -> Value {
        things.iter().map(|thing| self.shown(thing)).collect()
    }

    fn shown(&self, thing: &ProviderThing) -> Value {
        let is_made = matches!(thing.state, ThingState::Ready | ThingState::Deleting);
        let state = if is_made { "ready" } else { "init" };
        match self.api {
            ProviderApi::Neon => json!({"id": thing.id, "name": thing.name, "current_state": state}),
            ProviderApi::Planetscale => {
                let state = if is_made { "ready" } else { "pending" };
                json!({"id": thing.id, "name": thing.name, "state": state, "ready": is_made, "production": false})
            }
            _ => json!({
                "id": thing.id, "name": thing.name, "project_ref": thing.id, "is_default": false,
                "preview_project_status": supabase_status(thing),
            }),
        }
    }
}

fn supabase_status(thing: &ProviderThing) -> &'static str {
    match thing.state {
        ThingState::Creating => "COMING_UP",
        ThingState::Ready => "ACTIVE_HEALTHY",
        ThingState::Failed => "INIT_FAILED",
        ThingState::Deleting => "GOING_DOWN",
    }
}

fn rds_reply(request: &ProviderRequest, answer: &ProviderAnswer) -> CannedReply {
    let element = |name: &str, content: &str| format!("<{name}>{content}</{name}>");
    let result = match answer {
        ProviderAnswer::Identity(account) => element("Account", account),
        ProviderAnswer::Made(thing) | ProviderAnswer::Found(thing) => {
            let status = match thing.state {
                ThingState::Creating => "creating",
                ThingState::Ready => "available",
                ThingState::Failed => "failed",
                ThingState::Deleting => "deleting",
            };
            let arn = format!("arn:aws:rds:eu-west-1:{}:db:{}", AWS_ACCOUNTS[0], thing.name);
            let address = element("Address", &format!("{}.example.net", thing.id));
            let parts = [
                element("DBInstanceIdentifier", &thing.name),
                element("DBInstanceStatus", status),
                element("DBInstanceArn", &arn),
                element("Endpoint", &address),
            ];
            element("DBInstance", &parts.concat())
        }
        _ => String::new(),
    };
    let kind = match request {
        ProviderRequest::Create(_) => "CreateDBInstance",
        ProviderRequest::Delete(_) => "DeleteDBInstance",
        ProviderRequest::Identity => "GetCallerIdentity",
        _ => "DescribeDBInstances",
    };
    let result = element(&format!("{kind}Result"), &result);
    CannedReply::xml(200, &element(&format!("{kind}Response"), &result))
}
