//! Binds the webhooks of a plan to connections.

use std::collections::{BTreeMap, BTreeSet};

use ebb_kube::podspec::is_service_header;

use super::webhook::is_credential_header;
use crate::model::{ConnectionDoc, LineColumn, OWN_UNITS, SandboxDoc, SourceText};
use crate::{Action, BoundConnection, Diagnostic, Diagnostics, Plan, UnitPlan, WebhookAction};

/// The place of secrets, and the people who can store them.
const STORE_SECRET: &str = "an operator of the server adds or corrects it: in `.ebb/secrets.json` with `ebb dev` and \
                            `ebb run`, in `EBB_SECRETS` on AWS";

pub fn names(plan: &Plan) -> BTreeSet<String> {
    bound(plan).map(|(_, connection)| connection.name.clone()).collect()
}

/// Returns true if a unit of the plan can use the connection as `former` describes it, and not as `new` does.
pub fn loses(plan: &Plan, former: &ConnectionDoc, new: &ConnectionDoc) -> bool {
    bound(plan)
        .filter(|(_, connection)| connection.name == former.name.value)
        .any(|one| is_usable(plan, one, former) && !is_usable(plan, one, new))
}

/// Returns the first connection that a unit of a present resource needs, and that is not in `known` as the unit needs it.
pub fn lacking<'a>(plan: &'a Plan, known: &BTreeMap<String, ConnectionDoc>) -> Option<&'a str> {
    let is_known =
        |one: (&UnitPlan, &BoundConnection)| known.get(&one.1.name).is_some_and(|it| is_usable(plan, one, it));
    let mut present = bound(plan).filter(|(unit, _)| plan.former(unit.resource()).is_none());
    present.find(|&one| !is_known(one)).map(|(_, connection)| connection.name.as_str())
}

/// Returns true if a unit of the plan can use its connection as `document` describes it.
fn is_usable(plan: &Plan, (unit, connection): (&UnitPlan, &BoundConnection), document: &ConnectionDoc) -> bool {
    let plugin = plan.resource(unit.resource()).map(|resource| resource.plugin.as_str());
    let is_same = connection.origin == document.origin.value && unit.cluster.as_deref() == document.cluster_name();
    is_same && document.permits(plugin.map_or(OWN_UNITS, unversioned))
}

fn bound(plan: &Plan) -> impl Iterator<Item = (&UnitPlan, &BoundConnection)> {
    let units = plan.hooks.iter().flat_map(|hook| &hook.units).chain(&plan.plugin_updates);
    units.filter_map(|unit| Some((unit, unit.action.connection()?)))
}

fn unversioned(plugin: &str) -> &str {
    plugin.split('@').next().unwrap_or(plugin)
}

