//! Reads the list of what exists at the sender of a source. An element stands for an event, about which the entries of the
//! source decide.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value as Json, json};

use super::{
    EntryAction, EventEntry, EventInput, EventListing, EventOutcome, EventRenderer, EventRequest, EventSource,
    EventTarget, MissingPiece, SourceEventError,
};
use crate::cel::convert::{self, CelOutput, json_type};
use crate::{ParsedText, cel, template};

/// Maximum bytes of the elements of a page.
const MAX_PAGE: usize = 2 << 20;
/// Maximum lists of a source.
const MAX_PARTS: usize = 500;

/// A page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedPage {
    pub things: Vec<ListedThing>,
    /// The URL of the next page by `next`. `None` after the last one, and without `next`.
    pub next: Option<String>,
}

/// An element of a list: a target, and what the entries of the source decide about it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedThing {
    pub kind: String,
    pub name: String,
    pub uid: Option<String>,
    pub outcome: EventOutcome,
}

/// A target whose thing is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedTarget {
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub labels: BTreeMap<String, String>,
}

/// The names that a list is about: a beginning and an end around any text, or one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedNames(String, Option<String>);

impl ListedNames {
    pub fn covers(&self, name: &str) -> bool {
        match (&self.1, name.strip_prefix(self.0.as_str())) {
            (None, rest) => rest == Some(""),
            (Some(end), rest) => rest.is_some_and(|rest| rest.ends_with(end.as_str())),
        }
    }
}

