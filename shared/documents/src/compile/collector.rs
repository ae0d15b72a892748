//! Collects errors, and parses the texts of a document with the values that they read.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use serde_json::Value;

use super::defaults::MAX_STEPS;
use crate::model::{At, LineColumn, SourceText, TemplateTree};
use crate::template::{self, TemplatePiece, UnclosedExpression};
use crate::{Diagnostic, Diagnostics, Expression, ReferenceSource, ReferenceUsage, Scope, Template, cel};

pub(super) const COMPILE_LIMIT: &str = "compile-limit";

/// The number of steps of a compilation over all of its documents.
pub(crate) type StepCount = Rc<Cell<u64>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextRole {
    PodInput,
    /// A header, the body or an input of a request.
    Webhook,
    /// The same of a request that is not encrypted.
    PlainWebhook,
    Url,
    /// A property of a resource of InfraKit.
    Infrakit,
    /// Another part of the request to a plugin of InfraKit.
    InfrakitText,
    Manifest,
    /// A value in `data` of a Secret of `bind`.
    BoundSecret,
    /// The same of a ConfigMap.
    BoundConfigMap,
    /// An output or `until` of a webhook.
    Answer,
    When,
    List,
    Cluster,
    /// A public output of a plugin, or the environment of a sandbox.
    Public,
}

/// Collects the errors of one document, and the values that its texts read.
pub(crate) struct DiagnosticCollector {
    pub(super) source: Arc<SourceText>,
    /// The names that units of the document can use.
    pub(super) units: Scope,
    /// The role of the next texts.
    pub(super) role: TextRole,
    /// The values that the texts read since a caller has taken the earlier ones.
    pub(super) reads: Vec<ExpressionRead>,
    pub(super) found: Diagnostics,
    pub(super) steps: StepCount,
}

#[derive(Clone)]
pub(crate) struct ExpressionRead {
    pub(super) role: TextRole,
    pub(super) source: ReferenceSource,
    pub(super) optional: bool,
    pub(super) usage: ReferenceUsage,
    /// True if a text is exactly this value. The text can be a part of a list or mapping.
    pub(super) is_whole: bool,
    pub(super) spot: TextSpan,
}

/// A part of a text. Its line and column are computed only for messages, because that scans the document.
#[derive(Clone)]
pub(super) struct TextSpan {
    text: Arc<str>,
    at: LineColumn,
    offset: usize,
    length: usize,
}

impl TextSpan {
    pub(super) fn text(&self) -> String {
        self.text.get(self.offset..).unwrap_or_default().chars().take(self.length).collect()
    }

    pub(super) fn pos(&self, source: &SourceText) -> LineColumn {
        template::place(source, &At { value: &*self.text, at: self.at }, self.offset)
    }
}

impl DiagnosticCollector {
    pub(super) fn new(source: &Arc<SourceText>, steps: &StepCount) -> Self {
        let (source, steps) = (Arc::clone(source), Rc::clone(steps));
        let (role, reads) = (TextRole::Public, Vec::new());
        Self { source, units: Scope::Plugin, role, reads, found: Diagnostics::default(), steps }
    }

    fn is_exhausted(&self) -> bool {
        self.steps.get() > MAX_STEPS
    }

    /// Returns true if further errors are not reported: the limit of errors is reached, or no steps are left.
    pub(super) fn is_full(&self) -> bool {
        self.found.is_full() || self.is_exhausted()
    }

    /// Counts steps. Returns false if there are more than [`MAX_STEPS`].
    pub(super) fn count(&self, steps: u64) -> bool {
        self.steps.set(self.steps.get().saturating_add(steps));
        !self.is_exhausted()
    }

    /// Counts steps like [`Self::count`]. Reports an error at this position if there are too many.
    pub(super) fn spend(&mut self, steps: u64, at: LineColumn) -> bool {
        let before = self.is_exhausted();
        let allowed = self.count(steps);
        if !allowed && !before {
            self.exhausted(at);
        }
        allowed
    }

    pub(super) fn exhausted(&mut self, at: LineColumn) {
        let message = format!("up to here, compiling takes more than the limit of {MAX_STEPS} steps");
        let help = "use fewer or simpler patterns, expressions and references, or split the document";
        self.push(self.error(COMPILE_LIMIT, at, message).help(help));
    }

    /// Checks that the document has no errors so far. Exhausted steps are an error too.
    pub(super) fn check(&mut self, at: LineColumn) -> Result<(), Diagnostics> {
        if self.is_exhausted() && !self.found.iter().any(|found| found.code == COMPILE_LIMIT) {
            self.exhausted(at);
        }
        if self.found.has_errors() { Err(std::mem::take(&mut self.found).sorted()) } else { Ok(()) }
    }

    /// Creates an error at a position. The caller completes it and calls [`Self::push`].
    pub(super) fn error(&self, code: &'static str, at: LineColumn, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(code, &self.source, at, message)
    }

