//! The documents of the targets.

/// A thing that is made and dropped over HTTP by a receiver at `url`.
pub(crate) fn webhook_plugin(url: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1
kind: Plugin
name: thing@1.0.0
defaults: {{timeout: 5m, retry: {{attempts: 10, backoff: 200ms, maxBackoff: 5s, on: [connect, timeout, 429, 5xx]}}}}
preStart:
  make:
    webhook:
      url: \"{url}/things\"
      body: {{name: \"${{target.name}}\"}}
    outputs:
      id: {{value: \"${{response.body.id}}\"}}
postStop:
  drop:
    undoes: make
    webhook: {{method: DELETE, url: \"{url}/things/${{target.name}}\"}}
outputs:
  id: ${{units.make.outputs.id}}
"
    )
}

/// A script that makes something and one that removes it.
pub(crate) const POD_PLUGIN: &str = "apiVersion: ebb.dev/v1
kind: Plugin
name: script@1.0.0
runners: {shell: {image: \"busybox:1.37\"}}
preStart:
  make:
    pod: {script: \"#!/bin/sh\\nprintf %s \\\"$EBB_KEY\\\" >/tmp/name\"}
    outputs: {name: {file: /tmp/name}}
postStop:
  remove:
    undoes: make
    pod: {script: \"#!/bin/sh\\n[ -n \\\"$NAME\\\" ]\"}
    inputs: {name: \"${units.make.outputs.name}\"}
outputs: {name: \"${units.make.outputs.name}\"}
";

/// A sandbox with a thing, and a script if it is one `with_script`.
pub(crate) fn sandbox(name: &str, with_script: bool) -> String {
    let script = if with_script { "\n  script: {plugin: script@1.0.0}" } else { "" };
    format!(
        "apiVersion: ebb.dev/v1
kind: Sandbox
name: {name}
cluster: local
resources:
  thing: {{plugin: thing@1.0.0}}{script}
"
    )
}
