//! The commands that wait for a sandbox and print its environment.

use serde_json::{Value, json};

use crate::workdir::Workdir;

/// Its output `text` has what shells and files of variables could misread. Its output `token` is sensitive. The script
/// waits until the file `go` exists in the folder `at`.
const PLUGIN: &str = r#"
apiVersion: ebb.dev/v1
kind: Plugin
name: values@1.0.0
params: {at: {type: string}, fail: {type: boolean, default: false}}
runners: {shell: {image: "busybox:1.36"}}
preStart:
  create:
    retry: {attempts: 1}
    pod:
      script: |
        #!/bin/sh
        until [ -e "$AT/go" ]; do sleep 0.1; done
        [ "$FAIL" = false ] || exit 7
        printf 'it'"'"'s $HOME\n`id` "x"\n' >/tmp/text
        printf secret >/tmp/token
    inputs: {at: "${params.at}", fail: "${params.fail}"}
    outputs: {text: {file: /tmp/text}, token: {file: /tmp/token, sensitive: true}}
outputs: {text: "${units.create.outputs.text}", token: "${units.create.outputs.token}"}
"#;

fn sandbox(name: &str, at: &std::path::Path, more: &str) -> String {
    format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources: {{v: {{plugin: values@1.0.0, params: {{at: {}{more}}}}}}}\n\
         env: {{TEXT: \"${{resources.v.outputs.text}}\", TOKEN: \"${{resources.v.outputs.token}}\"}}\n",
        at.display()
    )
}

#[tokio::test]
async fn a_job_waits_and_reads_the_environment() {
    let workdir = Workdir::new();
    let dev = workdir.dev().await;
    workdir.apply("plugin", PLUGIN).await;

    // The sandbox does not exist yet, as when a webhook creates it.
    let waits = workdir.start(&["sandbox", "wait", "pr-1", "-o", "json"]);
    let none = workdir.ebb(&["sandbox", "wait", "pr-1", "--timeout", "100ms"]).await;
    assert_eq!(none.code, Some(124), "{none:#?}");
    assert!(none.stderr.contains("sandbox/pr-1 does not exist after 0.1s"), "{none:#?}");
    workdir.ebb(&["sandbox", "wait", "pr-1", "--for", "gone"]).await.done();

    let file = workdir.write("sandbox.yaml", &sandbox("pr-1", workdir.path(), ""));
    workdir.ebb(&["sandbox", "apply", "-f", &file, "--wait=false"]).await.done();
    let early = workdir.ebb(&["sandbox", "env", "pr-1", "-o", "json"]).await;
    assert_eq!(early.code, Some(1), "{early:#?}");
    let error: Value = serde_json::from_str(&early.stdout).unwrap();
    assert_eq!(error["error"]["nextSteps"], json!(["ebb sandbox wait pr-1"]));
    let late = workdir.ebb(&["sandbox", "wait", "pr-1", "--timeout", "500ms"]).await;
    assert_eq!(late.code, Some(124), "{late:#?}");
    assert!(late.stderr.contains("sandbox/pr-1 is starting after 0.5s"), "{late:#?}");
    workdir.write("go", "");
    let waited = waits.end().await.done();
    assert_eq!(serde_json::from_str::<Value>(&waited.stdout).unwrap()["phase"], "ready");

    let refused = workdir.ebb(&["sandbox", "env", "pr-1"]).await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:#?}");
    assert!(refused.stderr.contains("  TOKEN: secret "), "{refused:#?}");
    let text = "it's $HOME\n`id` \"x\"\n";
    for arguments in [&["--skip-sensitive"][..], &["--resource", "v/text"]] {
        let printed = workdir.ebb(&[&["sandbox", "env", "pr-1", "-o", "json"][..], arguments].concat()).await.done();
        assert_eq!(serde_json::from_str::<Value>(&printed.stdout).unwrap(), json!({"TEXT": text}));
    }
    let unknown = workdir.ebb(&["sandbox", "env", "pr-1", "--resource", "nosuch"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:#?}");

    let failing = workdir.write("failing.yaml", &sandbox("pr-2", workdir.path(), ", fail: true"));
    workdir.ebb(&["sandbox", "apply", "-f", &failing, "--wait=false"]).await.done();
    let failed = workdir.ebb(&["sandbox", "wait", "pr-2"]).await;
    assert_eq!(failed.code, Some(1), "{failed:#?}");
    assert!(failed.stderr.contains("v/create"), "{failed:#?}");

    workdir.ebb(&["sandbox", "delete", "pr-1", "--wait=false"]).await.done();
    workdir.ebb(&["sandbox", "wait", "pr-1", "--for", "gone"]).await.done();
    let gone = workdir.ebb(&["sandbox", "wait", "pr-1", "--timeout", "100ms"]).await;
    assert_eq!(gone.code, Some(124), "{gone:#?}");
    dev.stop().await;
}
