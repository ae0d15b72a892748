//! What names stand for when a unit is rendered.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value as Json;

use super::evaluate::{Compiled, Part};
use super::{Facts, Known, MAX_VALUE_BYTES, Produced, RenderError, SecretRef, Value};
use crate::expr::convert::{self, Made};
use crate::expr::{self, Expression, Reference, Source, Usage};
use crate::plan::{Plan, Template, cluster_name};

/// What is done about an output that nobody has made yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknowns {
    Missing,
    Shown,
}

/// What is known of the values of one resource.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) compiled: &'a Compiled,
    pub(super) facts: &'a Facts,
    pub(super) known: &'a Known,
    pub(super) unknowns: Unknowns,
    /// Whose `params` and `units` are meant.
    pub(super) resource: &'a str,
    pub(super) reader: Reader<'a>,
}

/// Who gets values.
#[derive(Clone, Copy)]
pub(super) enum Reader<'a> {
    /// A unit in this cluster; `None`: the control plane's default.
    Cluster(Option<&'a str>),
    /// Whoever reads what a target has; a sensitive value is told as where it is.
    Outside,
}

/// A value that was looked up or made.
#[derive(Clone, Debug)]
pub(super) enum Found {
    Value(Value),
    Nothing,
    /// Nobody has made it yet, or it is not for showing.
    Placeholder(String),
}

impl<'a> World<'a> {
    /// What a resource, or the target if it is none's, shows of itself.
    pub(super) fn outside(
        plan: &'a Plan,
        compiled: &'a Compiled,
        facts: &'a Facts,
        known: &'a Known,
        resource: &'a str,
    ) -> Self {
        Self { plan, compiled, facts, known, unknowns: Unknowns::Missing, resource, reader: Reader::Outside }
    }

    /// The same world seen from another resource.
    fn of(self, resource: &'a str) -> Self {
        Self { resource, ..self }
    }

    /// What a reference stands for. Nothing for what is missing, however deep.
    pub(super) fn lookup(self, source: &Source, place: &str) -> Result<Found, RenderError> {
        let made = match source {
            Source::Target(field) => {
                return Ok(self.facts.field(field).map_or(Found::Nothing, |v| Found::Value(Value::Json(v))));
            }
            Source::Own(field) => {
                return Ok(match (self.unknowns, self.facts.own(self.resource, field)) {
                    (Unknowns::Shown, Some(_)) if field == "key" => {
                        Found::Placeholder(format!("{}.key", self.resource))
                    }
                    (_, Some(value)) => Found::Value(Value::Json(value)),
                    (_, None) => Found::Nothing,
                });
            }
            Source::Response | Source::Object | Source::Objects => return Ok(Found::Nothing),
            Source::Output { unit, output } => return Ok(self.output(unit, output)),
            Source::Param(name) => {
                let Some(resource) = self.plan.resources.get(self.resource) else {
                    return Ok(Found::Nothing);
                };
                let Some(template) = resource.params.get(name) else { return Ok(Found::Nothing) };
                self.template(template, place)
            }
            Source::Resource { resource, output } => {
                let Some((name, found)) = self.plan.resources.get_key_value(resource) else {
                    return Ok(Found::Nothing);
                };
                let Some(public) = found.outputs.get(output) else { return Ok(Found::Nothing) };
                self.of(name).template(&public.value, place)
            }
        };
        match made {
            Err(RenderError::Missing { .. }) => Ok(Found::Nothing),
            other => other,
        }
    }

    fn output(self, unit: &str, output: &str) -> Found {
        let key = format!("{}/{unit}", self.resource);
        let at = self.compiled.unit(&key);
        let sensitive = || {
            let declared = at.and_then(|at| self.plan.unit(at)).and_then(|unit| unit.outputs.get(output));
            declared.is_some_and(|output| output.sensitive)
        };
        match at.and_then(|at| self.known.get(&at)) {
            Some(Produced::Outputs(outputs)) => match outputs.get(output) {
                Some(Value::Secret(_)) if self.unknowns == Unknowns::Shown => {
                    Found::Placeholder("sensitive".to_owned())
                }
                Some(value) => Found::Value(value.clone()),
                None => Found::Nothing,
            },
            Some(Produced::Skipped | Produced::Absent) => Found::Nothing,
            None if self.unknowns == Unknowns::Missing => Found::Nothing,
            None if sensitive() => Found::Placeholder("sensitive".to_owned()),
            None => Found::Placeholder(format!("{key}.{output}")),
        }
    }

