//! Sources as documents that a deployment stores.

use std::fmt::Write as _;

use ebb_documents::event::EventSource;
use ebb_documents::load::{self, DocumentVars};
use ebb_documents::{compile, model::SourceDoc};
use ebb_flow::source::delivery::scheme;
use ebb_protocol::api::{SourceDetail, SourceInfo};
use ebb_protocol::source_signature;

use super::local_secret;
use crate::client::ApiClient;
use crate::commands::named_documents::NamedDocument;
use crate::documents::{self, DocumentSource};
use crate::exit::Result;
use crate::output::printable;
use crate::{output, timing};

/// A source of a file, after all checks that need no server.
#[derive(Clone, Debug)]
pub(crate) struct CheckedSource {
    document: SourceDoc,
    pub(super) source: EventSource,
}

impl NamedDocument for CheckedSource {
    const KIND: &'static str = "source";
    const COLLECTION: &'static str = "sources";
    const DELETED: &'static str = "its targets stay";
    const COLUMNS: &'static [&'static str] = &["NAME", "CHANGED", "REJECTED", "LAST REJECTION"];
    type Info = SourceInfo;
    type Detail = SourceDetail;

    fn load(file: &DocumentSource, vars: &DocumentVars) -> Result<Self> {
        let document = load::event_source(&file.name, &file.text, &file.folder, vars)?;
        let (source, warnings) = compile::event_source(&document)?;
        documents::warn(&warnings);
        Ok(Self { document, source })
    }

    fn content(&self) -> (&str, &str) {
        (self.source.name(), &self.document.expanded)
    }

    async fn warn(&self, client: &ApiClient) -> Result<()> {
        for plugin in compile::named_plugins(&self.source) {
            let version = plugin.version.as_ref().map_or("latest".to_owned(), ToString::to_string);
            if client.plugin(&plugin.name, &version).await?.is_none_or(|found| found.withdrawn.is_some()) {
                output::status_line(&format!(
                    "warning: plugin {plugin} is not published; events that need it are rejected until it is"
                ));
            }
        }
        Ok(())
    }

    fn report(&self, client: &ApiClient, detail: &SourceDetail) {
        let address = client.address(&detail.path);
        output::status_line(&format!("Applied source {}. Send its events to {address}", detail.name));
        let secret = &self.source.verify().secret().value;
        match (client.state_folder(), local_secret(client, secret)) {
            (_, Ok(Some(value))) => {
                if let Err(error) = source_signature::check_secret(&scheme(self.source.verify()), &value) {
                    output::status_line(&format!("warning: secret {secret}: {error}"));
                }
            }
            (Some(state), Ok(None)) => output::status_line(&format!(
                "The secret {secret} is missing: add it to {}, with mode 600",
                state.join("secrets.json").display()
            )),
            (Some(_), Err(error)) => output::status_line(&format!("warning: {}", error.message())),
            (None, _) => output::status_line(&format!("The deployment needs the secret {secret}")),
        }
    }

    fn row(info: &SourceInfo) -> Vec<String> {
        let rejected = info.rejected.as_ref();
        let count = rejected.map_or(0, |rejected| rejected.count).to_string();
        let last = rejected.map(|rejected| timing::clock(&rejected.last.time)).unwrap_or_default();
        vec![info.name.clone(), timing::clock(&info.changed), count, last]
    }

    fn document(detail: &SourceDetail) -> &str {
        &detail.document
    }

    fn text(detail: &SourceDetail) -> String {
        let changed = timing::clock(&detail.changed);
        let mut text = format!("Name:     {}\nChanged:  {changed}\nPath:     {}\n", detail.name, detail.path);
        if !detail.rejected.is_empty() {
            let rows = detail.rejected.iter().map(|event| {
                [
                    timing::clock(&event.time),
                    event.target.clone().unwrap_or_else(|| "unknown".to_owned()),
                    printable(&event.delivery),
                    output::joined_lines(&event.detail),
                ]
            });
            let table = output::table(&["REJECTED", "TARGET", "DELIVERY", "REASON"], rows);
            let _ = write!(text, "\n{table}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejected_events_are_listed() {
        let time = "2026-11-21T09:00:00Z";
        let reason = "no plugin \"db\" is published\n  help: publish it";
        let last = json!({"time": time, "delivery": "d-1", "target": "sandbox/pr-7", "detail": reason});
        let first = json!({"time": time, "delivery": "d-1", "detail": "entry 4: `time`: expected a time"});
        let rejected = json!({"count": 2, "since": time, "last": last});
        let info = json!({"name": "previews", "changed": time, "rejected": rejected});
        let info: SourceInfo = serde_json::from_value(info).unwrap();
        assert_eq!(CheckedSource::row(&info)[2..], ["2", "2026-11-21 09:00:00Z"]);
        let path = "/v1/sources/previews";
        let detail =
            json!({"name": "previews", "changed": time, "document": "", "path": path, "rejected": [last, first]});
        let detail: SourceDetail = serde_json::from_value(detail).unwrap();
        insta::assert_snapshot!(CheckedSource::text(&detail), @r#"
        Name:     previews
        Changed:  2026-11-21 09:00:00Z
        Path:     /v1/sources/previews

        REJECTED              TARGET        DELIVERY  REASON
        2026-11-21 09:00:00Z  sandbox/pr-7  d-1       no plugin "db" is published; help: publish it
        2026-11-21 09:00:00Z  unknown       d-1       entry 4: `time`: expected a time
        "#);
    }
}
