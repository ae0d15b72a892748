//! External servers: the receiver of the example with webhooks, and the platform.

use std::net::IpAddr;

use anyhow::ensure;
use ebb_protocol::sign::{self, WebhookKeys};
use ebb_tests::platform::now;
use ebb_tests::receiver::{CannedReply, ReceivedCall, TestReceiver};
use ebb_tests::wait::until;
use serde_json::json;
use tokio::sync::watch;

use crate::keys::SignedMessage;

pub(crate) const PLATFORM: &str = "/platform";
/// The sandbox of the example with webhooks.
pub(crate) const SERVICES: &str = "search-pr-9";
/// The result of the unit that calls back.
pub(crate) const INDEX: &str = "index:9200";

const PLUGIN: &str = "tenant-services";
/// The plugin of the targets of senders.
const NOTES: &str = "notes";

/// The external servers, at one address. Notifications and requests of units are signed with different secrets. A
/// request with a wrong signature is rejected, and then every wait fails.
pub(crate) struct OutsideServers {
    pub(crate) receiver: TestReceiver,
    /// True once the callbacks of accepted requests are sent.
    pub(crate) may_call_back: watch::Sender<bool>,
}

impl OutsideServers {
    pub(crate) async fn start(address: IpAddr) -> anyhow::Result<Self> {
        let units = WebhookKeys::from(SignedMessage::Unit.secret()?.for_plugin(PLUGIN));
        let notes = WebhookKeys::from(SignedMessage::Unit.secret()?.for_plugin(NOTES));
        let outcomes = WebhookKeys::from(SignedMessage::Outcome.secret()?);
        let verify = move |call: &ReceivedCall, body: &[u8]| {
            let keys = match call.path() {
                PLATFORM => &outcomes,
                path if path.starts_with("/notes/") => &notes,
                _ => &units,
            };
            sign::verify(keys, &call.headers, body, now()).map(drop).map_err(|error| error.to_string())
        };
        let receiver = TestReceiver::start_at(address, verify).await;
        let may_call_back = watch::channel(false).0;
        receiver.always("*", 404);
        receiver.always("DELETE *", 204);
        receiver.always(&format!("POST {PLATFORM}"), 204);
        receiver.always("POST /notes/make", 204);
        receiver.always("POST /notes/drop", 204);
        receiver.always("POST /tenants", json!({"id": "tenant"}));
        let (again, made) = (CannedReply::status(202).after(1), CannedReply::ok(json!({"id": "certificate"})));
        receiver.replies("POST /certificates", &[again.clone(), again, made]);
        let may = may_call_back.subscribe();
        receiver.on("POST /indexes", move |_, _| {
            let mut may = may.clone();
            CannedReply::status(202).then(async move {
                may.wait_for(|may| *may).await.ok();
                vec![json!({"status": "succeeded", "outputs": {"endpoint": INDEX}})]
            })
        });
        Ok(Self { receiver, may_call_back })
    }

    /// Returns a plugin whose units send the param `note`.
    pub(crate) fn notes_plugin(&self) -> String {
        let body = "body: {target: \"${target.name}\", note: \"${params.note}\"}";
        let unit = |name: &str| format!("webhook: {{url: \"{}/notes/{name}\", {body}}}", self.receiver.url());
        format!(
            "apiVersion: ebb.dev/v1\nkind: Plugin\nname: {NOTES}@1.0.0\nparams: {{note: {{type: string}}}}\n\
             preStart: {{make: {{{}}}}}\npostStop: {{drop: {{undoes: make, {}}}}}\n",
            unit("make"),
            unit("drop")
        )
    }

    /// Waits for a request such as `POST /a`.
    pub(crate) async fn wait(&self, line: &str) -> anyhow::Result<()> {
        let arrived = async || (!self.receiver.refused().is_empty() || self.receiver.count(line) > 0).then_some(());
        until(line, arrived).await;
        self.signed()
    }

    /// Waits until the platform has the notification `ready` or `gone` about the sandbox.
    pub(crate) async fn wait_for_outcome(&self, outcome: &str) -> anyhow::Result<()> {
        let (word, subject) = (format!(".{outcome}."), format!("sandbox/{SERVICES}"));
        let matches = |call: &ReceivedCall| {
            call.body["subject"] == subject && call.body["type"].as_str().is_some_and(|it| it.contains(&word))
        };
        until(&format!("the notification {outcome}"), async || {
            let notified = self.receiver.calls(&format!("POST {PLATFORM}")).iter().any(matches);
            (notified || self.signed().is_err()).then_some(())
        })
        .await;
        self.signed()
    }

    /// Fails if a request had a wrong signature.
    pub(crate) fn signed(&self) -> anyhow::Result<()> {
        let refused = self.receiver.refused();
        ensure!(refused.is_empty(), "wrong signatures: {}", refused.join("; "));
        Ok(())
    }
}
