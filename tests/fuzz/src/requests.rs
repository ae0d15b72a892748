//! Requests of webhook units: a value of a user changes neither their destination nor their structure.

use std::collections::BTreeMap;

use ebb_documents::load::{self, DocumentVars, NoFiles};
use ebb_documents::plan::{Plan, UnitRef};
use ebb_documents::render::{self, KnownOutputs, RenderedRequest, RenderedUnit, TargetFacts, UnitContext};
use ebb_engine::Hook;
use url::Url;

use crate::expressions::bound;
use crate::{InputParts, placed};

/// A harmless value, rendered for comparison.
const HARMLESS: &str = "x";

/// Runs templates with values of a user.
///
/// The parts are the path of a URL, a header's value, a text of the body, a text of a manifest, the name of the target
/// and a label. Templates read the last two as `${target.name}` and `${target.labels.l}`.
pub(crate) fn requests(parts: &InputParts<'_>) {
    let document = serde_json::json!({
        "apiVersion": "ebb.dev/v1", "kind": "Plugin", "name": "p",
        "preStart": {
            "u": {"webhook": {
                "url": format!("https://receiver.example.org:8443/{}", parts.get(0)),
                "headers": {"x-value": parts.get(1)},
                "body": {"text": parts.get(2)},
            }},
            "v": {"object": {"manifest": {
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "n", "namespace": "ns"}, "data": {"text": parts.get(3)},
            }}},
        },
    });
    let plugins = load::plugins("p.yaml", &document.to_string(), &NoFiles, &DocumentVars::none());
    let Some(plan) = placed::accepted(plugins).and_then(|plugins| bound(plugins.first()?)) else { return };
    let sent = |name: &str, label: &str| {
        let facts = TargetFacts {
            kind: "sandbox".to_owned(),
            name: name.to_owned(),
            labels: BTreeMap::from([("l".to_owned(), label.to_owned())]),
            ..TargetFacts::default()
        };
        (rendered(&plan, &facts, 0), rendered(&plan, &facts, 1))
    };
    let (wanted, (hostile, applied)) = (sent(HARMLESS, HARMLESS), sent(parts.get(4), parts.get(5)));
    if let (Some(wanted), Some(hostile)) = (wanted.0, hostile) {
        let (RenderedUnit::Webhook(wanted), RenderedUnit::Webhook(hostile)) = (wanted, hostile) else {
            panic!("unit 0 is a request");
        };
        same_receiver(&wanted, &hostile);
    }
    if let Some(applied) = applied {
        let RenderedUnit::Object { manifests, .. } = applied else { panic!("unit 1 is a manifest") };
        let applied = &manifests[0];
        assert_eq!((&applied["kind"], &applied["metadata"]["namespace"]), (&"ConfigMap".into(), &"ns".into()));
        assert!(applied["data"]["text"].is_string() || parts.get(3).contains("${"));
        assert_eq!(applied.as_object().map(serde_json::Map::len), Some(4), "{applied}");
    }
}

/// Returns a unit of the hook `preStart`, or `None` if it has an error.
fn rendered(plan: &Plan, facts: &TargetFacts, unit: u32) -> Option<RenderedUnit> {
    let at = UnitRef { hook: Hook::PreStart, unit };
    render::unit(UnitContext { plan, at, facts, known: &KnownOutputs::new() }, None).ok()
}

fn same_receiver(wanted: &RenderedRequest, hostile: &RenderedRequest) {
    assert_eq!(wanted.method, hostile.method);
    assert!(wanted.headers.keys().eq(hostile.headers.keys()));
    let [one, two] = [wanted, hostile].map(|request| Url::parse(&request.url));
    let (Ok(one), Ok(two)) = (one, two) else { panic!("no URLs: {} {}", wanted.url, hostile.url) };
    assert_eq!(one.origin(), two.origin(), "{} {}", wanted.url, hostile.url);
    assert_eq!(two.host_str(), Some("receiver.example.org"));
    assert!(two.username().is_empty() && two.password().is_none(), "{two}");
    let segments = |url: &Url| url.path_segments().map_or(0, Iterator::count);
    assert_eq!(segments(&one), segments(&two), "another path: {one} {two}");
    assert_eq!(one.query_pairs().count(), two.query_pairs().count(), "another query: {one} {two}");
    assert_eq!(one.query().is_some(), two.query().is_some(), "{one} {two}");
    for value in hostile.headers.values() {
        assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
    }
}
