//! The params and outputs of a published plugin, as tables.

use ebb_documents::model::Named;
use ebb_documents::{DocumentVars, NoFiles, compile, load};
use serde_json::Value;

use crate::output;

/// Returns tables of the plugin's params and outputs, with their descriptions.
pub(in crate::commands) fn interface(plugin: &Value) -> String {
    let document = plugin["document"].as_str().unwrap_or_default();
    let plugins = load::plugins("document", document, &NoFiles, &DocumentVars::none()).unwrap_or_default();
    let Some(plugin) = plugins.first() else { return String::new() };
    let description = |text: &Option<String>| text.as_deref().map(one_line).unwrap_or_default();
    let mut text = String::new();
    if let Some(description) = &plugin.description {
        text += &format!("\n{}\n", one_line(description));
    }
    if plugin.protect {
        text += "\nResources of this plugin are protected. A sandbox lifts that with `protect: false`.\n";
    }
    let params = plugin.params.iter().map(|param| {
        let default = match &param.default {
            Some(default) => default.value.to_string(),
            None if param.is_optional() => "optional".to_owned(),
            None => "required".to_owned(),
        };
        let sensitive = if param.sensitive { "sensitive " } else { "" };
        let kind = format!("{sensitive}{}", compile::kind_name(param.kind));
        [param.name.value.clone(), kind, default, description(&param.description)]
    });
    if !plugin.params.is_empty() {
        text += &format!("\n{}", output::table(&["PARAM", "TYPE", "DEFAULT", "DESCRIPTION"], params));
    }
    let outputs = plugin.outputs.iter().map(|Named { name, .. }| {
        let declared = plugin.hooks().flat_map(|(_, hook)| &hook.inner).flat_map(|unit| &unit.outputs);
        let last = name.value.rsplit('.').next().unwrap_or_default();
        let text = declared.filter(|output| output.name.value == last).find_map(|output| output.description.as_ref());
        [name.value.clone(), description(&text.cloned())]
    });
    if !plugin.outputs.is_empty() {
        text += &format!("\n{}", output::table(&["OUTPUT", "DESCRIPTION"], outputs));
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
