//! The option `--attached`: the relay ends with the process that started it.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::fixture::*;

/// The relay ends with its standard input, or at a signal, also while the API server of the context does not respond.
#[tokio::test]
async fn the_relay_ends_while_its_api_server_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, include_str!("attached/kubeconfig.yaml").replace("ADDRESS", &address)).unwrap();
    for is_signal in [false, true] {
        let mut relay = Command::new(env!("CARGO_BIN_EXE_ebb-relay"))
            .args(["--attached", "--listen", "127.0.0.1:0", "--advertise-url", "http://127.0.0.1:1"])
            .args(["--callback-hosts", "127.0.0.1", "--context", "silent", "--kubeconfig"])
            .arg(&file)
            .stdin(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let secret = WebhookSecret::from_bytes(&[7; 32]).unwrap();
        relay.stdin.as_mut().unwrap().write_all(format!("{}\n", &**secret.reveal()).as_bytes()).await.unwrap();
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
