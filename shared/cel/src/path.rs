//! Selection paths: a name and the selections from it, in all spellings.

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

/// A name and its selections, in the order of the text.
pub(crate) struct SelectionPath<'a> {
    pub(crate) root: &'a str,
    pub(crate) root_id: u64,
    /// True for `.name`. It selects a variable also inside a loop over the same name.
    pub(crate) is_absolute: bool,
    pub(crate) steps: Vec<PathStep<'a>>,
}

pub(crate) struct PathStep<'a> {
    pub(crate) key: PathKey<'a>,
    pub(crate) access: StepAccess,
}

pub(crate) enum PathKey<'a> {
    /// `.name` or `["name"]`.
    Name(&'a str),
    Dynamic(&'a IdedExpr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepAccess {
    Required,
    /// `.?` or `[?…]`.
    Optional,
    /// `has(…)`.
    Presence,
}

impl<'a> SelectionPath<'a> {
    /// Returns the path of an expression that consists of a name and selections.
    pub(crate) fn of(expr: &'a IdedExpr) -> Option<Self> {
        let mut steps = Vec::new();
        let mut at = expr;
        loop {
            at = match &at.expr {
                Expr::Ident(name) => {
                    steps.reverse();
                    let root = name.strip_prefix('.').unwrap_or(name);
                    return Some(Self { root, root_id: at.id, is_absolute: root != name, steps });
                }
                Expr::Select(select) => {
                    let access = if select.test { StepAccess::Presence } else { StepAccess::Required };
                    steps.push(PathStep { key: PathKey::Name(&select.field), access });
                    &select.operand
                }
                Expr::Call(call) if call.target.is_none() && call.args.len() == 2 => {
                    let access = match call.func_name.as_str() {
                        operators::INDEX => StepAccess::Required,
                        operators::OPT_INDEX | operators::OPT_SELECT => StepAccess::Optional,
                        _ => return None,
                    };
                    let key = match &call.args[1].expr {
                        Expr::Literal(LiteralValue::String(name)) => PathKey::Name(name.inner()),
                        _ => PathKey::Dynamic(&call.args[1]),
                    };
                    steps.push(PathStep { key, access });
                    &call.args[0]
                }
                _ => return None,
            };
        }
    }

    pub(crate) fn name(&self, step: usize) -> Option<&'a str> {
        let PathKey::Name(name) = self.steps.get(step)?.key else { return None };
        Some(name)
    }
}

/// Formats a step: `.name`, or `["name"]` for a name that is not an identifier with dashes.
pub(crate) fn step(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        && !name.ends_with('-')
        && !RESERVED.contains(&name);
    if plain { format!(".{name}") } else { format!("[\"{name}\"]") }
}

const RESERVED: [&str; 5] = ["in", "as", "true", "false", "null"];
