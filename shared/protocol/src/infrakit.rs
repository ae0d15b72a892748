//! Requests to plugins of InfraKit and their responses: JSON-RPC 2.0 by `POST /`, one call per request.
//!
//! Source: the packages `pkg/rpc` and `pkg/spi` of InfraKit. A plugin responds with status 200 also to a call that
//! fails. Its `content-type` says nothing. All its errors have the code -32000 and a text for people.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::relay::ServiceRequest;

/// The version of the interface `Instance`.
pub const INSTANCE: &str = "Instance/0.6.1";
/// The version of the interface `Resource`.
pub const RESOURCE: &str = "Resource/0.1.1";
/// The version of the interface `Controller`.
pub const CONTROLLER: &str = "Controller/0.1.1";
/// The tag that Ebb gives to each instance. Its value is the `EBB_KEY` of the unit. Some providers allow only letters,
/// digits, `-` and `_` in a tag.
pub const KEY_TAG: &str = "ebb-key";

/// The ID of all requests. Each has its own connection.
const ID: u64 = 1;

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcFailure {
    /// The plugin rejects the call. The value is its text.
    #[error("{0}")]
    Plugin(String),
    /// The response is not that of a plugin. The plugin may have executed the call.
    #[error("{0}")]
    Response(String),
}

/// A call of a method of a plugin. `instance_type` is the type of a resource within the plugin, or empty.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginCall {
    pub method: &'static str,
    params: Value,
    /// The member of the result that [`Self::result`] returns, or empty for the whole result.
    part: &'static str,
}

impl PluginCall {
    /// Returns the call for the interfaces of a plugin, with their versions: a mapping.
    pub fn hello() -> Self {
        Self { method: "Handshake.Hello", params: json!({}), part: "Objects" }
    }

    pub fn validate(instance_type: &str, properties: &Value) -> Self {
        Self { method: "Instance.Validate", params: json!({"Type": instance_type, "Properties": properties}), part: "" }
    }

    /// Returns the call that makes an instance, for its ID. `spec` has `Properties`, `Tags`, `Init`, `LogicalID` and
    /// `Attachments`. A repetition makes another one.
    pub fn provision(instance_type: &str, spec: &impl Serialize) -> Self {
        Self { method: "Instance.Provision", params: json!({"Type": instance_type, "Spec": spec}), part: "ID" }
    }

    /// Returns the call for the instances that have the [`KEY_TAG`] of a unit: `null`, or a list of `ID`, `LogicalID`,
    /// `Tags` and `Properties`.
    pub fn describe(instance_type: &str, key: &str) -> Self {
        let params = json!({"Type": instance_type, "Tags": {KEY_TAG: key}, "Properties": true});
        Self { method: "Instance.DescribeInstances", params, part: "Descriptions" }
    }

    /// Returns the call that destroys an instance. It fails for an unknown one.
    pub fn destroy(instance_type: &str, id: &str) -> Self {
        let params = json!({"Type": instance_type, "Instance": id, "Context": {"Reason": "terminate"}});
        Self { method: "Instance.Destroy", params, part: "" }
    }

    /// Returns a call for the collection `id` of a Resource plugin: `Resource.DescribeResources`, or `Resource.Commit` or
    /// `Resource.Destroy` with `pretend`, which is true for a call that changes nothing. The result is `null`, or a text
    /// with a line per resource, such as `Found A (id)`.
    pub fn resource(method: &'static str, id: &str, properties: &Value, pretend: Option<bool>) -> Self {
        let spec = json!({"ID": id, "Properties": properties});
        let params = match pretend {
            Some(pretend) => json!({"Spec": spec, "Pretend": pretend}),
            None => json!({"Spec": spec}),
        };
        Self { method, params, part: "Details" }
    }

    /// Returns the call that makes the specification of the controller `name` true, or removes everything of it, for its
    /// object.
    pub fn commit(name: &str, is_removal: bool, spec: &Value) -> Self {
        let params = json!({"Name": name, "Operation": u8::from(is_removal), "Spec": spec});
        Self { method: "Controller.Commit", params, part: "Object" }
    }

    /// Returns the call for the effect of a specification of the controller `name`. `Message` of the result is `null`, or
    /// a list of texts for people.
    pub fn plan(name: &str, spec: &Value) -> Self {
        Self { method: "Controller.Plan", part: "Plan", ..Self::commit(name, false, spec) }
    }

    /// Returns the call for the objects of the controller `name`: `null` or a list.
    pub fn find(name: &str, metadata: &Value) -> Self {
        Self { method: "Controller.Describe", params: json!({"Name": name, "Metadata": metadata}), part: "Objects" }
    }

