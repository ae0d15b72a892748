//! Sends the requests of webhooks and plugins, and judges their responses.

mod describe;
pub(super) mod infrakit;
mod plugin_client;
mod until;
pub(super) mod webhook;
pub(super) mod webhook_response;
