//! Calls a plugin of InfraKit through the relay of its cluster.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::plan::{InfrakitAction, PluginInterface};
use ebb_documents::render::RenderedInstance;
use ebb_protocol::infrakit::{self, KEY_TAG, PluginCall, RpcFailure};
use ebb_protocol::limits::message;
use ebb_protocol::{Millis, SecretText, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::run::cluster_call::call_service;
use crate::run::masking::masked;
use crate::{Env, FlowError, RelayError, START_WINDOW_MS, UnitCluster};

/// A call without a result.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    #[error("the plugin did not receive the call: {0}")]
    NotSent(String),
    #[error("the plugin rejects the call: {0}")]
    Rejected(String),
    #[error("the plugin may have executed the call: {0}")]
    Unknown(String),
    #[error("the invocation has no time for the call")]
    Late,
    #[error(transparent)]
    Flow(#[from] FlowError),
}

pub(super) struct PluginClient<'a> {
    pub(super) env: &'a Env,
    pub(super) cluster: UnitCluster<'a>,
    pub(super) action: &'a InfrakitAction,
    pub(super) spec: RenderedInstance,
    /// The texts that are masked in errors of the plugin.
    pub(super) opened: Vec<SecretText>,
    /// The `EBB_KEY` of the unit that makes the resource.
    pub(super) key: String,
    /// The start of the dispatch. Calls start within [`START_WINDOW_MS`] after it.
    pub(super) begun: Timestamp,
}

impl PluginClient<'_> {
    /// Returns true if no further call can start.
    pub(super) fn is_late(&self) -> bool {
        self.env.now().since(self.begun).0 >= START_WINDOW_MS
    }

    /// Checks that the plugin has the interface of the unit, and accepts the properties.
    pub(super) async fn check(&self) -> Result<(), PluginError> {
        let wanted = match self.action.interface {
            PluginInterface::Instance => infrakit::INSTANCE,
            PluginInterface::Resource => infrakit::RESOURCE,
            PluginInterface::Controller => infrakit::CONTROLLER,
        };
        let objects: BTreeMap<String, Value> = self.call(PluginCall::hello()).await?;
        if !objects.contains_key(wanted) {
            let names: Vec<String> = objects.into_keys().collect();
            let why = format!(
                "the plugin `{}` has the interfaces {}; expected {wanted}",
                self.action.plugin,
                names.join(", ")
            );
            return Err(PluginError::NotSent(why));
        }
        if self.action.interface == PluginInterface::Instance {
            let call = PluginCall::validate(&self.action.instance_type, &self.spec.properties);
            self.call::<Value>(call).await?;
        }
        Ok(())
    }

    /// Makes the resource. Returns the value of `instance` in outputs, for an instance without its properties.
    pub(super) async fn make(&self) -> Result<Value, PluginError> {
        match self.action.interface {
            PluginInterface::Instance => {
                let mut spec = self.spec.clone();
                spec.tags.insert(KEY_TAG.to_owned(), self.key.clone());
                let call = PluginCall::provision(&self.action.instance_type, &spec);
                let id: String = self.call(call).await?;
                Ok(json!({"ID": id, "LogicalID": spec.logical_id, "Tags": spec.tags}))
            }
            PluginInterface::Resource => {
                Ok(infrakit::made_resources(&self.resource("Resource.Commit", Some(false)).await?))
            }
            PluginInterface::Controller => self.commit(false).await,
        }
    }

    /// Returns what exists: instances with the tag of the unit, names of resources, or objects of a controller.
    pub(super) async fn find(&self) -> Result<Vec<Value>, PluginError> {
        match self.action.interface {
            PluginInterface::Instance => {
                let call = PluginCall::describe(&self.action.instance_type, &self.key);
                let mut found: Vec<Value> = self.call::<Option<_>>(call).await?.unwrap_or_default();
                // A plugin may ignore the tags of the call, and then lists the instances of others.
                found.retain(|instance| key_tag(instance).is_none_or(|key| key.eq_ignore_ascii_case(&self.key)));
                Ok(found)
            }
            PluginInterface::Resource => {
                Ok(self.resource("Resource.DescribeResources", None).await?.lines().map(Value::from).collect())
            }
            PluginInterface::Controller => {
                let metadata = self.spec.properties.get("metadata").unwrap_or(&Value::Null);
                let found: Option<Vec<Value>> = self.call(PluginCall::find(&self.action.plugin, metadata)).await?;
                Ok(found.into_iter().flatten().filter(|object| !is_terminated(object)).collect())
            }
        }
    }

    /// Returns the IDs of the instances that [`Self::find`] has found. What another interface finds has one ID, the key
    /// of the unit.
    pub(super) fn ids(&self, found: &[Value]) -> BTreeSet<String> {
        let id = |instance: &Value| match self.action.interface {
            PluginInterface::Instance => instance_id(instance).to_owned(),
            PluginInterface::Resource | PluginInterface::Controller => self.key.clone(),
        };
        found.iter().map(id).filter(|id| !id.is_empty()).collect()
    }

    pub(super) fn find_method(&self) -> &'static str {
        match self.action.interface {
            PluginInterface::Instance => "Instance.DescribeInstances",
            PluginInterface::Resource => "Resource.DescribeResources",
            PluginInterface::Controller => "Controller.Describe",
        }
    }

    /// Destroys an instance. Most plugins reject the call for one that does not exist.
    pub(super) async fn destroy_instance(&self, id: &str) -> Result<(), PluginError> {
        self.call::<Value>(PluginCall::destroy(&self.action.instance_type, id)).await.map(drop)
    }

    /// Destroys what [`Self::find`] has found. A rejected call does not stop the others.
    pub(super) async fn destroy(&self, found: &[Value]) -> Result<(), PluginError> {
        match self.action.interface {
            PluginInterface::Instance => {
                let mut rejected = Ok(());
                for instance in found.iter().map(instance_id) {
                    match self.destroy_instance(instance).await {
                        Err(error @ PluginError::Rejected(_)) => rejected = Err(error),
                        other => other?,
                    }
                }
                rejected
            }
            PluginInterface::Resource => self.resource("Resource.Destroy", Some(false)).await.map(drop),
            PluginInterface::Controller => self.commit(true).await.map(drop),
        }
    }

    async fn resource(&self, method: &'static str, pretend: Option<bool>) -> Result<String, PluginError> {
        let call = PluginCall::resource(method, &self.key, &self.spec.properties, pretend);
        Ok(self.call::<Option<String>>(call).await?.unwrap_or_default())
    }

    async fn commit(&self, is_removal: bool) -> Result<Value, PluginError> {
        self.call(PluginCall::commit(&self.action.plugin, is_removal, &self.spec.properties)).await
    }

    async fn call<T: DeserializeOwned>(&self, call: PluginCall) -> Result<T, PluginError> {
        if self.is_late() {
            return Err(PluginError::Late);
        }
        let request = call.request(&self.action.plugin, Millis::from(self.env.settings.response_timeout).0);
        let response = call_service(self.env, self.cluster, request).await.map_err(|error| match error {
            RelayError::Refused(why) => PluginError::NotSent(why),
            error => PluginError::Unknown(error.to_string()),
        })?;
        call.result(response.status, &response.body).map_err(|error| match error {
            RpcFailure::Plugin(why) => {
                PluginError::Rejected(format!("{}: {}", call.method, message(&masked(&why, &self.opened))))
            }
            RpcFailure::Response(why) => PluginError::Unknown(message(&masked(&why, &self.opened))),
        })
    }
}

