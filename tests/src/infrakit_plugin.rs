//! An InfraKit plugin for tests. It makes networks, volumes and instances as folders `DIR/TYPE/ID`, which hold all state:
//!
//! | file | content |
//! |---|---|
//! | `description.json` | the description, as in `DescribeInstances` |
//! | `image` | sparse file of a volume |
//! | `init` | boot script of an instance |
//! | `uses/ID` | links to the networks and volumes of an instance |
//!
//! It has InfraKit's interface `Instance/0.6.1`, and responds as InfraKit's server does. A [`PluginBehavior`] makes it
//! late or empty.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

const TYPES: [&str; 3] = ["instance", "network", "volume"];

/// The folder of the state of an empty plugin.
const EMPTY: &str = "empty";

/// The differences to a plugin that lists and destroys at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct PluginBehavior {
    /// The age from which it lists an instance.
    pub list_lag: Duration,
    /// The time from the response to `Destroy` until the instance does not exist.
    pub destroy_time: Duration,
    /// True for a plugin with another region or credential. It has other instances: none.
    pub is_empty: bool,
}

type PluginState = (PathBuf, Arc<Mutex<PluginBehavior>>);

/// Returns the routes of a plugin that keeps its state in `dir`. A later plugin with the same folder continues with it.
///
/// # Errors
/// Returns an error if the folder cannot be created.
pub fn router(dir: &Path, behavior: &Arc<Mutex<PluginBehavior>>) -> io::Result<Router> {
    let empty = dir.join(EMPTY);
    for dir in [dir, empty.as_path()] {
        TYPES.iter().try_for_each(|infra_type| fs::create_dir_all(dir.join(infra_type)))?;
    }
    Ok(Router::new().route("/", post(respond)).with_state((dir.to_owned(), Arc::clone(behavior))))
}

async fn respond(State((dir, behavior)): State<PluginState>, Json(request): Json<Value>) -> String {
    // The plugin executes one call at a time.
    let behavior = behavior.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = if behavior.is_empty { dir.join(EMPTY) } else { dir };
    let (key, value) = match behave(&dir, &behavior, text(&request["method"]), &request["params"]) {
        Ok(result) => ("result", result),
        Err(error) => ("error", json!({"code": -32000, "message": format!("{error:#}"), "data": null})),
    };
    json!({"jsonrpc": "2.0", key: value, "id": request["id"]}).to_string()
}

fn behave(dir: &Path, behavior: &PluginBehavior, method: &str, params: &Value) -> anyhow::Result<Value> {
    let destroy_time = behavior.destroy_time;
    if method == "Instance.Destroy" && !destroy_time.is_zero() {
        let (dir, params) = (dir.to_owned(), params.clone());
        tokio::spawn(async move {
            tokio::time::sleep(destroy_time).await;
            // A repeated call fails.
            drop(perform(&dir, "Instance.Destroy", &params));
        });
        return Ok(json!({"OK": true}));
    }
    let mut result = perform(dir, method, params)?;
    if let Some(found) = result.get_mut("Descriptions").and_then(Value::as_array_mut) {
        let folder = dir.join(text(&params["Type"]));
        found.retain(|one| age(&folder.join(text(&one["ID"]))).is_some_and(|age| age >= behavior.list_lag));
    }
    Ok(result)
}

fn age(folder: &Path) -> Option<Duration> {
    let made = fs::metadata(folder.join("description.json")).and_then(|file| file.modified()).ok()?;
    Some(made.elapsed().unwrap_or_default())
}

/// Executes a method of the plugin with the state in `dir`. Returns its result.
///
/// # Errors
/// Returns the error of an unknown method or type, of invalid properties, or of a resource that is in use or missing.
pub fn perform(dir: &Path, method: &str, params: &Value) -> anyhow::Result<Value> {
    if method == "Handshake.Hello" {
        return Ok(json!({"Objects": {"Instance/0.6.1": TYPES.map(|name| json!({"Name": name, "ProxyFor": ""}))}}));
    }
    let infra_type = text(&params["Type"]);
    anyhow::ensure!(TYPES.contains(&infra_type), "no-plugin:{infra_type}");
    Ok(match method {
        "Instance.Validate" => check(dir, infra_type, &params["Properties"]).map(|_| json!({"OK": true}))?,
        "Instance.Provision" => json!({"ID": provision(dir, infra_type, &params["Spec"])?}),
        "Instance.DescribeInstances" => json!({"Descriptions": describe(&dir.join(infra_type), params)?}),
        "Instance.Destroy" => destroy(dir, infra_type, text(&params["Instance"])).map(|()| json!({"OK": true}))?,
        _ => anyhow::bail!("rpc: can't find method {method:?}"),
    })
}

