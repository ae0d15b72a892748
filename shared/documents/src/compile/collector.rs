//! Texts of a document: their expressions, and what these use.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use super::defaults::MAX_STEPS;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::expr::{self, ReferenceSource, ReferenceUsage, Scope};
use crate::model::{At, LineColumn, Named, SourceText, TemplateTree};
use crate::plan::Template;
use crate::template::{self, TemplatePiece, UnclosedExpression};

/// The code of the error that ends a compilation which takes too many steps.
pub(super) const COMPILE_LIMIT: &str = "compile-limit";

/// The steps that a compilation has taken, over all of its documents.
pub(super) type StepCount = Rc<Cell<u64>>;

/// Collects what is wrong with one document.
pub(super) struct DiagnosticCollector {
    pub(super) source: Arc<SourceText>,
    pub(super) found: Diagnostics,
    pub(super) steps: StepCount,
}

/// Something that a text of a document reads.
#[derive(Clone, Debug)]
pub(super) struct ExpressionRead<'a> {
    pub(super) source: ReferenceSource,
    pub(super) optional: bool,
    pub(super) usage: ReferenceUsage,
    pub(super) spot: TextSpan<'a>,
}

/// A place within a text. The line and column are looked up only for a message: that takes a walk over the document.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextSpan<'a> {
    text: &'a str,
    at: LineColumn,
    offset: usize,
    length: usize,
}

impl TextSpan<'_> {
    pub(super) fn pos(&self, source: &SourceText) -> LineColumn {
        template::place(source, &At { value: self.text, at: self.at }, self.offset)
    }
}

impl DiagnosticCollector {
    pub(super) fn new(source: &Arc<SourceText>, steps: &StepCount) -> Self {
        Self { source: Arc::clone(source), found: Diagnostics::new(), steps: Rc::clone(steps) }
    }

    fn is_exhausted(&self) -> bool {
        self.steps.get() > MAX_STEPS
    }

    /// Returns true if further errors would not be reported: there are enough, or no steps are left.
    pub(super) fn is_full(&self) -> bool {
        self.found.is_full() || self.is_exhausted()
    }

    /// Counts steps. Returns false if there are more than [`MAX_STEPS`].
    pub(super) fn count(&self, steps: u64) -> bool {
        self.steps.set(self.steps.get().saturating_add(steps));
        !self.is_exhausted()
    }

    /// Counts steps as [`Self::count`] does. Too many are an error at this place.
    pub(super) fn spend(&mut self, steps: u64, at: LineColumn) -> bool {
        let before = self.is_exhausted();
        let allowed = self.count(steps);
        if !allowed && !before {
            self.exhausted(at);
        }
        allowed
    }

    /// Reports that the work up to this place is more than a document may take.
    pub(super) fn exhausted(&mut self, at: LineColumn) {
        let message = format!("up to here, compiling takes more than the limit of {MAX_STEPS} steps");
        let help = "use fewer or simpler patterns, expressions and references, or split the document";
        self.push(self.error(COMPILE_LIMIT, at, message).help(help));
    }

    /// Returns the errors so far, if there are any. Work that was not done for want of steps is one of them.
    pub(super) fn errors(&mut self, at: LineColumn) -> Option<Diagnostics> {
        if self.is_exhausted() && !self.found.iter().any(|found| found.code == COMPILE_LIMIT) {
            self.exhausted(at);
        }
        self.found.has_errors().then(|| std::mem::take(&mut self.found).sorted())
    }

