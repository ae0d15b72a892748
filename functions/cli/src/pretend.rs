//! Asks the InfraKit plugins of this machine what the units of a plan would do. Nothing is made.

use ebb_local::plugin_sockets;
use ebb_protocol::api::PlanPreview;
use ebb_protocol::infrakit::{
    self, ChangeParams, ChangeResult, CollectionSpec, ENFORCE, ResourceParams, ResourceResult, ValidateParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::exit::CliError;

/// Adds the response of each unit's plugin to its preview, as `pretend`.
///
/// # Errors
/// Returns an error if a plugin is not running, or rejects the properties of its unit.
pub(crate) async fn ask(preview: &mut PlanPreview) -> Result<(), CliError> {
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
            let params = ResourceParams { spec: CollectionSpec { id: key, properties }, pretend: Some(true) };
            let result: ResourceResult = call(name, "Resource.Commit", &params).await?;
            Ok(result.details)
        }
        Some("controller") => {
            let params = ChangeParams { name: plugin, operation: ENFORCE, spec: properties };
            let result: ChangeResult = call(name, "Controller.Plan", &params).await?;
            Ok(result.plan.message.unwrap_or_default().join("\n"))
        }
        _ => {
            let params = ValidateParams { r#type: instance_type, properties };
            call::<Value>(name, "Instance.Validate", &params).await?;
            Ok("the plugin accepts the properties".to_owned())
        }
    }
}

async fn call<T: DeserializeOwned>(name: &str, method: &str, params: &impl Serialize) -> Result<T, String> {
    let request = infrakit::service_request(name, method, params, u64::MAX);
    let response = plugin_sockets::call(&plugin_sockets::default_folder(), request).await;
    let response = response.map_err(|error| error.to_string())?;
    infrakit::result(response.status, &response.body).map_err(|error| format!("{method}: {error}"))
}
