//! JSON Schemas of the documents, for editors.
//!
//! They describe documents as they are written, with `@{…}` in them. Loading checks more than they can say, and
//! does not use them.

mod ebb;
mod signadot;

use serde_json::Value;

/// Our `kind: Plugin`.
pub fn plugin() -> Value {
    schemars::schema_for!(ebb::PluginSchema).to_value()
}

/// Our `kind: Sandbox`.
pub fn sandbox() -> Value {
    schemars::schema_for!(ebb::SandboxSchema).to_value()
}

/// Signadot's ResourcePlugin.
pub fn signadot_plugin() -> Value {
    schemars::schema_for!(signadot::ResourcePlugin).to_value()
}

/// Signadot's Sandbox, as far as its resources are concerned.
pub fn signadot_sandbox() -> Value {
    schemars::schema_for!(signadot::SignadotSandbox).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ebb, signadot};

    fn keys(schema: &Value, definition: Option<&str>) -> Vec<String> {
        let object = match definition {
            Some(name) => &schema["$defs"][name],
            None => schema,
        };
        assert_eq!(object["additionalProperties"], Value::Bool(false), "{definition:?}");
        let mut keys: Vec<String> = object["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    }

    fn sorted(keys: &[&str]) -> Vec<String> {
        let mut keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn schemas_have_the_keys_that_are_read() {
        let plugin = plugin();
        for (definition, known) in [
            ("Param", &ebb::keys::PARAM[..]),
            ("Runner", &ebb::keys::RUNNER),
            ("Defaults", &ebb::keys::DEFAULTS),
            ("Unit", &ebb::keys::UNIT),
            ("Pod", &ebb::keys::POD),
            ("Webhook", &ebb::keys::WEBHOOK),
            ("Describe", &ebb::keys::DESCRIBE),
            ("Object", &ebb::keys::OBJECT),
            ("FullInput", &ebb::keys::INPUT),
            ("Output", &ebb::keys::OUTPUT),
            ("Retry", &ebb::keys::RETRY),
        ] {
            assert_eq!(keys(&plugin, Some(definition)), sorted(known), "{definition}");
        }
        let signadot_plugin = signadot_plugin();
        for (definition, known) in [
            ("PluginSpec", &signadot::keys::SPEC[..]),
            ("Runner", &signadot::keys::RUNNER),
            ("Step", &signadot::keys::STEP),
            ("Input", &signadot::keys::INPUT),
            ("FromStep", &signadot::keys::FROM_STEP),
            ("InputDestination", &signadot::keys::AS),
            ("Output", &signadot::keys::OUTPUT),
        ] {
            assert_eq!(keys(&signadot_plugin, Some(definition)), sorted(known), "{definition}");
        }
        let sandbox = signadot_sandbox();
        for (definition, known) in [
            ("SandboxSpec", &signadot::keys::SANDBOX_SPEC[..]),
            ("Resource", &signadot::keys::RESOURCE),
            ("SandboxTtl", &signadot::keys::TTL),
        ] {
            assert_eq!(keys(&sandbox, Some(definition)), sorted(known), "{definition}");
        }
        let top = |schema: &Value| {
            sorted(&schema["properties"].as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(top(&plugin), sorted(&ebb::keys::PLUGIN));
        assert_eq!(top(&super::sandbox()), sorted(&ebb::keys::SANDBOX));
        assert_eq!(keys(&super::sandbox(), Some("Resource")), sorted(&ebb::keys::RESOURCE));
    }
}
