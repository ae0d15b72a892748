//! Reads `kind: Subscription`.

use crate::load::ebb::event_source::check_secret_name;
use crate::load::names::{MAX_NAME, NameSyntax};
use crate::{At, DocumentReader, ReceiverDoc, SubscriptionDoc, YamlNode};

/// Reads a subscription. Returns `None` after it has reported an error.
pub(super) fn subscription(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SubscriptionDoc> {
    let subscription: SubscriptionDoc = reader.read(node)?;
    reader.check_name(&subscription.name, "the subscription's name", NameSyntax::Signadot, MAX_NAME);
    if subscription.on.is_empty() {
        let at = node.get("on").map_or(node.at, |on| on.at);
        reader.note(reader.wrong("empty", at, "`on` names no phase").help("such as `on: [ready, failed]`"));
    }
    match &subscription.to {
        ReceiverDoc::Standard(standard) => {
            check_secret_name(reader, &standard.secret);
            check_url(reader, &standard.url);
        }
        ReceiverDoc::Slack(slack) => check_secret_name(reader, &slack.secret),
        receiver => {
            if let Some(connection) = receiver.connection() {
                reader.check_name(connection, "the connection's name", NameSyntax::Signadot, MAX_NAME);
            }
        }
    }
    Some(SubscriptionDoc { source: reader.source.clone(), expanded, ..subscription })
}

/// Checks the URL of a receiver. The message does not repeat a user or password.
fn check_url(reader: &DocumentReader<'_>, text: &At<String>) {
    let url = url::Url::parse(&text.value).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let message = match &url {
        None => "the URL is not valid",
        Some(url) if !url.username().is_empty() || url.password().is_some() => "the URL has a user or password",
        Some(_) if text.value.contains("${") => "the URL has an expression; expected a literal URL",
        Some(_) => return,
    };
    reader.note(reader.wrong("url", text.at, message).help("such as `https://events.example.org/ebb`"));
}
