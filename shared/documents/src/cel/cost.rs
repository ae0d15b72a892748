//! Computes an upper bound of the cost of an evaluation from the tree and the sizes of its variables.
//!
//! Loops multiply, and so does `replace`. A chain of `map`s that doubles its elements grows exponentially. A selection
//! by constant names has its real size; any other selection has the size of its operand.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::common::types::{CelBytes, CelList, CelMap, CelMapKey, CelOptional, CelString};
use cel::common::value::Val;

use crate::cel::path::{PathKey, SelectionPath, StepAccess};
use crate::cel::walk::MATCHES;
use crate::cel::{CelValue, Expression, TextPattern};

/// The maximum cost of an evaluation, in touched values. A more expensive one does not start.
pub const MAX_COST: u64 = 5_000_000;
/// The number of pattern steps that take as long as touching one value.
const STEPS_PER_VALUE: u64 = 4;
/// The number of bytes of a text that count as one value.
const BYTES_PER_VALUE: u64 = 64;

/// The number of values that an expression creates (`size`), and that it touches (`cost`).
#[derive(Clone, Copy, Default)]
pub(crate) struct CostBound {
    pub(crate) size: u64,
    pub(crate) cost: u64,
}

/// Returns the maximum number of values that an evaluation creates and touches, or the cost if it exceeds [`MAX_COST`].
pub(crate) fn bound(expression: &Expression, variables: &BTreeMap<&str, CelValue<'_>>) -> Result<CostBound, u64> {
    let mut estimator = CostEstimator { variables, patterns: &expression.patterns, local: Vec::new() };
    let bound = estimator.of(&expression.tree);
    if bound.cost > MAX_COST { Err(bound.cost) } else { Ok(bound) }
}

/// Returns the number of values in a value. A long text counts as several.
pub(crate) fn size<'v>(value: &(dyn Val + 'v)) -> u64 {
    let size = |value: &CelValue<'v>| size(value.as_ref());
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        1 + text.inner().len() as u64 / BYTES_PER_VALUE
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        total(map.inner().values().map(size).chain([1, map.inner().len() as u64]))
    } else if let Some(items) = value.downcast_ref::<CelList<'_>>() {
        total(items.inner().iter().map(size).chain([1]))
    } else if let Some(bytes) = value.downcast_ref::<CelBytes<'_>>() {
        1 + bytes.inner().len() as u64 / BYTES_PER_VALUE
    } else if let Some(optional) = value.downcast_ref::<CelOptional<'_>>() {
        optional.option().map_or(1, self::size)
    } else {
        1
    }
}

struct CostEstimator<'a> {
    variables: &'a BTreeMap<&'a str, CelValue<'a>>,
    patterns: &'a BTreeMap<String, TextPattern>,
    local: Vec<(&'a str, u64)>,
}

impl<'a> CostEstimator<'a> {
    /// Returns the bound of a variable, or of a selection from one by constant names. A missing value has the size 1.
    fn selection(&self, expr: &IdedExpr) -> Option<CostBound> {
        let path = SelectionPath::of(expr)?;
        if self.local.iter().any(|(local, _)| *local == path.root) {
            return None;
        }
        let mut value = Some(self.variables.get(path.root)?.as_ref());
        let mut cost = 1_u64;
        let mut copied = false;
        for step in &path.steps {
            let PathKey::Name(name) = step.key else { return None };
            let map = value.and_then(|value| value.downcast_ref::<CelMap<'_>>());
            value = map.and_then(|map| map.inner().get(&CelMapKey::from(name))).map(AsRef::as_ref);
            cost += 1;
            if step.access == StepAccess::Presence {
                value = None;
            } else if step.access == StepAccess::Optional && !copied {
                copied = true;
                cost = cost.saturating_add(value.map_or(1, size));
            }
        }
        Some(CostBound { size: value.map_or(1, size), cost })
    }

    fn pattern(&self, call: &CallExpr) -> Option<&'a TextPattern> {
        let Expr::Literal(LiteralValue::String(text)) = &call.args.last()?.expr else { return None };
        self.patterns.get(text.inner())
    }

