//! The option `--attached`: the relay ends with the process that started it.

use std::process::Stdio;

use ebb_protocol::sign::WebhookSecret;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::wait::WAIT_TIMEOUT;

/// The standard input closes while the API server of the context does not respond. The relay ends nevertheless.
#[tokio::test]
async fn the_relay_ends_when_its_standard_input_closes() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = |name: &str, address: String| json!({"name": name, "cluster": {"server": address}});
    let context = |name: &str| json!({"name": name, "context": {"cluster": name, "user": "u"}});
    let (other, address) = ("http://127.0.0.1:1".to_owned(), format!("http://{}", silent.local_addr().unwrap()));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "other", "users": [{"name": "u", "user": {}}],
        "clusters": [server("other", other), server("silent", address)],
        "contexts": [context("other"), context("silent")],
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    let mut relay = Command::new(env!("CARGO_BIN_EXE_ebb-relay"))
        .args(["--attached", "--listen", "127.0.0.1:0", "--advertise-url", "http://127.0.0.1:1"])
        .args(["--callback-hosts", "127.0.0.1", "--context", "silent", "--kubeconfig"])
        .arg(&file)
        .stdin(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = relay.stdin.take().unwrap();
    stdin.write_all(WebhookSecret::from_bytes(&[7; 32]).unwrap().reveal().as_bytes()).await.unwrap();
    stdin.write_all(b"\n").await.unwrap();
    let _connection =
        tokio::time::timeout(WAIT_TIMEOUT, silent.accept()).await.expect("a connection to the API server").unwrap();
    drop(stdin);
    let status = tokio::time::timeout(WAIT_TIMEOUT, relay.wait()).await.expect("the relay ends").unwrap();
    assert!(status.success(), "{status}");
}
