//! Two resources, one made from the other, and taken away before it.

use std::fs;

use serde_json::Value;

use crate::workdir::{Workdir, example, shared_folder};

pub(crate) const SANDBOX: &str = "greeter-pr-3";
pub(crate) const SETTINGS: &str = "greeter-pr-3-files/greeter-pr-3/settings.toml";

#[tokio::test]
async fn run_and_delete() {
    let (place, root) = (Workdir::new(), shared_folder());
    let set = format!("root={}", root.path().display());
    let (store, tenant) = (example("wired/store.yaml"), example("wired/tenant.yaml"));
    let sandbox = example("wired/sandbox.yaml");
    let plugins = ["--plugin", &store, "--plugin", &tenant];
    let arguments = [&["run", &sandbox, "--set", &set, "--rm", "-o", "json"][..], &plugins].concat();
    let ran = place.ebb(&arguments).await.done();
    let seen: Value = serde_json::from_str(&ran.stdout).unwrap();
    let settings = root.path().join(SETTINGS);
    assert_eq!(seen["env"]["SETTINGS_FILE"]["value"], settings.to_str().unwrap());
    assert_eq!(seen["outputs"]["users"]["settings"]["value"], seen["env"]["SETTINGS_FILE"]["value"]);
    assert_eq!(seen["phase"], "gone");
    let units = seen["units"].as_array().unwrap();
    // Out of order the store's removal fails, and succeeds at its second try.
    assert!(units.iter().all(|unit| unit["attempt"] == 1 && unit["state"] == "succeeded"), "{units:#?}");
    assert_eq!(units.len(), 5);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    place.no_script_runs().await;
}