/// Freezes connections in a plan. `known` has the present ones by name, and `problem` returns the reason why the secrets of one
/// cannot be used. A unit that the active target already has keeps its own from `current`.
///
/// # Errors
/// Returns an error for each connection that does not exist, does not permit a plugin, leads to another cluster or has no usable
/// secret. Only the first unit that uses it is named.
pub fn bind(
    plan: &mut Plan,
    sandbox: &SandboxDoc,
    (known, problem): (&BTreeMap<String, ConnectionDoc>, impl Fn(&ConnectionDoc) -> Option<String>),
    current: Option<&Plan>,
) -> Result<(), Diagnostics> {
    let (mut found, mut reported) = (Diagnostics::default(), BTreeSet::new());
    let bound: BTreeMap<&str, (&BoundConnection, &Option<String>)> = current
        .iter()
        .flat_map(|current| current.hooks.iter().flat_map(|hook| &hook.units))
        .filter_map(|unit| Some((unit.key.as_str(), (unit.action.connection()?, &unit.cluster))))
        .collect();
    let Plan { hooks, resources, update, plugin_updates, .. } = plan;
    // An update selects some of the units of `update` after this, so those of a living target need no secret yet.
    let updates = plugin_updates.iter_mut().map(|unit| (unit, current.is_none()));
    for (unit, runs) in hooks.iter_mut().flat_map(|hook| &mut hook.units).map(|unit| (unit, true)).chain(updates) {
        let (resource, name) = unit.key.split_once('/').unwrap_or((&unit.key, ""));
        let former = || update.as_ref()?.former.get(resource)?.resource.as_ref();
        let plugin = resources.get(resource).or_else(former).map(|resource| resource.plugin.as_str());
        let Action::Webhook(WebhookAction { connection: Some(connection), headers, .. }) = &mut unit.action else {
            continue;
        };
        if let Some((frozen, cluster)) = bound.get(unit.key.as_str()).filter(|of| of.0.name == connection.name) {
            connection.clone_from(frozen);
            unit.cluster.clone_from(cluster);
            continue;
        }
        // Without the document of the target, an error has the position of the plugin.
        let file = SourceText::new(unit.source.file.as_str(), "");
        let source = if file.name == sandbox.source.name { &sandbox.source } else { &file };
        let (source, at) = match sandbox.resources.iter().find(|one| one.name.value == resource) {
            Some(resource) => (&sandbox.source, resource.plugin.at),
            None => (source, LineColumn { line: unit.source.line, column: unit.source.column }),
        };
        let of_plugin = plugin.map_or(String::new(), |plugin| format!(" of plugin `{plugin}`"));
        let mut wrong = |code, what: &str, help: String| {
            let message = format!("unit `{name}`{of_plugin} uses the connection `{}`, which {what}", connection.name);
            let fix = if code == "header" { &message } else { &help };
            if reported.insert((connection.name.clone(), fix.clone())) {
                found.push(Diagnostic::error(code, source, at, message).help(help));
            }
        };
        let Some(document) = known.get(&connection.name) else {
            wrong("unknown-connection", "does not exist", "create it: ebb apply -f FILE".to_owned());
            continue;
        };
        let user = plugin.map_or(OWN_UNITS, unversioned);
        if !document.permits(user) {
            wrong("denied-connection", "does not permit it", format!("add `{user}` to `plugins` of the connection"));
        } else if let Some(name) = headers.keys().find(|name| document.sets_header(name)) {
            wrong("header", &format!("sets the header `{name}`"), "leave out the header".to_owned());
        } else if let Some(name) = headers.keys().find(|name| document.drops_header(name)) {
            let what = format!("cannot send the header `{name}` through the API server of a cluster");
            wrong("header", &what, "leave out the header".to_owned());
        } else if unit.cluster.as_deref().is_some_and(|cluster| document.cluster_name() != Some(cluster)) {
            wrong("cluster", "does not lead to the cluster of the unit", "leave out `cluster` of the unit".to_owned());
        } else if let Some(problem) = Some(document).filter(|_| runs).and_then(&problem) {
            wrong("unusable-secret", &format!("cannot be used: {problem}"), STORE_SECRET.to_owned());
        } else {
            connection.origin.clone_from(&document.origin.value);
            connection.is_capped = document.max_concurrent.is_some();
            unit.cluster = document.cluster_name().map(str::to_owned);
        }
    }
    if found.has_errors() { Err(found.sorted()) } else { Ok(()) }
}

impl ConnectionDoc {
    /// Returns true if the plugin may use the connection. `_target` stands for the own units of targets.
    pub fn permits(&self, plugin: &str) -> bool {
        self.plugins.iter().any(|permitted| permitted.value == plugin)
    }

    /// Returns the cluster whose relay sends the requests.
    pub fn cluster_name(&self) -> Option<&str> {
        self.cluster.as_ref().map(|name| name.value.as_str())
    }

    /// Returns true for a header that cannot pass the API server of the cluster.
    fn drops_header(&self, name: &str) -> bool {
        self.cluster.is_some() && !is_service_header(&name.to_ascii_lowercase())
    }

    /// Returns true for a header that a webhook with this connection cannot set.
    pub(crate) fn sets_header(&self, name: &str) -> bool {
        is_credential_header(name) || self.auth.header().is_some_and(|own| own.eq_ignore_ascii_case(name))
    }
}