/// Returns the states of the items of a controller's object, by their keys. A controller can have objects without items.
fn item_states(object: &Value) -> Option<Vec<(&str, &str)>> {
    Some(object.get("state")?.as_array()?.iter().map(|item| (text(item, "Key"), text(item, "State"))).collect())
}

/// Returns true for an object that a controller still lists after it has destroyed all of its items.
fn is_terminated(object: &Value) -> bool {
    item_states(object).is_some_and(|items| items.iter().all(|(_, state)| *state == "TERMINATED"))
}

/// Returns true if all items of a controller's object are ready, or an error for an item that needs an operator.
pub(super) fn is_ready(object: &Value) -> Result<bool, String> {
    let items = item_states(object).unwrap_or_default();
    match items.iter().find(|(_, state)| state.ends_with("_FAILED")) {
        Some((key, state)) => Err(format!("`{key}` is {state}")),
        None => Ok(items.iter().all(|(_, state)| *state == "READY")),
    }
}

/// Returns the ID of an instance, or an empty text.
pub(super) fn instance_id(description: &Value) -> &str {
    text(description, "ID")
}

/// Returns the tag of an instance that names its unit. Plugins may change the case of tags, or list none.
fn key_tag(description: &Value) -> Option<&str> {
    let mut tags = description.get("Tags")?.as_object()?.iter();
    tags.find(|(name, _)| name.eq_ignore_ascii_case(KEY_TAG))?.1.as_str()
}

fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}
