//! The InfraKit plugin of the tests.

use std::path::Path;

use ebb_tests::infrakit_plugin;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use crate::harness::*;

/// A running plugin. It ends when this is dropped.
pub(crate) struct RunningPlugin {
    task: JoinHandle<()>,
    http: reqwest::Client,
}

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RunningPlugin {
    /// Starts the plugin with its state in `dir`, on `socket`.
    pub(crate) fn start(socket: &Path, dir: &Path) -> Self {
        std::fs::remove_file(socket).ok();
        let (listener, router) = (UnixListener::bind(socket).unwrap(), infrakit_plugin::router(dir).unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { task, http: reqwest::Client::builder().unix_socket(socket).build().unwrap() }
    }

    /// Returns the result of a method, or the text of its error.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, String> {
        let request = json!({"jsonrpc": "2.0", "method": method, "params": params, "id": 1});
        let response = self.http.post("http://plugin").json(&request).send().await.unwrap();
        let response: Value = response.json().await.unwrap();
        match response["error"]["message"].as_str() {
            Some(message) => Err(message.to_owned()),
            None => Ok(response["result"].clone()),
        }
    }

    pub(crate) async fn provision(&self, infra_type: &str, spec: Value) -> String {
        let result = self.call("Instance.Provision", json!({"Type": infra_type, "Spec": spec})).await.unwrap();
        result["ID"].as_str().unwrap().to_owned()
    }
}
