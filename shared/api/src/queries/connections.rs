//! Connections, as named documents.

use ebb_documents::notification::NotificationRule;
use ebb_documents::{ConnectionDoc, Diagnostics, DocumentVars, NoFiles, compile, load};
use ebb_flow::instance::outbox;
use ebb_flow::{Env, FlowResult, offload};
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

    const LOSS: &str = "Without it, units fail, teardowns become stuck, and subscriptions send nothing";

    async fn users(env: &Env, name: &str) -> FlowResult<Option<Vec<String>>> {
        let rules = outbox::rules(env).await?;
        let uses = |rule: &&NotificationRule| rule.to.connection().is_some_and(|connection| connection.value == name);
        let subscriptions = rules.iter().filter(uses).map(|rule| format!("subscription {}", rule.name));
        let targets = clusters::users(env, |_| true, |plan| compile::connection::names(plan).contains(name)).await?;
        Ok(targets.map(|targets| subscriptions.chain(targets).collect()))
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

fn about(env: &Env, connection: ConnectionDoc, unknown: ConnectionInfo) -> ConnectionInfo {
    let ConnectionDoc { origin, auth, plugins, sources, subscriptions, max_concurrent, .. } = connection;
    let secrets: Vec<&str> = auth.secrets().map(|name| name.value.as_str()).collect();
    let has_secret = secrets.iter().all(|secret| {
        let found = env.settings.secrets.secret(secret).unwrap_or_else(|error| {
            tracing::error!(error, "cannot read the secrets of the deployment");
            None
        });
        found.is_some()
    });
    ConnectionInfo {
        origin: origin.value,
        auth: auth.name().to_owned(),
        secret: secrets.join(", "),
        has_secret,
        plugins: plugins.into_iter().map(|plugin| plugin.value).collect(),
        sources: sources.into_iter().map(|source| source.value).collect(),
        subscriptions: subscriptions.into_iter().map(|name| name.value).collect(),
        max_concurrent: max_concurrent.map(|slots| slots.value),
        ..unknown
    }
}
