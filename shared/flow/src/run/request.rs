//! Sends the requests of webhooks and plugins, and judges their responses.

pub(crate) mod describe;
pub(crate) mod further_page;
pub(super) mod infrakit;
mod plugin_client;
pub(super) mod question;
pub(super) mod repeat;
mod until;
pub(super) mod webhook;
pub(super) mod webhook_response;
