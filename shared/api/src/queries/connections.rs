//! Connections, as named documents.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::notification::NotificationRule;
use ebb_documents::{ConnectionDoc, Diagnostics, DocumentVars, NoFiles, Plan, compile, load};
use ebb_flow::instance::outbox;
use ebb_flow::{Env, FlowResult, offload, secret_problem};
use ebb_protocol::{ConnectionDetail, ConnectionInfo, ConnectionList, rfc3339};
use ebb_store::{NamedDocument, NamedKind};

use super::clusters;
use super::named_documents::{self, StoredKind};

impl StoredKind for ConnectionDoc {
    const KIND: NamedKind = NamedKind::Connection;
    type List = ConnectionList;
    type Detail = ConnectionDetail;

    fn checked(name: &str, text: &str) -> Result<NamedDocument, Diagnostics> {
        let connection = load::connection("document", text, &NoFiles, &DocumentVars::none())?;
        named_documents::check(name, (&connection.name, &connection.source), connection.expanded)
    }

    const LOSS: &str =
        "Without it, units fail, teardowns become stuck, sources reject events, and subscriptions send nothing";

    async fn users(env: &Env, name: &str) -> FlowResult<Option<Vec<String>>> {
        let users = named_users(env, name).await?;
        let targets = clusters::users(env, |_| true, |plan| compile::connection::names(plan).contains(name)).await?;
        Ok(targets.map(|targets| [users, targets].concat()))
    }

    async fn losers(env: &Env, former: &NamedDocument, new: &NamedDocument) -> FlowResult<Option<Vec<String>>> {
        let texts = [former.document.clone(), new.document.clone()];
        let load = |text: String| load::connection("document", &text, &NoFiles, &DocumentVars::none());
        // Nothing can use a document that has errors.
        let [Ok(former), Ok(new)] = offload(move || texts.map(load)).await? else { return Ok(Some(Vec::new())) };
        let permits = |document: &ConnectionDoc, user: &str| {
            let listed = [("source", &document.sources), ("subscription", &document.subscriptions)];
            listed.iter().any(|(kind, names)| names.iter().any(|name| format!("{kind} {}", name.value) == user))
        };
        let mut users = named_users(env, &new.name.value).await?;
        users.retain(|user| permits(&former, user) && !permits(&new, user));
        // Otherwise no plan is read.
        let keeps_targets =
            former.origin.value == new.origin.value && former.plugins.iter().all(|plugin| new.permits(&plugin.value));
        let targets = match keeps_targets {
            true => Some(Vec::new()),
            false => clusters::users(env, |_| true, |plan| compile::connection::loses(plan, &former, &new)).await?,
        };
        Ok(targets.map(|targets| [users, targets].concat()))
    }

    async fn list(env: &Env) -> FlowResult<ConnectionList> {
        let mut connections = Vec::new();
        for item in env.store.list_documents(Self::KIND).await? {
            connections.push(Self::detail(env, item).await?.info);
        }
        Ok(ConnectionList { connections })
    }

    async fn detail(env: &Env, item: NamedDocument) -> FlowResult<ConnectionDetail> {
        let NamedDocument { name, document, changed } = item;
        let text = document.clone();
        let loaded = offload(move || load::connection("document", &text, &NoFiles, &DocumentVars::none())).await?;
        let unknown = ConnectionInfo { name, changed: rfc3339(changed), ..ConnectionInfo::default() };
        let info = match loaded {
            Ok(connection) => about(env, connection, unknown),
            Err(errors) => {
                ConnectionInfo { unreadable: Some(named_documents::unreadable(&unknown.name, &errors)), ..unknown }
            }
        };
        Ok(ConnectionDetail { info, document })
    }
}

/// Names the targets that are not gone and need a connection which does not exist, has another origin or does not permit their
/// plugin, with these connections.
pub(super) async fn lacking(env: &Env) -> FlowResult<Option<String>> {
    let items = env.store.list_documents(NamedKind::Connection).await?;
    let load = |NamedDocument { name, document, .. }| {
        Some((name, load::connection("document", &document, &NoFiles, &DocumentVars::none()).ok()?))
    };
    let known: BTreeMap<_, _> = offload(move || items.into_iter().filter_map(load).collect()).await?;
    let mut names = BTreeSet::new();
    let is_lacking = |plan: &Plan| {
        let lacking = compile::connection::lacking(plan, &known);
        names.extend(lacking.map(str::to_owned));
        lacking.is_some()
    };
    let targets = clusters::users(env, |_| true, is_lacking).await?.unwrap_or_default().join(", ");
    let names = Vec::from_iter(names).join(", ");
    Ok((!names.is_empty()).then(|| format!("{targets}: no connection that permits what they need: {names}")))
}

/// Returns the sources and subscriptions that name the connection, as `source NAME` and `subscription NAME`.
async fn named_users(env: &Env, connection: &str) -> FlowResult<Vec<String>> {
    let (sources, own) = (env.store.list_documents(NamedKind::Source).await?, connection.to_owned());
    let name_of = move |item: NamedDocument| {
        let source = load::event_source("document", &item.document, &NoFiles, &DocumentVars::none()).ok()?;
        source.fetch.filter(|fetch| fetch.connection.value == own).map(|_| format!("source {}", item.name))
    };
    let mut users: Vec<String> = offload(move || sources.into_iter().filter_map(name_of).collect()).await?;
    let rules = outbox::rules(env).await?;
    let uses = |rule: &&NotificationRule| rule.to.connection().is_some_and(|name| name.value == connection);
    users.extend(rules.iter().filter(uses).map(|rule| format!("subscription {}", rule.name)));
    Ok(users)
}

fn about(env: &Env, connection: ConnectionDoc, unknown: ConnectionInfo) -> ConnectionInfo {
    let reader = env.settings.secrets.as_ref();
    let problem = secret_problem(reader, &env.settings.unit_keys, &connection);
    let ConnectionDoc { origin, cluster, auth, plugins, sources, subscriptions, max_concurrent, .. } = connection;
    let secrets: Vec<&str> = auth.secrets().map(|name| name.value.as_str()).collect();
    let has_secret = !secrets.iter().any(|secret| matches!(reader.checked(secret), Ok(None)));
    let cluster = cluster.map(|name| name.value).unwrap_or_default();
    let of_cluster = auth.cluster_secret().map(|it| format!("{}/{} of {cluster}", it.namespace.value, it.name.value));
    ConnectionInfo {
        origin: origin.value,
        auth: auth.name().to_owned(),
        secret: of_cluster.unwrap_or_else(|| secrets.join(", ")),
        has_secret,
        problem,
        plugins: plugins.into_iter().map(|plugin| plugin.value).collect(),
        sources: sources.into_iter().map(|source| source.value).collect(),
        subscriptions: subscriptions.into_iter().map(|name| name.value).collect(),
        max_concurrent: max_concurrent.map(|slots| slots.value),
        ..unknown
    }
}
