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

pub(crate) async fn the_plugin_keeps_what_it_creates() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, dir) = (folder.path().join("files"), folder.path().join("dir"));
    let plugin = RunningPlugin::start(&socket, &dir);
    let network = plugin.provision("network", json!({"Properties": {"cidr": "10.0.0.0/24"}})).await;
    let volume = plugin.provision("volume", json!({"Properties": {"size": 1 << 30}, "Tags": {"a": "b"}})).await;
    let attachments = json!([{"ID": volume, "Type": "volume"}]);
    let spec = json!({"Properties": {"network": network}, "Attachments": attachments, "Init": "true"});
    let instance = plugin.provision("instance", spec).await;
    drop(plugin);
    let plugin = RunningPlugin::start(&socket, &dir);
    let call = async |method: &str, infra_type: &str, more: Value| {
        let mut params = json!({"Type": infra_type});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        plugin.call(&format!("Instance.{method}"), params).await
    };
    let label = json!({"Instance": volume, "Labels": {"c": "d"}});
    call("Label", "volume", label).await.unwrap();
    let found = call("DescribeInstances", "volume", json!({"Tags": {"a": "b", "c": "d"}})).await.unwrap();
    assert_eq!(found["Descriptions"][0]["ID"], *volume);
    let found = call("DescribeInstances", "network", json!({"Properties": true})).await.unwrap();
    assert_eq!(found["Descriptions"][0]["Properties"], json!({"cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}));
    for used in [&network, &volume] {
        let refused = call("Destroy", used.split('-').next().unwrap(), json!({"Instance": used})).await;
        assert_eq!(refused, Err(format!("{used} is used by {instance}")));
    }
    for id in [&instance, &volume, &network] {
        let infra_type = id.split('-').next().unwrap();
        let destroyed = call("Destroy", infra_type, json!({"Instance": id})).await;
        assert_eq!(destroyed, Ok(json!({"Type": infra_type, "OK": true})));
        let again = call("Destroy", infra_type, json!({"Instance": id})).await.unwrap_err();
        assert!(again.ends_with("no such file or directory"), "{again}");
        assert_eq!(std::fs::read_dir(dir.join(infra_type)).unwrap().count(), 0);
    }
    for id in ["../volume", "volume-../../dir", "volume-", "/etc", ""] {
        assert!(call("Destroy", "volume", json!({"Instance": id})).await.is_err());
    }
}