    /// The value of a template.
    pub(super) fn template(self, template: &Template, place: &str) -> Result<Found, RenderError> {
        match template {
            Template::Literal(value) => Ok(Found::Value(Value::Json(value.clone()))),
            Template::Secret { .. } if self.unknowns == Unknowns::Shown => {
                Ok(Found::Placeholder("sensitive".to_owned()))
            }
            Template::Secret { name, key } => Ok(Found::Value(Value::Secret(SecretRef {
                cluster: self.facts.cluster.clone(),
                namespace: self.facts.namespace.clone(),
                name: name.clone(),
                key: key.clone(),
            }))),
            Template::Text(text) => self.text(text, place),
            Template::Tree(tree) => {
                let made = self.tree(tree, place, Lenience::Strict)?;
                Ok(made.map_or(Found::Nothing, |json| Found::Value(Value::Json(json))))
            }
        }
    }

    /// The value of a text with `${…}`.
    pub(super) fn text(self, text: &str, place: &str) -> Result<Found, RenderError> {
        let Some(parts) = self.compiled.parts(text) else {
            return Ok(Found::Value(Value::Json(text.into())));
        };
        if let [Part::Expression(expression)] = parts {
            return self.expression(expression, place);
        }
        let mut joined = String::new();
        for part in parts {
            match part {
                Part::Literal(text) => joined.push_str(text),
                Part::Expression(expression) => joined.push_str(&self.piece(expression, place)?),
            }
            capped(place, joined.len())?;
        }
        Ok(Found::Value(Value::Json(joined.into())))
    }

    /// An expression as a piece of a text; an optional without a value is empty.
    pub(super) fn piece(self, expression: &Expression, place: &str) -> Result<String, RenderError> {
        Ok(match self.expression(expression, place)? {
            Found::Value(value) => text_of(value, place, expression)?,
            Found::Nothing => String::new(),
            Found::Placeholder(name) => format!("<{name}>"),
        })
    }

    /// The value of an expression. A missing value that is needed is an error; an optional one gives nothing.
    pub(super) fn expression(self, expression: &Expression, place: &str) -> Result<Found, RenderError> {
        if let Some(whole) = expression.whole() {
            return match self.lookup(&whole.source, place)? {
                Found::Nothing if !whole.optional => Err(missing(place, whole)),
                Found::Value(value) => self.guarded(value, whole, place).map(Found::Value),
                found => Ok(found),
            };
        }
        let mut tree = Branch::default();
        let mut needed: Option<&Reference> = None;
        let mut placeholders: Vec<String> = Vec::new();
        for reference in &expression.references {
            match self.lookup(&reference.source, place)? {
                Found::Placeholder(name) => placeholders.push(name),
                Found::Nothing => {
                    tree.empty(&reference.source);
                    if !reference.optional && needed.is_none() {
                        needed = Some(reference);
                    }
                }
                Found::Value(value) => {
                    let value = match self.guarded(value, reference, place)? {
                        Value::Json(json) => convert::from_json(&json),
                        Value::Bytes(bytes) => expr::Value::Bytes(bytes.into()),
                        Value::Secret(secret)
                            if matches!(reference.usage, Usage::SecretRef | Usage::Presence) =>
                        {
                            let entries = [("name", secret.name), ("key", secret.key)];
                            convert::from_map(
                                entries.map(|(k, v)| (k.to_owned(), expr::Value::from(v))).into(),
                            )
                        }
                        Value::Secret(_) => {
                            let what = reference.source.to_string();
                            return Err(RenderError::Sensitive { place: place.to_owned(), what });
                        }
                    };
                    tree.set(&reference.source, value);
                }
            }
        }
        if !placeholders.is_empty() {
            placeholders.sort();
            placeholders.dedup();
            return Ok(Found::Placeholder(placeholders.join(", ")));
        }
        match (self.compiled.run(expression, tree.variables(), place), needed) {
            (Ok(Made::Json(json)), _) => Ok(Found::Value(Value::Json(json))),
            (Ok(Made::Bytes(bytes)), _) => Ok(Found::Value(Value::Bytes(bytes))),
            (Ok(Made::Nothing), _) => Ok(Found::Nothing),
            (Err(RenderError::Evaluation { .. }), Some(needed)) => Err(missing(place, needed)),
            (Err(error), _) => Err(error),
        }
    }

    /// A sensitive value is of no use in another cluster than the one that holds it.
    fn guarded(self, value: Value, reference: &Reference, place: &str) -> Result<Value, RenderError> {
        match (&value, self.reader) {
            (Value::Secret(secret), Reader::Cluster(cluster))
                if cluster_name(secret.cluster.as_deref()) != cluster_name(cluster) =>
            {
                Err(RenderError::OtherCluster {
                    place: place.to_owned(),
                    what: reference.source.to_string(),
                    holder: cluster_name(secret.cluster.as_deref()).to_owned(),
                    user: cluster_name(cluster).to_owned(),
                })
            }
            _ => Ok(value),
        }
    }