    /// Names what was meant: the nearest candidate, or all of them.
    pub(super) fn suggest<'c>(
        &self,
        diagnostic: Diagnostic,
        name: &str,
        candidates: impl IntoIterator<Item = &'c str>,
    ) -> Diagnostic {
        self.found.suggest(diagnostic, name, candidates)
    }

    /// Adds an error at a place; gives it for what is to be added.
    pub(super) fn error(&self, code: &'static str, at: LineColumn, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, &self.source, at, message)
    }

    /// An error at a place within a text.
    pub(super) fn error_in(&self, code: &'static str, spot: &TextSpan<'_>, message: impl Into<String>) -> Diagnostic {
        // Looking for the place takes a walk over the document.
        let at = if self.found.is_full() { spot.at } else { spot.pos(&self.source) };
        let diagnostic = Diagnostic::error(code, &self.source, at, message);
        if spot.length > 0 { diagnostic.length(spot.length) } else { diagnostic }
    }

    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// The template that a text is, and what it uses.
    pub(super) fn text<'a>(
        &mut self,
        text: &'a str,
        at: LineColumn,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) -> Template {
        let pieces = match template::split(text) {
            Ok(pieces) => pieces,
            Err(UnclosedExpression { offset }) => {
                self.unclosed(text, at, offset);
                return Template::Literal(text.into());
            }
        };
        let alone = pieces.len() == 1;
        let mut literal = String::new();
        let mut expressions = false;
        for piece in &pieces {
            match piece {
                TemplatePiece::Literal(text) => literal.push_str(text),
                TemplatePiece::Expression { text: expression, offset } => {
                    expressions = true;
                    let first = uses.len();
                    self.uses(expression, (text, *offset), at, scope, uses);
                    for found in uses.iter_mut().skip(first) {
                        if !alone && found.usage == ReferenceUsage::Whole {
                            found.usage = ReferenceUsage::Part;
                        }
                    }
                }
            }
        }
        if expressions { Template::Text(text.to_owned()) } else { Template::Literal(literal.into()) }
    }

    /// The CEL expression that a text is: the one in its `${…}`, or all of it.
    pub(super) fn expression<'a>(
        &mut self,
        what: &str,
        text: &'a At<String>,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) -> Option<String> {
        let content = text.value.as_str();
        let pieces = match template::split(content) {
            Ok(pieces) => pieces,
            Err(UnclosedExpression { offset }) => {
                self.unclosed(content, text.at, offset);
                return None;
            }
        };
        let (expression, offset) = match pieces.as_slice() {
            [TemplatePiece::Expression { text, offset }] => (text.clone(), *offset),
            [] | [TemplatePiece::Literal(_)] => (content.to_owned(), 0),
            _ => {
                let message = format!("{what} has to be one expression");
                let help = "put all of it into one `${…}`";
                self.push(self.error("syntax", text.at, message).help(help));
                return None;
            }
        };
        self.uses(&expression, (content, offset), text.at, scope, uses);
        Some(expression)
    }

    /// The template that a tree is, and what it uses.
    pub(super) fn tree<'a>(
        &mut self,
        tree: &'a At<TemplateTree>,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) -> Template {
        self.tree_at(&tree.value, tree.at, scope, uses)
    }

    /// [`Self::tree`] for a tree whose place is known otherwise.
    pub(super) fn tree_at<'a>(
        &mut self,
        tree: &'a TemplateTree,
        at: LineColumn,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) -> Template {
        match tree {
            TemplateTree::Scalar(value) => Template::Literal(value.clone()),
            TemplateTree::Text(text) => self.text(text, at, scope, uses),
            TemplateTree::List(_) | TemplateTree::Map(_) => {
                let first = uses.len();
                let templates = self.strings_at(tree, at, scope, uses);
                let within = uses.get_mut(first..).unwrap_or_default();
                if within.is_empty() && !has_expression(tree) {
                    // Nothing is computed: the value as it will be, without escapes.
                    return Template::Literal(literal(tree));
                }
                for found in within.iter_mut().filter(|found| found.usage == ReferenceUsage::Whole) {
                    found.usage = ReferenceUsage::Part;
                }
                Template::Tree(templates)
            }
        }
    }

    /// The tree as JSON in which each string is a template.
    pub(super) fn strings<'a>(
        &mut self,
        tree: &'a At<TemplateTree>,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) -> Value {
        self.strings_at(&tree.value, tree.at, scope, uses)
    }

    fn strings_at<'a>(
        &mut self,
        tree: &'a TemplateTree,
        at: LineColumn,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) -> Value {
        match tree {
            TemplateTree::Scalar(value) => value.clone(),
            TemplateTree::Text(text) => match self.text(text, at, scope, uses) {
                Template::Text(text) => text.into(),
                Template::Literal(Value::String(text)) => template::escape(&text).into(),
                Template::Literal(value) | Template::Tree(value) => value,
                Template::Secret { .. } => Value::Null,
            },
            TemplateTree::List(items) => items.iter().map(|item| self.strings(item, scope, uses)).collect(),
            TemplateTree::Map(entries) => {
                let mut map = serde_json::Map::new();
                for Named { name, inner: value } in entries {
                    map.insert(name.value.clone(), self.strings(value, scope, uses));
                }
                map.into()
            }
        }
    }

    fn unclosed(&mut self, text: &str, at: LineColumn, offset: usize) {
        let spot = TextSpan { text, at, offset, length: 2 };
        let diagnostic = self.error_in("syntax", &spot, "`${` is never closed");
        self.push(diagnostic.help("close it with `}`, or write `$${` for a literal `${`"));
    }

    fn uses<'a>(
        &mut self,
        expression: &str,
        (text, start): (&'a str, usize),
        at: LineColumn,
        scope: Scope,
        uses: &mut Vec<ExpressionRead<'a>>,
    ) {
        if self.is_full() {
            return;
        }
        match expr::parse(expression, scope) {
            Ok(parsed) => {
                uses.extend(parsed.references.into_iter().map(|reference| ExpressionRead {
                    spot: TextSpan { text, at, offset: start + reference.offset, length: reference.length },
                    source: reference.source,
                    optional: reference.optional,
                    usage: reference.usage,
                }));
                if !self.count(parsed.steps) {
                    self.exhausted(TextSpan { text, at, offset: start, length: 0 }.pos(&self.source));
                }
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    let spot = TextSpan { text, at, offset: start + mistake.offset, length: mistake.length };
                    let diagnostic = self.error_in(mistake.code, &spot, mistake.message);
                    self.push(match mistake.help {
                        Some(help) => diagnostic.help(help),
                        None => diagnostic,
                    });
                }
            }
        }
    }
}

/// Returns true if a text in the tree computes something, be it from constants.
fn has_expression(tree: &TemplateTree) -> bool {
    match tree {
        TemplateTree::Scalar(_) => false,
        TemplateTree::Text(text) => template::split(text)
            .is_ok_and(|pieces| pieces.iter().any(|piece| matches!(piece, TemplatePiece::Expression { .. }))),
        TemplateTree::List(items) => items.iter().any(|item| has_expression(&item.value)),
        TemplateTree::Map(entries) => entries.iter().any(|entry| has_expression(&entry.value)),
    }
}

/// A tree without expressions as the value that it is.
fn literal(tree: &TemplateTree) -> Value {
    match tree {
        TemplateTree::Scalar(value) => value.clone(),
        TemplateTree::Text(text) => text.replace("$${", "${").into(),
        TemplateTree::List(items) => items.iter().map(|item| literal(&item.value)).collect(),
        TemplateTree::Map(entries) => {
            let entries = entries.iter().map(|entry| (entry.name.value.clone(), literal(&entry.value)));
            Value::Object(entries.collect())
        }
    }
}