    /// Returns the request to the plugin `name`. The relay must not send it after `valid_for_ms`.
    pub fn request(&self, name: &str, valid_for_ms: u64) -> ServiceRequest {
        let Self { method, params, .. } = self;
        ServiceRequest {
            service: name.to_owned(),
            method: "POST".to_owned(),
            path: "/".to_owned(),
            // A plugin refuses a request without it.
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: json!({"jsonrpc": "2.0", "method": method, "params": params, "id": ID}).to_string(),
            valid_for_ms,
            credential: None,
        }
    }

    /// Returns the result in a response. The text of a failure has any length, because its reader masks values in it.
    ///
    /// # Errors
    /// Returns [`RpcFailure`] if the plugin rejects the call, or if the response has another form.
    pub fn result<T: DeserializeOwned>(&self, status: u16, body: &str) -> Result<T, RpcFailure> {
        #[derive(Deserialize)]
        struct RpcResponse {
            id: Option<u64>,
            result: Option<Value>,
            error: Option<RpcError>,
        }
        #[derive(Deserialize)]
        struct RpcError {
            #[serde(default)]
            message: String,
        }
        let wrong = |why: String| RpcFailure::Response(format!("the response is not that of a plugin: {why}"));
        if status != 200 {
            return Err(wrong(format!("expected status 200, got {status}: {}", body.trim())));
        }
        let response: RpcResponse = serde_json::from_str(body).map_err(|error| wrong(error.to_string()))?;
        if let Some(error) = response.error {
            return Err(RpcFailure::Plugin(error.message));
        }
        if response.id != Some(ID) {
            return Err(wrong(format!("expected id {ID}, got {:?}", response.id)));
        }
        let result = match (self.part, response.result.unwrap_or_default()) {
            ("", result) => result,
            (part, Value::Object(mut members)) => members.remove(part).unwrap_or_default(),
            _ => return Err(wrong("`result` is not an object".to_owned())),
        };
        serde_json::from_value(result).map_err(|error| wrong(format!("`result.{}`: {error}", self.part)))
    }
}

/// Returns the result of `Resource.Commit` as a value: `Details`, and `IDs` by the name of the resource.
pub fn made_resources(details: &str) -> Value {
    let ids = details.lines().filter_map(|line| {
        let (verb, rest) = line.split_once(' ')?;
        let (name, id) = rest.strip_suffix(')')?.rsplit_once(" (")?;
        matches!(verb, "Provisioned" | "Found").then(|| (name.to_owned(), Value::from(id)))
    });
    let ids: serde_json::Map<String, Value> = ids.collect();
    json!({"Details": details, "IDs": ids})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn requests_have_the_fields_of_infrakit() {
        let (properties, attachments) = (json!({"size": 1}), json!([{"ID": "d", "Type": "disk"}]));
        let spec = json!({"kind": "group"});
        let instance = |logical_id: Option<&str>, attachments: Option<&Value>| {
            json!({
                "Properties": properties, "Tags": {"a": "1", "b": "2"}, "Init": "echo", "LogicalID": logical_id,
                "Attachments": attachments,
            })
        };
        let calls = [
            PluginCall::hello(),
            PluginCall::validate("disk", &properties),
            PluginCall::provision("", &instance(None, None)),
            PluginCall::provision("", &instance(Some("l"), Some(&attachments))),
            PluginCall::describe("", "k"),
            PluginCall::destroy("", "i"),
            PluginCall::resource("Resource.Commit", "c", &properties, Some(true)),
            PluginCall::resource("Resource.DescribeResources", "c", &properties, None),
            PluginCall::commit("group", true, &spec),
            PluginCall::plan("group", &spec),
            PluginCall::find("group", &spec),
        ];
        let shown: Vec<Value> = calls.iter().map(|call| json!([call.method, call.params])).collect();
        assert_eq!(shown, rows::<Value>("requests_have_the_fields_of_infrakit"));
        let hello = PluginCall::hello().request("p", 1).body;
        assert_eq!(hello, r#"{"jsonrpc":"2.0","method":"Handshake.Hello","params":{},"id":1}"#);
    }

    #[test]
    fn a_response_is_a_result_or_an_error_with_its_text() {
        let call = PluginCall::resource("Resource.Commit", "c", &json!({}), None);
        // An error outweighs a result, and a request that cannot be parsed has no id.
        for (status, body, expected) in rows::<(u16, String, Result<Option<String>, String>)>("responses_of_plugins") {
            assert_eq!(call.result::<Option<String>>(status, &body), expected.map_err(RpcFailure::Plugin), "{body}");
        }
        for (status, body, why) in rows::<(u16, String, String)>("texts_that_are_no_responses") {
            let error = call.result::<Option<String>>(status, &body).unwrap_err();
            assert!(matches!(&error, RpcFailure::Response(text) if text.contains(&why)), "{body}: {error}");
        }
        // The IDs of a collection are in its details.
        let details = "Found A (i-1)\nProvisioned B b (c) (i-2)\nWould destroy C (i-3)\nFound D";
        assert_eq!(made_resources(details)["IDs"], json!({"A": "i-1", "B b (c)": "i-2"}));
    }
}
