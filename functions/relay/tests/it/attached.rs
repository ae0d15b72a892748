//! The option `--attached`: the relay ends with the process that started it, and installs its admission policy.

use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::fixture::*;

/// Starts an attached relay with further options, and writes its secret to its standard input.
async fn launch(kubeconfig: &Path, options: &[&str]) -> Child {
    let mut relay = Command::new(env!("CARGO_BIN_EXE_ebb-relay"))
        .args(["--attached", "--listen", "127.0.0.1:0", "--advertise-url", "http://127.0.0.1:1"])
        .args(["--callback-hosts", "127.0.0.1", "--kubeconfig"])
        .arg(kubeconfig)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
    relay.stdin.as_mut().unwrap().write_all(format!("{}\n", &**secret.reveal()).as_bytes()).await.unwrap();
    relay
}

/// The relay ends with its standard input, or at a signal, also while the API server of the context does not respond.
#[tokio::test]
async fn the_relay_ends_while_its_api_server_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, include_str!("attached/kubeconfig.yaml").replace("ADDRESS", &address)).unwrap();
    for is_signal in [false, true] {
        let mut relay = launch(&file, &["--context", "silent"]).await;
        let _connection =
            tokio::time::timeout(WAIT_TIMEOUT, silent.accept()).await.expect("a connection to the API server").unwrap();
        if is_signal {
            assert!(Command::new("kill").arg(relay.id().unwrap().to_string()).status().await.unwrap().success());
        } else {
            drop(relay.stdin.take());
        }
        let status = tokio::time::timeout(WAIT_TIMEOUT, relay.wait()).await.expect("the relay ends").unwrap();
        assert!(status.success(), "{status}");
    }
}

/// The API server refuses a part of a new policy. Its rules stay those of the policy in force.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_is_refused_changes_no_rule() {
    let fixture = RelayFixture::new("attached", &[]).await;
    fixture.kill().await;
    let (client, units, own) = (&fixture.client, &*fixture.units, format!("{}-relay", fixture.units));
    let (roles, role_bindings) = (Api::<ClusterRole>::all(client.clone()), Api::all(client.clone()));
    let rights = yaml(include_str!("attached/rights.yaml"), &[("UNITS", units)]);
    create(&roles, rights["role"].clone()).await;
    create::<ClusterRoleBinding>(&role_bindings, rights["binding"].clone()).await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.relay_client().await);
    until("the right to bindings", async || bindings.get_opt("none").await.ok()).await;

    let write =
        |level: &str| fixture.replace_policy(&format!("podSecurityLevel: {level}\nnamespaces: {{{units}: []}}\n"));
    write("restricted");
    let policy_file = fixture.file("policy.yaml").display().to_string();
    let options = ["--namespace", &own, "--unit-namespace", units, "--policy", &policy_file];
    let mut relay = launch(&fixture.file("kubeconfig"), &options).await;
    let mut lines = BufReader::new(relay.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("the relay starts");
    // `listening on ADDRESS in cluster UID`
    let url = format!("http://{}", line.split(' ').nth(2).unwrap());
    let batch = json!(Batch { v: 1, cluster: fixture.uid.clone(), requests: vec![RelayRequest::About] });
    let (http, secret) =
        (reqwest::Client::builder().no_proxy().build().unwrap(), WebhookSecret::from_bytes(&[7; 32]).unwrap());
    let reported_error = async || {
        let (_, body) = post(&http, &url, &batch, &secret).await.expect("a response");
        match serde_json::from_str::<BatchResponse>(&body).unwrap().responses.remove(0) {
            RelayResponse::About(about) => about.policy.expect("a policy").error,
            other => panic!("{other:?}"),
        }
    };
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    // The name of the admission policy, and the levels that it permits.
    let installed = async || {
        let all = policies.list(&ListParams::default()).await.unwrap();
        let of_policy = |policy: ValidatingAdmissionPolicy| {
            let name = policy.name_any();
            let levels = policy.spec?.variables?.into_iter().find(|variable| variable.name == "levels")?.expression;
            (name.starts_with("ebb-dev-") && levels.contains(units)).then_some((name, levels))
        };
        all.into_iter().find_map(of_policy).expect("an admission policy")
    };
    let before = installed().await;
    assert_eq!(before.1, json!({units: ["restricted"]}).to_string());

    merge(&roles, units, json!({"rules": rights["fewer"]})).await;
    until("the end of the right", async || bindings.get_opt("none").await.is_err().then_some(())).await;
    write("baseline");
    let error = until("the error", async || reported_error().await).await;
    assert!(error.contains("units need an admission policy"), "{error}");
    assert_eq!(installed().await, before);
    // The former policy is written again.
    write("restricted");
    merge(&roles, units, json!({"rules": rights["role"]["rules"]})).await;
    until("the end of the error", async || reported_error().await.is_none().then_some(())).await;
    assert_eq!(installed().await, before);

    drop(relay.stdin.take());
    relay.wait().await.unwrap();
    policies.delete(&before.0, &DeleteParams::default()).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.delete(&before.0, &DeleteParams::default()).await.unwrap();
    role_bindings.delete(units, &DeleteParams::default()).await.unwrap();
    roles.delete(units, &DeleteParams::default()).await.unwrap();
    fixture.close().await;
}
