//! Lists of senders that have a preset: recorded pages, each with the targets of its elements.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::presets::senders;
use super::sources::{effect, source};
use crate::event::EventOutcome;
use crate::event::listing::{ListedTarget, ListedThing};
use crate::presets::{PRESETS, preset};

/// A page of a sender. The file describes its keys.
#[serde_with::apply(BTreeMap => #[serde(default)])]
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedPage {
    with: BTreeMap<String, Value>,
    #[serde(default)]
    part: String,
    path: String,
    headers: BTreeMap<String, String>,
    body: Value,
    next: Option<String>,
    things: Vec<String>,
    foreign: String,
    name: String,
    #[serde(default)]
    uid: String,
    labels: BTreeMap<String, String>,
    asked: String,
    answers: Vec<(Value, String)>,
}

fn text(thing: &ListedThing) -> String {
    match &thing.outcome {
        EventOutcome::Ignored { .. } => format!("{}/{} {}", thing.kind, thing.name, effect(&thing.outcome)),
        _ => effect(&thing.outcome),
    }
}

/// Returns the action of an effect, with the name and the UID of its target.
fn identity(effect: &str) -> Vec<&str> {
    effect.split(' ').take(3).collect()
}

#[test]
fn the_list_of_a_preset_shows_the_targets_of_its_events() {
    let pages: BTreeMap<String, RecordedPage> =
        serde_saphyr::from_str(include_str!("../../tests/listed_pages.yaml")).unwrap();
    let listing = PRESETS.iter().filter(|preset| preset.document().exists.is_some()).map(|preset| preset.name);
    assert_eq!(pages.keys().collect::<Vec<_>>(), listing.collect::<Vec<_>>());
    let senders = senders();
    for (name, page) in pages {
        let starter = preset(&name).unwrap().starter("s");
        let source = source(&format!("{starter}with: {}\nexists: {{connection: c}}\n", json!(page.with)));
        let listing = source.listing.clone().unwrap();
        assert!(source.list_parts(&listing).unwrap().contains(&page.part), "{name}");
        let request = source.list_request(&listing, &page.part).unwrap();
        assert_eq!((request.connection.as_str(), &request.path), ("c", &page.path));

        let url = format!("https://sender.example{}", page.path);
        let response = json!({"status": 200, "headers": page.headers, "body": page.body});
        let found = source.listed_page(&listing, (&page.part, 0, &url), &response);
        let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
        let next = if listing.has_next() { found.next } else { Some("link".to_owned()) };
        assert_eq!(next, page.next, "{name}");
        let things: Vec<String> = found.things.iter().map(text).collect();
        assert_eq!(things, page.things, "{name}");
        let names = source.list_names(&listing, &page.part).unwrap();
        for ListedThing { kind, name, .. } in &found.things {
            assert!(names.covers(name) && source.list_kinds().contains(kind.as_str()), "{kind}/{name}");
        }
        assert!(!names.covers(&page.foreign), "{}", page.foreign);
        // An ignored element has no action.
        let ignored = things[0].split_once(" ignored: ").map(|(target, _)| target);
        let is_of_event = |effect: &String| {
            identity(effect) == identity(&things[0]) || (ignored.is_some() && effect.split(' ').nth(1) == ignored)
        };
        assert!(senders[&name].events.keys().any(is_of_event), "no event is about {}", things[0]);

        let labels = senders[&name].labels.clone().into_iter();
        let mut labels: BTreeMap<String, String> = labels.filter_map(|(name, value)| Some((name, value?))).collect();
        labels.extend(page.labels);
        let target = ListedTarget { kind: found.things[0].kind.clone(), name: page.name, uid: page.uid, labels };
        let asked = source.confirmation(&listing, &page.part, &target).unwrap().unwrap();
        assert_eq!(asked.path, page.asked);
        let lists = page.body.as_object().into_iter().flat_map(|body| body.values());
        let mut lists = [&page.body].into_iter().chain(lists).filter_map(Value::as_array);
        let first = lists.next().unwrap()[0].clone();
        for (changes, expected) in page.answers {
            let mut answer = first.clone();
            answer.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            let thing = source.listed_thing(&listing, &page.part, answer).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(text(&thing), expected, "{name}");
        }
    }
}
