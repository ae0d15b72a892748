//! The example `wired`: a resource uses another one and is deleted before it.

use std::fs;

use serde_json::Value;

use crate::workdir::{Workdir, example, shared_folder};

/// The file of the settings, below the root.
const SETTINGS: &str = "greeter-pr-3-files/greeter-pr-3/settings.toml";

#[tokio::test]
async fn run_and_delete() {
    let (workdir, root) = (Workdir::new(), shared_folder());
    let set = format!("root={}", root.path().display());
    let (store, tenant) = (example("wired/store.yaml"), example("wired/tenant.yaml"));
    let sandbox = example("wired/sandbox.yaml");
    let plugins = ["--plugin", &store, "--plugin", &tenant];
    let arguments = [&["run", &sandbox, "--set", &set, "--rm", "-o", "json"][..], &plugins].concat();
    let run = workdir.ebb(&arguments).await.done();
    let result: Value = serde_json::from_str(&run.stdout).unwrap();
    let settings = root.path().join(SETTINGS);
    assert_eq!(result["env"]["SETTINGS_FILE"]["value"], settings.to_str().unwrap());
    assert_eq!(result["outputs"]["users"]["settings"]["value"], result["env"]["SETTINGS_FILE"]["value"]);
    assert_eq!(result["phase"], "gone");
    let units = result["units"].as_array().unwrap();
    // In the wrong order, the removal of the store would fail and need a second attempt.
    assert!(units.iter().all(|unit| unit["attempt"] == 1 && unit["state"] == "succeeded"), "{units:#?}");
    assert_eq!(units.len(), 5);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    workdir.no_script_runs().await;
}