    /// A tree whose strings are templates. Entries without a value are left out; `None` if nothing is left of it.
    pub(super) fn tree(
        self,
        tree: &Json,
        place: &str,
        lenience: Lenience,
    ) -> Result<Option<Json>, RenderError> {
        Ok(Some(match tree {
            Json::String(text) => match self.text(text, place) {
                Ok(Found::Value(Value::Json(json))) => json,
                Ok(Found::Value(Value::Bytes(_))) => {
                    return Err(RenderError::Type {
                        place: place.to_owned(),
                        wanted: "text",
                        got: "bytes that are not UTF-8",
                    });
                }
                Ok(Found::Value(Value::Secret(_))) => {
                    return Err(RenderError::Sensitive {
                        place: place.to_owned(),
                        what: "a value".to_owned(),
                    });
                }
                Ok(Found::Nothing) => return Ok(None),
                Ok(Found::Placeholder(name)) => format!("<{name}>").into(),
                Err(RenderError::Missing { .. }) if lenience == Lenience::LeaveOut => return Ok(None),
                Err(error) => return Err(error),
            },
            Json::Array(items) => {
                let made: Result<Vec<Option<Json>>, _> =
                    items.iter().map(|item| self.tree(item, place, lenience)).collect();
                made?.into_iter().flatten().collect()
            }
            Json::Object(map) => {
                let mut made = serde_json::Map::with_capacity(map.len());
                for (key, value) in map {
                    if let Some(value) = self.tree(value, place, lenience)? {
                        made.insert(key.clone(), value);
                    }
                }
                made.into()
            }
            scalar => scalar.clone(),
        }))
    }
}

/// What is done about a value that is needed and missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lenience {
    Strict,
    /// What undoes a unit that failed takes what there is.
    LeaveOut,
}

pub(super) fn missing(place: &str, reference: &Reference) -> RenderError {
    RenderError::Missing { place: place.to_owned(), what: format!("`{}`", reference.source) }
}

pub(super) fn capped(place: &str, bytes: usize) -> Result<(), RenderError> {
    match bytes > MAX_VALUE_BYTES {
        true => Err(RenderError::TooLarge { place: place.to_owned(), bytes, limit: MAX_VALUE_BYTES }),
        false => Ok(()),
    }
}

/// A value as text: JSON for what is not text.
fn text_of(value: Value, place: &str, expression: &Expression) -> Result<String, RenderError> {
    match value {
        Value::Json(Json::String(text)) => Ok(text),
        Value::Json(json) => Ok(json.to_string()),
        Value::Bytes(_) => Err(RenderError::Type {
            place: place.to_owned(),
            wanted: "text",
            got: "bytes that are not UTF-8",
        }),
        Value::Secret(_) => {
            let what = expression.references.first().map(|r| r.source.to_string()).unwrap_or_default();
            Err(RenderError::Sensitive { place: place.to_owned(), what })
        }
    }
}

/// Values by path, to become CEL's variables.
#[derive(Default)]
struct Branch {
    leaf: Option<expr::Value>,
    branches: HashMap<String, Branch>,
}

impl Branch {
    fn set(&mut self, source: &Source, value: expr::Value) {
        let path = path(source);
        self.at(&path).leaf = Some(value);
    }

    /// Makes what is above a missing value, so that `.?` and `has()` find nothing in it.
    fn empty(&mut self, source: &Source) {
        let path = path(source);
        if let Some((_, above)) = path.split_last() {
            self.at(above);
        }
    }

    fn at(&mut self, path: &[&str]) -> &mut Self {
        path.iter().fold(self, |branch, step| branch.branches.entry((*step).to_owned()).or_default())
    }

    fn value(self) -> expr::Value {
        match self.leaf {
            Some(value) => value,
            None => convert::from_map(
                self.branches.into_iter().map(|(key, branch)| (key, branch.value())).collect(),
            ),
        }
    }

    fn variables(mut self) -> BTreeMap<&'static str, expr::Value> {
        let roots = crate::expr::Root::ALL.map(crate::expr::Root::as_str);
        roots.into_iter().filter_map(|root| Some((root, self.branches.remove(root)?.value()))).collect()
    }
}

fn path(source: &Source) -> Vec<&str> {
    match source {
        Source::Param(name) => vec!["params", name],
        Source::Output { unit, output } => vec!["units", unit, "outputs", output],
        Source::Resource { resource, output } => vec!["resources", resource, "outputs", output],
        Source::Target(field) => vec!["target", field],
        Source::Own(field) => vec!["resource", field],
        Source::Response => vec!["response"],
        Source::Object => vec!["object"],
        Source::Objects => vec!["objects"],
    }
}
