//! CEL expressions: what they read, what is wrong with them before they run, and their evaluation within bounds.
//!
//! [`parse`] refuses what cannot be followed (a dynamic index into `units`, a whole map, an unknown name) and what
//! could run too long. It knows names and shapes only; whether `units.database` exists is asked by whoever compiles
//! documents. [`evaluate`] refuses what could take too long on the values that are there. [`ObjectExpression`] is both for an
//! expression over objects of a cluster.
//!
//! The Pratt parser of the `cel` crate is used and not its ANTLR one: in a debug build the latter overflows a stack of
//! 2 MiB at twelve nested parentheses, and takes a millisecond for what the former does in microseconds. It keeps no
//! source offsets, so places come from the names in the text.

mod budget;
pub mod convert;
mod cost;
mod dashes;
mod evaluate;
mod names;
mod near;
mod object_expression;
mod path;
mod pattern;
mod tokens;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::common::ast::IdedExpr;
use cel::parser::PrattParser;

use dashes::DashedNames;

pub use budget::{DEFAULT_STEPS, WorkBudget};
pub use cel::Value;
pub use evaluate::{EvaluationError, evaluate};
pub use names::{FUNCTIONS, RESOURCE_FIELDS, RootVariable, Scope, TARGET_FIELDS};
pub use near::nearest;
pub use object_expression::{ObjectExpression, ObjectExpressionError};
pub use pattern::{MAX_PATTERN, MAX_PATTERN_LENGTH, PATTERN_HELP, PatternError, TextPattern};

/// The longest expression, in bytes.
pub const MAX_LENGTH: usize = 4096;
/// The most nodes of an expression's tree.
pub const MAX_NODES: usize = 1000;
/// The deepest tree. Evaluation recurses, and in a debug build one level takes about 30 KiB of stack.
pub const MAX_DEPTH: usize = 24;
/// The deepest nesting of `all`, `exists`, `exists_one`, `map` and `filter`.
pub const MAX_NESTED_LOOPS: usize = 2;
/// The most mistakes of one expression that are reported.
pub const MAX_ISSUES: usize = 20;
/// Bytes of an expression that one step reads.
const BYTES_PER_STEP: u64 = 2;
/// The most work that one evaluation may take, in values touched; what could take more is refused before it starts.
pub const MAX_COST: u64 = 5_000_000;
/// The most bytes that one value may have that is passed on.
pub const MAX_VALUE_BYTES: usize = 1024 * 1024;

/// An expression and what it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub(crate) tree: IdedExpr,
    /// Everything that it reads, in the order of the text.
    pub references: Vec<ValueReference>,
    /// The patterns of its calls of `matches`, by their text.
    pub(crate) patterns: Arc<BTreeMap<String, TextPattern>>,
}

/// Something that an expression reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueReference {
    pub source: ReferenceSource,
    /// Read with `.?`, `[?…]` or behind a `has()` of the same expression: it may be missing.
    pub optional: bool,
    pub usage: ReferenceUsage,
    /// The byte of the expression where it begins.
    pub offset: usize,
    /// Its characters, as far as it names something.
    pub length: usize,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReferenceSource {
    /// `params.NAME`.
    Param(String),
    /// `units.UNIT.outputs.OUTPUT`.
    Output { unit: String, output: String },
    /// `resources.RESOURCE.outputs.OUTPUT`.
    Resource { resource: String, output: String },
    /// `target.FIELD`.
    Target(String),
    /// `resource.FIELD`: of the resource that the expression belongs to.
    OwnResource(String),
    /// `response…`.
    Response,
    /// `object…`.
    Object,
    /// `objects…`.
    Objects,
}

/// What an expression does with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceUsage {
    /// It is this value and nothing else.
    Whole,
    /// `secretRef(value)`.
    SecretRef,
    /// `has(value)`.
    Presence,
    Part,
}