/// Checks the properties that the plugin reads. Returns the folders of what an instance uses.
fn check(dir: &Path, infra_type: &str, properties: &Value) -> anyhow::Result<Vec<PathBuf>> {
    match infra_type {
        "network" => network(properties).map(|_| Vec::new()),
        "volume" => size(properties).map(|_| Vec::new()),
        _ => {
            let used = ["network", "volume"].into_iter().filter(|name| !properties[name].is_null());
            used.map(|name| existing(dir, name, text(&properties[name]))).collect()
        }
    }
}

fn network(properties: &Value) -> anyhow::Result<ipnet::Ipv4Net> {
    text(&properties["cidr"]).parse().with_context(|| format!("cidr: {}", properties["cidr"]))
}

fn size(properties: &Value) -> anyhow::Result<u64> {
    properties["size"].as_u64().with_context(|| format!("size: expected bytes, got {}", properties["size"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Creates a resource and returns its ID. A second call creates a second one.
fn provision(dir: &Path, infra_type: &str, spec: &Value) -> anyhow::Result<String> {
    let mut properties = spec["Properties"].clone();
    let uses = check(dir, infra_type, &properties)?;
    let id = format!("{infra_type}-{:016x}", rand::random::<u64>());
    let folder = dir.join(infra_type).join(&id);
    fs::create_dir(&folder)?;
    match infra_type {
        "network" if properties["gateway"].is_null() => {
            properties["gateway"] = json!(network(&properties)?.hosts().next());
        }
        "network" => {}
        "volume" => {
            let image = folder.join("image");
            File::create(&image)?.set_len(size(&properties)?)?;
            properties["path"] = json!(image);
        }
        _ => {
            fs::write(folder.join("init"), text(&spec["Init"]))?;
            fs::create_dir(folder.join("uses"))?;
            for used in uses {
                symlink(&used, folder.join("uses").join(used.file_name().unwrap_or_default()))?;
            }
        }
    }
    let description = json!({"ID": id, "LogicalID": spec["LogicalID"], "Tags": spec["Tags"], "Properties": properties});
    fs::write(folder.join("description.json"), description.to_string())?;
    Ok(id)
}

/// Returns the descriptions of all that has the tags, in the order of their IDs.
fn describe(folder: &Path, params: &Value) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for name in names(folder)? {
        let mut description: Value = serde_json::from_slice(&fs::read(folder.join(name).join("description.json"))?)?;
        let mut tags = params["Tags"].as_object().into_iter().flatten();
        if tags.all(|(name, value)| description["Tags"][name] == *value) {
            if params["Properties"] != true {
                description["Properties"] = Value::Null;
            }
            found.push(description);
        }
    }
    Ok(found)
}

/// Deletes a resource. Fails if it does not exist, or if an instance uses it.
fn destroy(dir: &Path, infra_type: &str, id: &str) -> anyhow::Result<()> {
    let folder = existing(dir, infra_type, id)?;
    for user in names(&dir.join("instance"))? {
        let link = dir.join("instance").join(&user).join("uses").join(id);
        anyhow::ensure!(!link.is_symlink(), "{id} is used by {user}");
    }
    fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))
}

/// Returns the folder of something that exists. An ID cannot lead to another folder.
fn existing(dir: &Path, infra_type: &str, id: &str) -> anyhow::Result<PathBuf> {
    let folder = dir.join(infra_type).join(id);
    let is_id = id.starts_with(infra_type) && !id.contains(['/', '.']);
    anyhow::ensure!(is_id && folder.is_dir(), "open {}: no such file or directory", folder.display());
    Ok(folder)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}