impl EventSource {
    fn list_renderer<'a>(
        &'a self,
        (part, seen): (&str, u64),
        variables: impl IntoIterator<Item = (&'static str, cel::CelValue<'a>)>,
    ) -> EventRenderer<'a> {
        let listing = convert::from_owned_json(json!({"part": part, "seen": seen}));
        EventRenderer::of(self, variables.into_iter().chain([("listing", listing)]))
    }

    /// Returns the texts that have a list each. Without `parts`, it is one empty text.
    ///
    /// # Errors
    /// Returns an error if the expression gives something else, or more than 500 texts.
    pub fn list_parts(&self, listing: &EventListing) -> Result<Vec<String>, SourceEventError> {
        let Some(parts) = listing.parts.as_ref().and_then(ParsedText::whole) else { return Ok(vec![String::new()]) };
        let renderer = self.list_renderer(("", 0), []);
        let error = |problem: String| renderer.error("exists.parts", Some(parts), problem);
        let Some(Json::Array(all)) = renderer.value(parts, "exists.parts")? else {
            return Err(error("expected a list of texts".to_owned()));
        };
        let texts: BTreeSet<String> = all.into_iter().map(template::joinable).filter(|part| !part.is_empty()).collect();
        match texts.len() {
            0 => Err(error("the list is empty, so nothing is listed".to_owned())),
            1..=MAX_PARTS => Ok(texts.into_iter().collect()),
            count => Err(error(format!("{count} texts; the limit is {MAX_PARTS}"))),
        }
    }

    /// Returns the names of the targets that the list of a part is about.
    ///
    /// # Errors
    /// Returns an error if the expression has no value.
    pub fn list_names(&self, listing: &EventListing, part: &str) -> Result<ListedNames, SourceEventError> {
        let Some(names) = &listing.names else { return Ok(ListedNames(String::new(), Some(String::new()))) };
        let renderer = self.list_renderer((part, 0), []);
        let names = renderer.text(names, "exists.names", MissingPiece::Rejected)?.unwrap_or_default();
        let parts = names.split_once('*').map(|(begin, end)| (begin.to_owned(), end.to_owned())).unzip();
        Ok(ListedNames(parts.0.unwrap_or(names), parts.1))
    }

    /// Returns the kinds of targets that the entries of the source make.
    pub fn list_kinds(&self) -> BTreeSet<&str> {
        self.entries.iter().filter_map(applied).map(|target| target.kind.as_str()).collect()
    }

    /// Returns the request for the first page of a part.
    ///
    /// # Errors
    /// Returns an error if a value of the path is missing.
    pub fn list_request(&self, listing: &EventListing, part: &str) -> Result<EventRequest, SourceEventError> {
        let path = self.list_renderer((part, 0), []).path(&listing.path, "exists.path")?;
        Ok(EventRequest { connection: listing.connection.clone(), path, headers: listing.headers.clone() })
    }

    /// Returns the request for the thing of a target, or `None` without `confirm`.
    ///
    /// # Errors
    /// Returns an error if a value of the path is missing.
    pub fn confirmation(
        &self,
        listing: &EventListing,
        part: &str,
        target: &ListedTarget,
    ) -> Result<Option<EventRequest>, SourceEventError> {
        let Some(confirm) = &listing.confirm else { return Ok(None) };
        let ListedTarget { kind, name, uid, labels } = target;
        let target = convert::from_owned_json(json!({"kind": kind, "name": name, "uid": uid, "labels": labels}));
        let path = self.list_renderer((part, 0), [("target", target)]).path(confirm, "exists.confirm")?;
        Ok(Some(EventRequest { connection: listing.connection.clone(), path, headers: listing.headers.clone() }))
    }

    /// Returns the elements of a page of a part, before which `seen` elements were read. `url` is that of the page, and
    /// `response` its `status`, `headers` and `body`.
    ///
    /// # Errors
    /// Returns an error if the page has no list, an element has no target, or an expression fails. The page shows nothing then.
    pub fn listed_page(
        &self,
        listing: &EventListing,
        (part, seen, url): (&str, u64, &str),
        response: &Json,
    ) -> Result<ListedPage, SourceEventError> {
        let renderer = self.list_renderer((part, seen), [("response", convert::from_json(response))]);
        let each = listing.each.as_ref().and_then(ParsedText::whole);
        let elements = match each.map(|each| cel::evaluate_within(each, &renderer.variables, &renderer.cost, MAX_PAGE))
        {
            None => response["body"].clone(),
            Some(Ok(CelOutput::Json(elements))) => elements,
            Some(Ok(_)) => Json::Null,
            Some(Err(error)) => return Err(renderer.error("exists.each", each, error.to_string())),
        };
        let Json::Array(elements) = elements else {
            let problem = format!("expected a list, got {}", json_type(&elements));
            return Err(renderer.error("exists.each", each, problem));
        };
        let after = seen + elements.len() as u64;
        let things =
            elements.into_iter().map(|item| self.listed_thing(listing, part, item)).collect::<Result<_, _>>()?;
        let Some(next) = &listing.next else { return Ok(ListedPage { things, next: None }) };
        let renderer = self.list_renderer((part, after), [("response", convert::from_json(response))]);
        let value = match next.whole() {
            Some(expression) => match renderer.run(expression) {
                Ok(CelOutput::Json(value)) => value,
                Ok(CelOutput::Nothing) => Json::Null,
                Ok(CelOutput::Bytes(_)) => return Err(renderer.error("exists.next", Some(expression), "got bytes")),
                // Half of a list would be taken for a whole one.
                Err(error) => return Err(renderer.error("exists.next", Some(expression), error.to_string())),
            },
            None => renderer.text(next, "exists.next", MissingPiece::Rejected)?.into(),
        };
        let next = template::next_url(url, value).map_err(|got| {
            renderer.error("exists.next", next.whole(), format!("expected {}, got {got}", template::NEXT))
        })?;
        Ok(ListedPage { things, next })
    }

    /// Returns the target of an element of a list, or of the thing that confirms it.
    ///
    /// # Errors
    /// Returns an error if an expression fails, or no target has a name.
    pub fn listed_thing(
        &self,
        listing: &EventListing,
        part: &str,
        item: Json,
    ) -> Result<ListedThing, SourceEventError> {
        let body = match listing.event.as_ref().and_then(ParsedText::whole) {
            None => item,
            Some(event) => {
                let renderer = self.list_renderer((part, 0), [("item", convert::from_json(&item))]);
                renderer.value(event, "exists.event")?.unwrap_or_default()
            }
        };
        let input = EventInput { body, ..EventInput::default() };
        let outcome = match self.explain(&input).outcome {
            // An event about it would be rejected, and it exists.
            Err(error) if self.target.is_some() => EventOutcome::Ignored { reason: error.to_string() },
            outcome => outcome?,
        };
        let (kind, name, uid) = match &outcome {
            EventOutcome::Apply { kind, name, uid, .. } | EventOutcome::Delete { kind, name, uid, .. } => {
                (kind.clone(), name.clone(), uid.clone())
            }
            EventOutcome::Ignored { .. } => {
                let renderer = EventRenderer::new(self, &input);
                let target = self.target.as_ref().or_else(|| self.entries.iter().find_map(applied));
                let target =
                    target.ok_or_else(|| renderer.error("exists.event", None, "an ignored element has no target"))?;
                (target.kind.clone(), renderer.target_name(target)?, None)
            }
        };
        Ok(ListedThing { kind, name, uid, outcome })
    }
}

fn applied(entry: &EventEntry) -> Option<&EventTarget> {
    if let EntryAction::Apply(target, _) = &entry.action { Some(target) } else { None }
}
