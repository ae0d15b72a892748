//! Documents, and the way from text to a plan.

use std::collections::BTreeMap;

use semver::Version;

use crate::compile::{self, BoundPlugin};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::load::{self, Document, DocumentVars, NoFiles};
use crate::model::PluginDoc;
use crate::plan::Plan;

/// A database for each sandbox, as in the format's description.
pub(crate) const TENANT_DB: &str = r##"apiVersion: ebb.dev/v1
kind: Plugin
name: tenant-db@2.1.0
params:
  region: {type: string, enum: [eu-west-1, us-east-1], default: eu-west-1}
  seedRows: {type: integer, minimum: 0, default: 100}
  adminDsn: {type: string, sensitive: true}
runners:
  psql: {image: "postgres:17-alpine", namespace: ebb-units}
defaults: {timeout: 5m, retry: {attempts: 3, backoff: 2s, maxBackoff: 30s}}
preStart:
  database:
    pod:
      runner: psql
      script: |
        #!/bin/sh -eu
        createdb "${EBB_KEY}"
    inputs:
      admin-dsn: ${params.adminDsn}
    outputs:
      name: {file: /out/name}
      dsn: {file: /out/dsn, sensitive: true}
  seed:
    when: ${params.seedRows > 0}
    timeout: 15m
    pod: {runner: psql, script: "#!/bin/sh\npsql"}
    inputs:
      dsn: {value: "${units.database.outputs.dsn}", path: /in/dsn}
      rows: ${params.seedRows}
  cache:
    object:
      manifest:
        apiVersion: cache.example.org/v1
        kind: Redis
        metadata: {name: "cache-${target.key}", namespace: "${target.namespace}"}
        spec: {region: "${params.region}", auth: "${secretRef(units.database.outputs.dsn)}", size: 3}
      ready: ${object.status.phase == "Up"}
      fail: ${object.status.phase == "Broken"}
    outputs: {host: {value: "${object.status.host}"}}
postStart:
  register:
    webhook:
      url: https://billing.example.org/tenants?region=${params.region}
      body: {tenant: "${target.name}", db: "${units.database.outputs.name}", rows: "${params.seedRows}"}
    retry: {attempts: 8, on: [timeout, "429", 5xx]}
    outputs: {tenant: {value: "${response.body.id}"}}
postStop:
  unregister:
    undoes: register
    webhook: {method: DELETE, url: "https://billing.example.org/tenants/${units.register.outputs.tenant}"}
  drop:
    undoes: database
    after: [unregister]
    pod: {runner: psql, script: "#!/bin/sh\ndropdb"}
    inputs: {admin-dsn: "${params.adminDsn}", name: "${units.database.outputs.name}"}
outputs:
  dsn: ${units.database.outputs.dsn}
  host: ${units.cache.outputs.host}
"##;

/// A server that databases are made on.
pub(crate) const SHARED_PG: &str = r##"apiVersion: ebb.dev/v1
kind: Plugin
name: shared-postgres@1.4.0
runners:
  default: {image: "postgres:17-alpine"}
preStart:
  start:
    pod: {script: "#!/bin/sh\nrun"}
    outputs:
      dsn: {file: /out/dsn, sensitive: true}
      port: {file: /out/port}
postStop:
  stop:
    undoes: start
    pod: {script: "#!/bin/sh\nstop"}
outputs:
  dsn: ${units.start.outputs.dsn}
  port: ${units.start.outputs.port}
"##;

/// A sandbox that wires one into the other.
pub(crate) const WIRED: &str = r##"apiVersion: ebb.dev/v1
kind: Sandbox
name: pr-1234
cluster: staging-eu
resources:
  pg: {plugin: shared-postgres@1.4.0}
  users:
    plugin: tenant-db@2.1.0
    params: {adminDsn: "${resources.pg.outputs.dsn}", seedRows: 500}
env: {DATABASE_URL: "${resources.users.outputs.dsn}", PORT: "p${resources.pg.outputs.port}"}
"##;

/// The plugins of some documents.
pub(crate) fn plugins(documents: &[&str]) -> Result<Vec<PluginDoc>, Diagnostics> {
    let mut plugins = Vec::new();
    for text in documents {
        plugins.extend(load::plugins("plugin.yaml", text, &NoFiles, &DocumentVars::none())?);
    }
    Ok(plugins)
}

/// The plan of a sandbox with these plugins, and the warnings.
pub(crate) fn compiled(sandbox: &str, documents: &[&str]) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let plugins = plugins(documents)?;
    let sandbox = load::sandbox("sandbox.yaml", sandbox, &NoFiles, &DocumentVars::none())?;
    let none = Version::new(0, 0, 0);
    let mut bound = BTreeMap::new();
    for resource in &sandbox.resources {
        if let Some(plugin) = plugins.iter().find(|plugin| plugin.name.value == resource.plugin.value) {
            let version = plugin.version.as_ref().unwrap_or(&none);
            bound.insert(resource.name.value.clone(), BoundPlugin { plugin, version, digest: "sha256:00" });
        }
    }
    compile::plan(&sandbox, &bound)
}

/// Returns the errors of a plugin, or its warnings.
pub(crate) fn checked(text: &str) -> Vec<Diagnostic> {
    let document = load::document("plugin.yaml", text, &NoFiles, &DocumentVars::none());
    match document {
        Ok(Document::Plugin(plugin)) => match compile::check_plugin(&plugin) {
            Ok(warnings) => warnings,
            Err(errors) => errors.into_iter().collect(),
        },
        Ok(_) => panic!("this is no plugin"),
        Err(errors) => errors.into_iter().collect(),
    }
}

/// The plan of a sandbox whose only resource, `r`, is this plugin.
pub(crate) fn bound(plugin: &PluginDoc) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let sandbox = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: s\nresources: {r: {plugin: p}}\n";
    let sandbox = load::sandbox("sandbox.yaml", sandbox, &NoFiles, &DocumentVars::none())?;
    let version = Version::new(0, 0, 0);
    compile::plan(&sandbox, &[("r".to_owned(), BoundPlugin { plugin, version: &version, digest: "sha256:00" })].into())
}