/// What is wrong with an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionIssue {
    pub code: &'static str,
    pub message: String,
    pub help: Option<String>,
    /// The byte of the expression where it stands.
    pub offset: usize,
    /// Characters that are concerned; 0: the word there.
    pub length: usize,
}

impl Expression {
    /// Returns true if a name is written in it, and is not the value of something that it reads.
    pub(crate) fn writes(&self, name: &str) -> bool {
        walk::writes(&self.tree, name)
    }

    /// The one value that this expression is, if it computes nothing.
    pub fn whole(&self) -> Option<&ValueReference> {
        match self.references.as_slice() {
            [reference] if reference.usage == ReferenceUsage::Whole => Some(reference),
            _ => None,
        }
    }
}

impl std::fmt::Display for ReferenceSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Param(name) => write!(f, "params{}", path::step(name)),
            Self::Output { unit, output } => {
                write!(f, "units{}.outputs{}", path::step(unit), path::step(output))
            }
            Self::Resource { resource, output } => {
                write!(f, "resources{}.outputs{}", path::step(resource), path::step(output))
            }
            Self::Target(field) => write!(f, "target.{field}"),
            Self::OwnResource(field) => write!(f, "resource.{field}"),
            Self::Response => f.write_str("response"),
            Self::Object => f.write_str("object"),
            Self::Objects => f.write_str("objects"),
        }
    }
}

/// Reads an expression in which `scope` can be named.
///
/// # Errors
/// Everything that is wrong with it, at most [`MAX_ISSUES`]; after a syntax error, that one alone.
pub fn parse(text: &str, scope: Scope) -> Result<Expression, Vec<ExpressionIssue>> {
    parse_within(text, scope, &WorkBudget::default())
}

/// Reads an expression as [`parse`] does, as one of those that share a budget.
///
/// # Errors
/// As [`parse`]. If the budget does not suffice, that alone, with the code `compile-limit`.
pub fn parse_within(text: &str, scope: Scope, budget: &WorkBudget) -> Result<Expression, Vec<ExpressionIssue>> {
    let wrong = |code, message: String| vec![ExpressionIssue { code, message, help: None, offset: 0, length: 0 }];
    if text.len() > MAX_LENGTH {
        let message = format!("the expression has {} bytes; the limit is {MAX_LENGTH}", text.len());
        return Err(wrong("expression-limit", message));
    }
    if text.trim().is_empty() {
        return Err(wrong("syntax", "the expression is empty".to_owned()));
    }
    let exhausted = || wrong("compile-limit", "the document takes too many steps to compile".to_owned());
    if !budget.spend(1 + text.len() as u64 / BYTES_PER_STEP) {
        return Err(exhausted());
    }
    let dashes = DashedNames::replaced(text);
    let parser = PrattParser::new().enable_optional_syntax(true).max_expression_node_count(4 * MAX_NODES);
    let mut tree = parser.parse(&dashes.text).map_err(|errors| vec![syntax(text, &errors)])?;
    walk::shape(&tree)?;
    dashes.restore(&mut tree);
    let analysed = walk::analyse(&dashes.text, tree, scope, budget);
    if budget.is_exhausted() { Err(exhausted()) } else { analysed }
}

fn syntax(text: &str, errors: &cel::ParseErrors) -> ExpressionIssue {
    let Some(first) = errors.errors.first() else {
        let message = "this is no CEL expression".to_owned();
        return ExpressionIssue { code: "syntax", message, help: None, offset: 0, length: 0 };
    };
    let message = first.msg.lines().next().unwrap_or_default();
    let message = message.strip_prefix("Syntax error: ").unwrap_or(message);
    let message = message.replace("'<EOF>'", "<EOF>").replace("mismatched input <EOF>", "it ends too early,");
    let message = message.replace("<EOF>", "the end").replace("mismatched input", "unexpected");
    ExpressionIssue {
        code: "syntax",
        message: format!("this is no CEL expression: {message}"),
        help: None,
        offset: tokens::byte_of(text, first.pos),
        length: 1,
    }
}

#[cfg(test)]
mod tests;
