//! Events of sources.

use ebb_documents::event::{EventInput, EventOutcome};
use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::{cel, compile};
use ebb_protocol::limits;

use crate::{InputParts, placed};

/// Runs a source, the first part, on the body of an event, the second part.
pub(crate) fn sources(parts: &InputParts<'_>) {
    let document = load::event_source("s.yaml", parts.get(0), &NoFiles, &DocumentVars::none());
    let compiled = placed::accepted(document).and_then(|document| placed::accepted(compile::event_source(&document)));
    let Some((source, _)) = compiled else { return };
    let body = parts.get(1);
    if limits::check_json_values(body.as_bytes(), limits::JSON_VALUES).is_err() {
        return;
    }
    let Ok(body) = serde_json::from_str(body) else { return };
    let input = EventInput { body, ..EventInput::default() };
    let _ = source.fetch(&input);
    let _ = source.delivery_id(&input);
    if let Ok(EventOutcome::Apply { document, .. }) = source.explain(&input).outcome {
        assert!(document.len() <= cel::MAX_VALUE_BYTES);
        load::sandbox("rendered", &document, &NoFiles, &DocumentVars::none())
            .unwrap_or_else(|errors| panic!("the rendered document is invalid: {errors}"));
    }
}
