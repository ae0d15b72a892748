//! CEL expressions: parsing, references, checks, and bounded evaluation.
//!
//! [`parse`] rejects references that cannot be resolved statically (a dynamic index into `units`, a whole map, an
//! unknown name) and expressions that are too large. It checks names and shapes only; the compiler of documents checks
//! that `units.database` exists. [`evaluate`] rejects evaluations that could take too long on their values.
//! [`ObjectExpression`] combines both for objects of a cluster.
//!
//! The parser is the Pratt parser of the crate `cel`. In a debug build, the ANTLR parser overflows a stack of 2 MiB at twelve
//! nested parentheses, and it takes milliseconds instead of microseconds. The Pratt parser keeps no offsets, so
//! positions are derived from the names in the text.

pub mod convert;
mod cost;
mod dashes;
mod evaluate;
mod fields;
mod names;
mod object_expression;
mod parse;
mod path;
mod pattern;
mod suggestion;
mod tokens;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::IdedExpr;

pub use cost::MAX_COST;
pub use evaluate::{EvaluationError, SharedCost, evaluate, evaluate_within, url_encoded};
pub use names::{RootVariable, Scope};
pub use object_expression::{ObjectExpression, ObjectExpressionError};
pub use parse::{parse, parse_checked};
pub use pattern::{MAX_PATTERN, MAX_PATTERN_LENGTH, PATTERN_HELP, PatternError, TextPattern};
pub use suggestion::nearest;
pub use tokens::string_end;

/// The maximum length of an expression, in bytes.
pub const MAX_LENGTH: usize = 4096;
pub const MAX_NODES: usize = 1000;
/// The maximum depth of a tree. Evaluation recurses, and one level takes about 30 KiB of stack in a debug build.
pub const MAX_DEPTH: usize = 24;
/// The maximum nesting of `all`, `exists`, `exists_one`, `map` and `filter`.
pub const MAX_NESTED_LOOPS: usize = 2;
pub const MAX_ISSUES: usize = 20;
/// The number of bytes that one step parses. A step takes about 50 ns of one core in a release build.
const BYTES_PER_STEP: u64 = 2;
/// The maximum number of steps to compile the patterns of an expression.
const MAX_PATTERN_STEPS: u64 = 1_000_000;
/// The maximum size of a result, in bytes.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// A value of CEL, which may borrow from the JSON that it was made of.
pub type CelValue<'v> = Box<dyn cel::common::value::Val + 'v>;

pub type CelVariables<'v> = BTreeMap<&'v str, CelValue<'v>>;

#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub text: String,
    pub(crate) tree: IdedExpr,
    /// References in the order of the text.
    pub references: Vec<ValueReference>,
    /// Patterns of `matches` by their text.
    pub(crate) patterns: Arc<BTreeMap<String, TextPattern>>,
    /// The number of steps of parsing.
    pub steps: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReference {
    pub source: ReferenceSource,
    /// True if the value may be missing, because of `.?`, `[?…]` or a `has()` in the same expression.
    pub optional: bool,
    pub usage: ReferenceUsage,
    /// The byte offset in the expression.
    pub offset: usize,
    pub length: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceSource {
    /// `params.NAME`.
    Param(String),
    /// `old.params.NAME`.
    OldParam(String),
    /// `units.UNIT.outputs.OUTPUT`.
    Output { unit: String, output: String },
    /// `resources.RESOURCE.outputs.OUTPUT`.
    Resource { resource: String, output: String },
    /// `target.FIELD`.
    Target(String),
    /// `resource.FIELD` of the resource to which the expression belongs.
    OwnResource(String),
    /// `inputs.NAME` of the unit to which the expression belongs.
    Input(String),
    /// Any part of another root variable, such as `response`.
    Root(RootVariable),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceUsage {
    /// The expression is exactly this value.
    Whole,
    /// `secretRef(value)`.
    SecretRef,
    /// `has(value)`.
    Presence,
    /// A field or an element of it is read.
    Field,
    Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionIssue {
    pub code: &'static str,
    pub message: String,
    pub help: Option<String>,
    /// The byte offset in the expression.
    pub offset: usize,
    /// The number of characters. 0 means the word at the offset.
    pub length: usize,
}

impl ExpressionIssue {
    /// Creates an issue of the whole expression.
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: None, offset: 0, length: 0 }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }
}

impl Expression {
    /// Returns the reference of an expression that is exactly one value.
    pub fn whole(&self) -> Option<&ValueReference> {
        match self.references.as_slice() {
            [reference] if reference.usage == ReferenceUsage::Whole => Some(reference),
            _ => None,
        }
    }
}

impl ReferenceSource {
    /// Returns the path of the value: the name of the root variable, and the selections from it.
    pub fn path(&self) -> Vec<&str> {
        match self {
            Self::Param(name) => vec!["params", name],
            Self::OldParam(name) => vec!["old", "params", name],
            Self::Output { unit, output } => vec!["units", unit, "outputs", output],
            Self::Resource { resource, output } => vec!["resources", resource, "outputs", output],
            Self::Target(field) => vec!["target", field],
            Self::OwnResource(field) => vec!["resource", field],
            Self::Input(name) => vec!["inputs", name],
            Self::Root(root) => vec![root.as_str()],
        }
    }
}

impl std::fmt::Display for ReferenceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.path();
        let (root, selected) = names.split_first().unwrap_or((&"", &[]));
        f.write_str(root)?;
        selected.iter().try_for_each(|name| f.write_str(&path::step(name)))
    }
}

#[cfg(test)]
mod tests;
