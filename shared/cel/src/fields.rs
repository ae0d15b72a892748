//! The fields that an expression reads: paths of constant names, such as `body.pull_request.number`.

use std::collections::BTreeSet;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelMap, CelMapKey, CelNull};
use serde_json::Value as Json;

use crate::convert::json_type;
use crate::path::{PathKey, SelectionPath, step};
use crate::{CelVariables, Expression, RootVariable, walk};

/// The name of a function that replaces a selection that must fail. CEL does not define it, and an expression cannot contain it.
const MISREAD: &str = "@misread";

impl Expression {
    /// Returns the fields that the expression reads. A field ends before a computed key.
    pub fn fields(&self) -> BTreeSet<String> {
        self.paths().iter().map(shown).collect()
    }

    /// Returns the fields that the expression compares with literal texts or lists, by an operator or a method such as `matches`.
    pub fn compared(&self) -> BTreeSet<String> {
        let (mut compared, mut open) = (BTreeSet::new(), vec![&self.tree]);
        while let Some(expr) = open.pop() {
            let parts = walk::children(expr);
            let is_literal =
                |part: &&IdedExpr| matches!(part.expr, Expr::Literal(LiteralValue::String(_)) | Expr::List(_));
            if let (Expr::Call(call), [first, rest @ ..]) = (&expr.expr, parts.as_slice())
                && (call.target.is_some() || !rest.is_empty())
                && rest.iter().all(is_literal)
            {
                compared.extend(SelectionPath::of(first).as_ref().map(shown));
            }
            open.extend(parts);
        }
        compared
    }

    /// Returns the expression with errors in place of the optional selections that these values do not permit, and the
    /// first such value. `None` if they permit all. The crate `cel` takes a part of a text, or one of a list by a name,
    /// as missing, which is an error in CEL.
    pub fn strict(&self, values: &[(&str, Option<&Json>)]) -> Option<(Self, String)> {
        let (mut strict, mut found) = (self.clone(), None);
        walk::each_mut(&mut strict.tree, &mut |expr| {
            if let Expr::Call(call) = expr
                && let Some(what) = misread(call, values)
            {
                call.func_name = MISREAD.to_owned();
                found.get_or_insert(what);
            }
        });
        found.map(|what| (strict, what))
    }

    /// Returns the keys that the expression reads of a field of a root, such as `sha` of `target.labels`. `None` means that
    /// it may read all of them: it computes a key, or it uses the field as a whole.
    pub fn keys_of(&self, root: RootVariable, field: &str) -> Option<BTreeSet<String>> {
        let paths = self.paths();
        let is_of =
            |path: &&SelectionPath<'_>| path.root == root.as_str() && path.name(0).is_none_or(|name| name == field);
        let key = |path: &SelectionPath<'_>| path.name(0).and_then(|_| path.name(1)).map(str::to_owned);
        paths.iter().filter(is_of).map(key).collect()
    }

    /// Returns a field whose value is null: one of which the expression reads a part, or else any.
    pub(crate) fn null_field(&self, variables: &CelVariables<'_>) -> Option<String> {
        let mut whole = None;
        for path in self.paths() {
            let Some(mut value) = variables.get(path.root).map(AsRef::as_ref) else { continue };
            let mut field = path.root.to_owned();
            for (nth, name) in (1..).zip(constant_steps(&path)) {
                let map = value.downcast_ref::<CelMap<'_>>();
                let Some(inner) = map.and_then(|map| map.inner().get(&CelMapKey::from(name))) else { break };
                value = inner.as_ref();
                field.push_str(&step(name));
                if value.downcast_ref::<CelNull>().is_some() {
                    if nth < path.steps.len() {
                        return Some(field);
                    }
                    whole = whole.or(Some(std::mem::take(&mut field)));
                }
            }
        }
        whole
    }

    /// Returns the paths that begin with a root variable, in the order of the tree.
    fn paths(&self) -> Vec<SelectionPath<'_>> {
        let mut paths = Vec::new();
        let mut open = vec![&self.tree];
        while let Some(expr) = open.pop() {
            let Some(path) = SelectionPath::of(expr) else {
                open.extend(walk::children(expr).into_iter().rev());
                continue;
            };
            open.extend(path.steps.iter().filter_map(|step| match step.key {
                PathKey::Dynamic(key) => Some(key),
                PathKey::Name(_) => None,
            }));
            // `item` has no fields, so it is a variable of a loop.
            if RootVariable::named(path.root).is_some_and(|root| root != RootVariable::Item) {
                paths.push(path);
            }
        }
        paths
    }
}

/// Returns the description of a value from which an optional selection cannot select.
fn misread(call: &CallExpr, values: &[(&str, Option<&Json>)]) -> Option<String> {
    let ([operand, key], operators::OPT_SELECT | operators::OPT_INDEX) = (&*call.args, &*call.func_name) else {
        return None;
    };
    let path = SelectionPath::of(operand)?;
    let (_, root) = values.iter().find(|(name, _)| *name == path.root)?;
    let value = (0..path.steps.len()).try_fold((*root)?, |value, nth| value.get(path.name(nth)?))?;
    let is_name = matches!(key.expr, Expr::Literal(LiteralValue::String(_)));
    // Many APIs write `null` for a part without a value, and some an empty list for an empty map.
    let is_nested = path.steps.len() > 1;
    let fits = match value {
        Json::Object(_) => true,
        Json::Array(items) => !is_name || (is_nested && items.is_empty()),
        Json::Null => is_nested,
        Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    };
    let wanted = if is_name { "a mapping" } else { "a list" };
    (!fits).then(|| format!("`{}` is {}, not {wanted}", shown(&path), json_type(value)))
}

/// Returns a path up to its first computed key.
fn shown(path: &SelectionPath<'_>) -> String {
    constant_steps(path).fold(path.root.to_owned(), |at, name| at + &step(name))
}

/// Returns the names of a path up to its first computed key.
fn constant_steps<'a>(path: &SelectionPath<'a>) -> impl Iterator<Item = &'a str> {
    (0..path.steps.len()).map_while(move |step| path.name(step))
}
