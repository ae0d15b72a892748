//! A change of a target that a user of `ebb top` confirms: its question and its request.

use ebb_protocol::{
    ForceCompleteUnit, ForceDeleteTarget, OverrideResponse, RetryResponse, RetryTarget, TargetInfo, TargetPhase, words,
};

use crate::commands::retry;
use crate::commands::unit::override_text;
use crate::{ApiClient, CliError, Result, TargetRef, labels, lifecycle, plugin_name, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeVerb {
    Retry,
    /// A retry with the undos of a published version.
    RetryWith,
    Delete,
    ForceComplete,
    ForceDelete,
}

impl ChangeVerb {
    /// Returns the name of the text that the change needs.
    pub(super) fn asks_for(self) -> Option<&'static str> {
        match self {
            Self::RetryWith => Some("version of the plugin, as NAME@VERSION"),
            Self::ForceComplete | Self::ForceDelete => Some("reason"),
            Self::Retry | Self::Delete => None,
        }
    }
}

/// A change of a target that a user has asked for.
#[derive(Clone, Debug)]
pub(super) struct TargetChange {
    pub(super) verb: ChangeVerb,
    pub(super) target: TargetInfo,
    /// The key of the unit that is marked as complete. Empty for other changes.
    pub(super) unit: String,
    /// The version or the reason. Empty for a change that needs none.
    pub(super) text: String,
}

impl TargetChange {
    /// Returns what the change does, with the target and the server.
    pub(super) fn action(&self, server: &str) -> String {
        let (name, phase) = (printable(&TargetRef::from(&self.target).to_string()), labels::name(&self.target.phase));
        let target = format!("{name} ({phase}) on {server}");
        match self.verb {
            ChangeVerb::Retry | ChangeVerb::RetryWith => format!("Retry {target}"),
            ChangeVerb::Delete => format!("Delete {target}"),
            ChangeVerb::ForceComplete => format!("Mark {} as complete in {target}", printable(&self.unit)),
            ChangeVerb::ForceDelete => format!("Force-delete {target}"),
        }
    }

    /// Returns the question before the change, with its consequences.
    pub(super) fn question(&self, server: &str) -> String {
        let (action, text) = (self.action(server), printable(self.text.trim()));
        let plugins: Vec<&str> = self.target.plugins.iter().map(|plugin| plugin_name(plugin)).collect();
        let named = || format!(" of {}", words::named(&plugins, plugins.len()));
        let of = if plugins.is_empty() { String::new() } else { named() };
        match self.verb {
            ChangeVerb::Retry => {
                format!("{action}? Its failed units run again and repeat their scripts and requests.")
            }
            ChangeVerb::RetryWith => format!(
                "{action} with {text}? The undo scripts and requests of this version replace those of the target, and \
                 its failed units run again."
            ),
            ChangeVerb::Delete if self.target.phase == TargetPhase::Stuck => {
                format!("{action}? Its teardown has failed, and a deletion does not run it again: r does.")
            }
            ChangeVerb::Delete => {
                format!("{action}? Its resources{of} are removed with their data. This cannot be undone.")
            }
            ChangeVerb::ForceComplete => format!(
                "{action}, reason: {text}? Its teardown continues without the unit, and what the unit has to remove may \
                 remain. This cannot be undone."
            ),
            ChangeVerb::ForceDelete => format!(
                "{action}, reason: {text}? Its teardown is given up, and its resources{of} may remain. An instance \
                 that waits for its name is deleted, too. This cannot be undone."
            ),
        }
    }

    /// Makes the change. Returns its result or its error for people.
    pub(super) async fn send(self, client: ApiClient) -> Result<String, String> {
        let target = TargetRef::from(&self.target);
        let done = self.request(&client, &target).await;
        done.map_err(|error| format!("{target}: {}", error.message_with_steps()))
    }

    async fn request(self, client: &ApiClient, target: &TargetRef) -> Result<String> {
        let Self { verb, target: info, unit, text } = self;
        let seen = client.existing(target).await?;
        if seen.info.uid != info.uid {
            return Err(CliError::failed("another instance has this name now, and nothing was changed: open it again"));
        }
        let uid = Some(info.uid);
        // The default of the commands.
        let by = std::env::var("USER").ok();
        match verb {
            ChangeVerb::Retry | ChangeVerb::RetryWith => {
                let plugin = (verb == ChangeVerb::RetryWith).then(|| text.trim().to_owned());
                let body = RetryTarget { uid, plugin, dry_run: false };
                let done: RetryResponse = client.act(target, "retry", &body).await?;
                Ok(retry::text(&done, false))
            }
            ChangeVerb::Delete => {
                client.delete_target(target, uid.as_deref()).await?;
                Ok(match info.phase {
                    TargetPhase::Stuck => format!("{target} stays stuck until its teardown is retried"),
                    _ => format!("{target} is being deleted"),
                })
            }
            ChangeVerb::ForceComplete => {
                let body = ForceCompleteUnit { uid, unit, reason: text, by };
                let done: OverrideResponse = client.act(target, "force-complete", &body).await?;
                Ok(override_text(&done))
            }
            ChangeVerb::ForceDelete => {
                lifecycle::withdraw_waiting(client, target, &seen).await?;
                let body = ForceDeleteTarget { uid, reason: text, by };
                let done: OverrideResponse = client.act(target, "force-delete", &body).await?;
                Ok(override_text(&done))
            }
        }
    }
}
