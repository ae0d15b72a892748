//! Parses the expressions of a plan once, and evaluates them.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value as Json;

use super::{KnownOutputs, RenderError, RenderResult};
use crate::cel::convert::CelOutput;
use crate::cel::{self, EvaluationError, Expression, Scope};
use crate::plan::{Action, ManifestConditions, OutputFrom, Plan, Template, UnitRef};
use crate::template::{self, TemplatePiece};

/// The parsed expressions of a plan. Created once per plan and shared.
pub struct CompiledExpressions {
    texts: HashMap<String, Vec<TextPart>>,
    expressions: HashMap<String, Expression>,
    /// The units with each key. The undo of a former resource is in the hook of its update and in a later hook.
    units: HashMap<String, Vec<UnitRef>>,
}

/// A part of a text.
pub(super) enum TextPart {
    Literal(String),
    Expression(Expression),
}

impl std::fmt::Debug for CompiledExpressions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Compiled");
        shown.field("texts", &self.texts.len()).field("expressions", &self.expressions.len()).finish_non_exhaustive()
    }
}

impl CompiledExpressions {
    /// Parses all expressions of the plan.
    ///
    /// # Errors
    /// Returns [`RenderError::Plan`] for a plan that this crate did not create.
    pub fn new(plan: &Plan) -> RenderResult<Self> {
        let mut compiled = Self { texts: HashMap::new(), expressions: HashMap::new(), units: HashMap::new() };
        let former = plan.update.iter().flat_map(|state| &state.former);
        let former = former.filter_map(|(name, former)| Some((name, former.resource.as_ref()?)));
        for (name, resource) in plan.resources.iter().chain(former) {
            for (param, value) in &resource.params {
                compiled.template(value, &format!("param `{param}` of `{name}`"))?;
            }
            for (output, public) in &resource.outputs {
                compiled.template(&public.value, &format!("output `{output}` of `{name}`"))?;
            }
        }
        for (name, value) in &plan.env {
            compiled.template(value, &format!("env `{name}`"))?;
        }
        for hook in &plan.hooks {
            for (at, unit) in hook.places() {
                let place = &unit.key;
                compiled.units.entry(unit.key.clone()).or_default().push(at);
                let outputs = unit.outputs.values().filter_map(|output| match &output.from {
                    OutputFrom::Expression(text) | OutputFrom::Secret { name: text, .. } => Some(text),
                    OutputFrom::File(_) => None,
                });
                for text in unit.when.iter().chain(outputs) {
                    compiled.expression(text, place)?;
                }
                for input in &unit.inputs {
                    compiled.template(&input.value, place)?;
                }
                match &unit.action {
                    Action::Pod(_) | Action::Removal | Action::Destroy => {}
                    Action::Infrakit(action) => {
                        compiled.tree(&action.properties, place)?;
                        action.attachments.iter().try_for_each(|tree| compiled.tree(tree, place))?;
                        let texts = action.init.iter().chain(&action.logical_id).chain(action.tags.values());
                        texts.into_iter().try_for_each(|text| compiled.template(text, place))?;
                    }
                    Action::Webhook(webhook) => {
                        compiled.template(&webhook.url, place)?;
                        webhook.describe.iter().try_for_each(|url| compiled.template(url, place))?;
                        webhook.describe_found.iter().try_for_each(|text| compiled.expression(text, place))?;
                        if let Some(until) = &webhook.until {
                            compiled.template(&until.url, place)?;
                            let texts = until.ready.iter().chain(&until.failed);
                            texts.into_iter().try_for_each(|text| compiled.expression(text, place))?;
                        }
                        webhook.absent.iter().try_for_each(|text| compiled.expression(text, place))?;
                        webhook.headers.values().try_for_each(|value| compiled.template(value, place))?;
                        webhook.body.iter().try_for_each(|body| compiled.tree(body, place))?;
                    }
                    Action::Object(object) => {
                        compiled.tree(&object.manifest, place)?;
                        let conditions = object.ready.iter().chain(&object.fail);
                        let mut texts = conditions.flat_map(ManifestConditions::texts);
                        texts.try_for_each(|text| compiled.expression(text, place))?;
                    }
                }
            }
        }
        Ok(compiled)
    }

    fn template(&mut self, template: &Template, place: &str) -> RenderResult<()> {
        match template {
            Template::Literal(_) | Template::Secret { .. } | Template::Sealed(_) | Template::Plain(_) => Ok(()),
            Template::Text(text) => self.text(text, place),
            Template::Tree(tree) => self.tree(tree, place),
        }
    }

    fn tree(&mut self, tree: &Json, place: &str) -> RenderResult<()> {
        match tree {
            Json::String(text) => self.text(text, place),
            Json::Array(items) => items.iter().try_for_each(|item| self.tree(item, place)),
            Json::Object(map) => map.values().try_for_each(|value| self.tree(value, place)),
            _ => Ok(()),
        }
    }

    fn text(&mut self, text: &str, place: &str) -> RenderResult<()> {
        if !text.contains('$') || self.texts.contains_key(text) {
            return Ok(());
        }
        let pieces = template::split(text).map_err(|error| wrong(place, error.to_string()))?;
        let parts: RenderResult<Vec<TextPart>> = pieces
            .into_iter()
            .map(|piece| match piece {
                TemplatePiece::Literal(text) => Ok(TextPart::Literal(text)),
                TemplatePiece::Expression { text, .. } => parse(&text, place).map(TextPart::Expression),
            })
            .collect();
        self.texts.insert(text.to_owned(), parts?);
        Ok(())
    }

    fn expression(&mut self, text: &str, place: &str) -> RenderResult<()> {
        if !self.expressions.contains_key(text) {
            self.expressions.insert(text.to_owned(), parse(text, place)?);
        }
        Ok(())
    }

    /// Returns the parts of a text, or `None` for a literal.
    pub(super) fn parts(&self, text: &str) -> Option<&[TextPart]> {
        self.texts.get(text).map(Vec::as_slice)
    }

    pub(super) fn parsed(&self, text: &str, place: &str) -> RenderResult<&Expression> {
        self.expressions.get(text).ok_or_else(|| wrong(place, "it belongs to another plan".to_owned()))
    }

    /// Returns the plan reference of a unit. Of several units with one key, returns the one with known outputs.
    pub(super) fn unit(&self, key: &str, known: &KnownOutputs) -> Option<UnitRef> {
        let units = self.units.get(key)?;
        units.iter().find(|at| known.contains_key(at)).or(units.first()).copied()
    }

    /// Evaluates an expression over these variables.
    pub(super) fn run(
        &self,
        expression: &Expression,
        variables: &BTreeMap<&str, cel::CelValue<'_>>,
        place: &str,
    ) -> RenderResult<CelOutput> {
        let place = || place.to_owned();
        let failed = |reason, is_missing| RenderError::Evaluation { place: place(), reason, is_missing };
        cel::evaluate(expression, variables).map_err(|failure| match failure {
            EvaluationError::Evaluation(reason) => failed(reason, false),
            EvaluationError::MissingValue(reason) => failed(reason, true),
            EvaluationError::TooCostly(cost) => RenderError::TooCostly { place: place(), cost },
        })
    }
}

fn parse(text: &str, place: &str) -> RenderResult<Expression> {
    cel::parse(text, Scope::Plan)
        .map_err(|mistakes| wrong(place, mistakes.first().map(|mistake| mistake.message.clone()).unwrap_or_default()))
}

fn wrong(place: &str, reason: String) -> RenderError {
    RenderError::Plan { place: place.to_owned(), reason }
}
