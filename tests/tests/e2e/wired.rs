//! Two resources, one made from the other, and taken away before it.

use std::fs;

use ebb_protocol::api::{TargetDetail, UnitState};
use serde_json::Value;

use crate::s3::value;
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

#[tokio::test]
async fn dev_apply_and_delete() {
    let (place, root) = (Workdir::new(), shared_folder());
    let dev = place.dev().await;
    let set = format!("root={}", root.path().display());
    for plugin in ["wired/store.yaml", "wired/tenant.yaml"] {
        place.ebb(&["plugin", "apply", "-f", &example(plugin)]).await.done();
    }
    let sandbox = example("wired/sandbox.yaml");
    let ran = place.ebb(&["sandbox", "apply", "-f", &sandbox, "--set", &set]).await.done();
    let settings = value(&ran.stdout, "users.settings");
    assert_eq!(settings, root.path().join(SETTINGS).to_str().unwrap());
    assert_eq!(fs::read_to_string(settings).unwrap(), "greeting = \"good evening\"\n");

    place.ebb(&["sandbox", "delete", SANDBOX]).await.done();
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    let seen = place.get(SANDBOX).await;
    let (leave, remove) = (ended(&seen, "users/leave"), ended(&seen, "files/remove"));
    assert!(leave <= remove, "the tenant left at {leave}, the store was removed at {remove}");
    place.no_script_runs().await;
    dev.stop().await;
}

/// When the first try of a unit of the teardown succeeded. RFC 3339 in UTC of one length: its order is that of time.
fn ended(seen: &TargetDetail, key: &str) -> String {
    let run = seen.runs.iter().find(|run| run.hook == "postStop").unwrap();
    let unit = run.units.iter().find(|unit| unit.key == key).unwrap();
    assert_eq!((unit.state, unit.attempt), (UnitState::Succeeded, 1));
    unit.ended.clone().unwrap()
}