    fn of(&mut self, expr: &'a IdedExpr) -> CostBound {
        if let Some(bound) = self.selection(expr) {
            return bound;
        }
        match &expr.expr {
            Expr::Ident(name) => {
                let local = self.local.iter().rev().find(|(local, _)| local == name).map(|(_, size)| *size);
                // A name with a dot is a variable, also if a local one has its name.
                let variable = || self.variables.get(name.strip_prefix('.')?).map(|value| size(value.as_ref()));
                CostBound { size: local.or_else(variable).unwrap_or(1), cost: 1 }
            }
            Expr::Literal(literal) => CostBound {
                size: match literal {
                    LiteralValue::String(text) => 1 + text.inner().len() as u64 / BYTES_PER_VALUE,
                    LiteralValue::Bytes(bytes) => 1 + bytes.inner().len() as u64 / BYTES_PER_VALUE,
                    _ => 1,
                },
                cost: 1,
            },
            Expr::Select(select) => {
                let operand = self.of(&select.operand);
                CostBound { size: operand.size, cost: operand.cost.saturating_add(1) }
            }
            Expr::Call(call) => {
                let operands = call.target.as_deref().into_iter().chain(&call.args);
                let parts: Vec<CostBound> = operands.map(|operand| self.of(operand)).collect();
                let sum = total(parts.iter().map(|part| part.size).chain([1]));
                let cost = total(parts.iter().map(|part| part.cost).chain([sum]));
                match call.func_name.as_str() {
                    "replace" | "join" | "split" => {
                        // A short text can be replaced at every byte, and a size unit has 64 bytes.
                        let product =
                            parts.iter().fold(64_u64, |product, part| product.saturating_mul(part.size.max(1)));
                        CostBound { size: product, cost: cost.saturating_add(product) }
                    }
                    // A value of JSON has at least one byte.
                    "parse" => {
                        let values = sum.saturating_mul(BYTES_PER_VALUE);
                        CostBound { size: values, cost: cost.saturating_add(values) }
                    }
                    // A byte becomes three characters of a URL.
                    "encode" => CostBound { size: sum.saturating_mul(3), cost },
                    // The pattern is the last operand. The cost depends on the text before it.
                    MATCHES => {
                        let read = parts.first().map_or(0, |text| text.size.saturating_mul(BYTES_PER_VALUE));
                        let read = usize::try_from(read).unwrap_or(usize::MAX);
                        let steps = self.pattern(call).map_or(0, |pattern| pattern.match_steps(read));
                        CostBound { size: 1, cost: cost.saturating_add(steps / STEPS_PER_VALUE) }
                    }
                    _ => CostBound { size: sum, cost },
                }
            }
            Expr::List(list) => {
                list.elements.iter().map(|element| self.of(element)).fold(CostBound { size: 1, cost: 1 }, plus)
            }
            Expr::Map(map) => {
                let mut sum = CostBound { size: 1, cost: 1 };
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        sum = plus(plus(sum, self.of(&entry.key)), self.of(&entry.value));
                    }
                }
                sum
            }
            Expr::Comprehension(c) => {
                let range = self.of(&c.iter_range);
                let start = self.of(&c.accu_init);
                let outer = self.local.len();
                self.local.push((&c.iter_var, range.size));
                if let Some(second) = &c.iter_var2 {
                    self.local.push((second, range.size));
                }
                // The accumulator is counted once after the loop.
                self.local.push((&c.accu_var, 0));
                let (condition, step, result) = (self.of(&c.loop_cond), self.of(&c.loop_step), self.of(&c.result));
                self.local.truncate(outer);
                let size = total([start.size, range.size.saturating_mul(step.size), result.size]);
                let loops = range.size.saturating_mul(total([condition.cost, step.cost, range.size]));
                CostBound { size, cost: total([range.cost, start.cost, loops, result.cost, size]) }
            }
            Expr::Struct(_) | Expr::Unspecified => CostBound::default(),
        }
    }
}

fn plus(a: CostBound, b: CostBound) -> CostBound {
    CostBound { size: a.size.saturating_add(b.size), cost: a.cost.saturating_add(b.cost) }
}

fn total(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
