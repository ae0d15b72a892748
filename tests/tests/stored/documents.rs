//! The documents of what is stored.

use ebb_store::store::DOCUMENT_INLINE;

const WEBHOOKS: &str = r#"
apiVersion: ebb.dev/v1
kind: Plugin
name: stored@1.0.0
preStart:
  make:
    webhook: {url: "https://units.test/make", body: {target: "${target.name}"}}
    retry: {attempts: 1}
    outputs: {id: {value: "${response.body.id}"}, text: {value: "${response.body.text}"}}
  wait:
    webhook: {url: "https://units.test/wait", body: {target: "${target.name}", id: "${units.make.outputs.id}"}}
    retry: {attempts: 3, backoff: 20s, maxBackoff: 20s}
    outputs: {code: {value: "${response.body.code}"}}
postStop:
  unwait:
    undoes: wait
    webhook: {url: "https://units.test/unwait", body: {target: "${target.name}", code: "${units.wait.outputs.code}"}}
  unmake:
    undoes: make
    after: [unwait]
    webhook: {url: "https://units.test/unmake", body: {target: "${target.name}", id: "${units.make.outputs.id}", text: "${units.make.outputs.text}"}}
    retry: {attempts: 1}
outputs: {id: "${units.make.outputs.id}"}
"#;
const SCRIPTS: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: scripts@1.0.0
runners: {shell: {image: "busybox:1.36"}}
preStart:
  make:
    pod: {script: "#!/bin/sh\nprintf %s \"$EBB_KEY\" >/tmp/name"}
    outputs: {name: {file: /tmp/name}}
  use:
    pod: {script: "#!/bin/sh\nexit 0"}
    inputs: {name: "${units.make.outputs.name}"}
postStop:
  drop:
    undoes: make
    pod: {script: "#!/bin/sh\nexit 0"}
    inputs: {name: "${units.make.outputs.name}"}
"##;

/// Units of [`wide`] that fill the first item of a run: what comes after them is in the second.
pub(crate) const MANY: usize = 256;

/// More units than one item of a run holds, in a document that is too large for the table.
fn wide() -> String {
    let unit = |name: &str| {
        format!("{{url: \"https://units.test/{name}\", body: {{target: \"${{target.name}}\"}}}}")
    };
    let mut text =
        "apiVersion: ebb.dev/v1\nkind: Plugin\nname: wide@1.0.0\ndefaults: {retry: {attempts: 1}}\npreStart:\n"
            .to_owned();
    for number in 0..MANY {
        text += &format!("  a{number}: {{webhook: {{url: \"https://units.test/a\"}}}}\n");
    }
    let retry = "retry: {attempts: 2, backoff: 20s, maxBackoff: 20s}";
    text += &format!("  again: {{webhook: {}, {retry}}}\n", unit("again"));
    for name in ["fail", "late", "later"] {
        text += &format!("  {name}: {{webhook: {}}}\n", unit(name));
    }
    text += &format!("postStop:\n  undo: {{undoes: [late, later], webhook: {}}}\n", unit("undo"));
    let rest = DOCUMENT_INLINE.saturating_sub(text.len());
    text + "# " + &"x".repeat(rest) + "\n"
}

/// All plugins.
pub(crate) fn plugins() -> [String; 3] {
    [WEBHOOKS.to_owned(), SCRIPTS.to_owned(), wide()]
}

/// The document of a target: its name says which plugin it has.
pub(crate) fn sandbox(name: &str) -> String {
    let (plugin, more) = match name {
        // So short a plan that it is in the table.
        "plain" => return "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: plain\n".to_owned(),
        "answered" | "beating" | "posted" | "thanked" | "wordy" => ("scripts", "cluster: far\n"),
        "broad" | "wide" => ("wide", ""),
        "brief" | "stopping" => ("stored", "ttl: 1h\n"),
        _ => ("stored", ""),
    };
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\n{more}resources:\n  r: {{plugin: {plugin}@1.0.0}}\n"
    )
}
