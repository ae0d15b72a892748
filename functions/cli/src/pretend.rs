//! Asks the InfraKit plugins of this machine what the units of a plan would do. Nothing is made.

use ebb_local::plugin_sockets;
use ebb_protocol::infrakit::PluginCall;
use ebb_protocol::{PlanPreview, limits};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::{CliError, Result};

/// Adds the response of each unit's plugin to its preview, as `pretend`.
///
/// # Errors
/// Returns an error if a plugin is not running, or rejects the properties of its unit.
pub(crate) async fn ask(preview: &mut PlanPreview) -> Result<()> {
    let units = preview.hooks.iter_mut().flat_map(|hook| &mut hook.units).filter(|unit| unit.kind == "infrakit");
    for unit in units {
        let response = respond(&unit.key, &unit.rendered).await;
        let response = response.map_err(|why| CliError::failed(format!("unit {}: {why}", unit.key)))?;
        unit.rendered["pretend"] = response.into();
    }
    Ok(())
}

async fn respond(key: &str, rendered: &Value) -> Result<String, String> {
    let plugin = rendered["plugin"].as_str().unwrap_or_default();
    let (name, instance_type) = plugin.split_once('/').unwrap_or((plugin, ""));
    let properties = &rendered["properties"];
    match rendered["interface"].as_str() {
        Some("resource") => {
            let call = PluginCall::resource("Resource.Commit", key, properties, Some(true));
            Ok(send::<Option<String>>(name, call).await?.unwrap_or_default())
        }
        Some("controller") => {
            let plan: Value = send(name, PluginCall::plan(plugin, properties)).await?;
            let lines = plan["Message"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }
        _ => {
            send::<Value>(name, PluginCall::validate(instance_type, properties)).await?;
            Ok("the plugin accepts the properties".to_owned())
        }
    }
}

async fn send<T: DeserializeOwned>(name: &str, call: PluginCall) -> Result<T, String> {
    let response = plugin_sockets::call(&plugin_sockets::default_folder(), call.request(name, u64::MAX)).await;
    let response = response.map_err(|error| error.to_string())?;
    call.result(response.status, &response.body)
        .map_err(|error| format!("{}: {}", call.method, limits::message(&error.to_string())))
}