    pub(super) fn error_in(&self, code: &'static str, spot: &TextSpan, message: impl Into<String>) -> Diagnostic {
        // Finding the position scans the document.
        let at = if self.found.is_full() { spot.at } else { spot.pos(&self.source) };
        let diagnostic = Diagnostic::error(code, &self.source, at, message);
        if spot.length > 0 { diagnostic.length(spot.length) } else { diagnostic }
    }

    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    /// Parses a text as a template. Adds the values that it reads to [`Self::reads`].
    pub(super) fn text(&mut self, text: &str, at: LineColumn, scope: Scope) -> Template {
        let Some(pieces) = self.pieces(text, at) else { return Template::Literal(text.into()) };
        let (whole, first): (Arc<str>, usize) = (text.into(), self.reads.len());
        let mut literal = String::new();
        let mut expressions = false;
        for piece in &pieces {
            match piece {
                TemplatePiece::Literal(text) => literal.push_str(text),
                TemplatePiece::Expression { text: expression, offset } => {
                    expressions = true;
                    self.uses(expression, (&whole, *offset), at, scope);
                }
            }
        }
        if pieces.len() > 1 {
            for found in self.reads[first..].iter_mut().filter(|found| found.usage == ReferenceUsage::Whole) {
                found.usage = ReferenceUsage::Part;
                found.is_whole = false;
            }
        }
        if expressions { Template::Text(text.to_owned()) } else { Template::Literal(literal.into()) }
    }

    /// Parses a text as one CEL expression: the one in its `${…}`, or the whole text.
    pub(super) fn expression(&mut self, what: &str, text: &At<String>, scope: Scope) -> Option<String> {
        let content = text.value.as_str();
        let pieces = self.pieces(content, text.at)?;
        let (expression, offset) = match pieces.as_slice() {
            [TemplatePiece::Expression { text, offset }] => (text.clone(), *offset),
            [] | [TemplatePiece::Literal(_)] => (content.to_owned(), 0),
            _ => {
                let message = format!("{what} must be one expression");
                self.push(self.error("syntax", text.at, message).help("put all of it into one `${…}`"));
                return None;
            }
        };
        let whole: Arc<str> = content.into();
        self.uses(&expression, (&whole, offset), text.at, scope);
        Some(expression)
    }

    /// Parses a text as the condition `when`.
    pub(super) fn condition(&mut self, text: &At<String>, scope: Scope) -> Option<Expression> {
        let text = self.expression("`when`", text, scope)?;
        cel::parse(&text, scope).ok()
    }

    /// Parses a tree as a template. Adds the values that it reads to [`Self::reads`].
    pub(super) fn tree(&mut self, tree: &TemplateTree, at: LineColumn, scope: Scope) -> Template {
        let first = self.reads.len();
        let made = match tree {
            TemplateTree::Scalar(value) => return Template::Literal(value.clone()),
            TemplateTree::Text(text) => return self.text(text, at, scope),
            TemplateTree::List(items) => {
                let made: Vec<Template> = items.iter().map(|item| self.tree(&item.value, item.at, scope)).collect();
                joined(made, |values| values.collect())
            }
            TemplateTree::Map(entries) => {
                let made: Vec<Template> =
                    entries.iter().map(|entry| self.tree(&entry.value, entry.inner.at, scope)).collect();
                let names = entries.iter().map(|entry| entry.name.value.clone());
                joined(made, |values| Value::Object(names.zip(values).collect()))
            }
        };
        for found in self.reads[first..].iter_mut().filter(|found| found.usage == ReferenceUsage::Whole) {
            found.usage = ReferenceUsage::Part;
        }
        made
    }

    /// Returns the tree as JSON in which each string is a template.
    pub(super) fn strings(&mut self, tree: &At<TemplateTree>, scope: Scope) -> Value {
        self.tree(&tree.value, tree.at, scope).shown()
    }

    fn pieces(&mut self, text: &str, at: LineColumn) -> Option<Vec<TemplatePiece>> {
        let split = template::split(text);
        if let Err(UnclosedExpression { offset }) = split {
            let spot = TextSpan { text: text.into(), at, offset, length: 2 };
            let diagnostic = self.error_in("syntax", &spot, "`${` is never closed");
            self.push(diagnostic.help("close it with `}`, or write `$${` for a literal `${`"));
        }
        split.ok()
    }

    fn uses(&mut self, expression: &str, (text, start): (&Arc<str>, usize), at: LineColumn, scope: Scope) {
        if self.is_full() {
            return;
        }
        let role = self.role;
        let spot =
            |offset: usize, length: usize| TextSpan { text: Arc::clone(text), at, offset: start + offset, length };
        match cel::parse(expression, scope) {
            Ok(parsed) => {
                self.reads.extend(parsed.references.into_iter().map(|reference| ExpressionRead {
                    role,
                    spot: spot(reference.offset, reference.length),
                    source: reference.source,
                    optional: reference.optional,
                    usage: reference.usage,
                    is_whole: reference.usage == ReferenceUsage::Whole,
                }));
                if !self.count(parsed.steps) {
                    self.exhausted(spot(0, 0).pos(&self.source));
                }
            }
            Err(mistakes) => {
                for mistake in mistakes {
                    let spot = spot(mistake.offset, mistake.length);
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

/// Returns the value that is all of a text with these reads.
pub(super) fn whole(reads: &[ExpressionRead]) -> Option<&ReferenceSource> {
    match reads {
        [read] if read.usage == ReferenceUsage::Whole => Some(&read.source),
        _ => None,
    }
}

/// Returns the template of a list or mapping with these parts. The template is a literal if all parts are literals.
fn joined(parts: Vec<Template>, join: impl FnOnce(&mut dyn Iterator<Item = Value>) -> Value) -> Template {
    let computed = parts.iter().any(|part| !matches!(part, Template::Literal(_)));
    let value = join(&mut parts.into_iter().map(|part| match part {
        Template::Literal(value) if !computed => value,
        part => part.shown(),
    }));
    if computed { Template::Tree(value) } else { Template::Literal(value) }
}
