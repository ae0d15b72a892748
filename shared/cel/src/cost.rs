//! Computes an upper bound of the cost of an evaluation from the tree and the sizes of its variables.
//!
//! Loops multiply, and so does `replace`. A chain of `map`s that doubles its elements grows exponentially. A selection
//! by constant names has its real size; any other selection has the size of its operand.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};
use cel::objects::Key;

use crate::walk::MATCHES;
use crate::{Expression, TextPattern};

/// The number of pattern steps that take as long as touching one value.
const STEPS_PER_VALUE: u64 = 4;
/// The number of bytes of a text that count as one value.
const BYTES_PER_VALUE: u64 = 64;

/// The number of values that an expression creates (`size`), and that it touches (`cost`).
#[derive(Clone, Copy, Default)]
struct CostBound {
    size: u64,
    cost: u64,
}

/// Returns the maximum number of values that an evaluation touches.
pub(crate) fn bound(expression: &Expression, variables: &BTreeMap<&str, cel::Value>) -> u64 {
    let mut bound = CostEstimator { variables, patterns: &expression.patterns, local: Vec::new() };
    bound.of(&expression.tree).cost
}

/// Returns the number of values in a value. A long text counts as several.
fn size(value: &cel::Value) -> u64 {
    match value {
        cel::Value::List(items) => total(items.iter().map(size).chain([1])),
        cel::Value::Map(map) => total(map.map.values().map(size).chain([1, map.map.len() as u64])),
        cel::Value::String(text) => 1 + text.len() as u64 / BYTES_PER_VALUE,
        cel::Value::Bytes(bytes) => 1 + bytes.len() as u64 / BYTES_PER_VALUE,
        _ => 1,
    }
}

struct CostEstimator<'a> {
    variables: &'a BTreeMap<&'a str, cel::Value>,
    patterns: &'a BTreeMap<String, TextPattern>,
    local: Vec<(&'a str, u64)>,
}

impl<'a> CostEstimator<'a> {
    /// Returns the value of a variable, or of a selection from one by constant names.
    fn named(&self, expr: &IdedExpr) -> Option<&'a cel::Value> {
        match &expr.expr {
            Expr::Ident(name) if self.local.iter().all(|(local, _)| local != name) => {
                self.variables.get(name.trim_start_matches('.'))
            }
            Expr::Select(select) if !select.test => match self.named(&select.operand)? {
                cel::Value::Map(map) => map.map.get(&Key::from(select.field.as_str())),
                _ => None,
            },
            _ => None,
        }
    }

    fn pattern(&self, call: &CallExpr) -> Option<&'a TextPattern> {
        match &call.args.last()?.expr {
            Expr::Literal(LiteralValue::String(text)) => self.patterns.get(text.inner()),
            _ => None,
        }
    }

    fn of(&mut self, expr: &'a IdedExpr) -> CostBound {
        match &expr.expr {
            Expr::Ident(name) => {
                let local = self.local.iter().rev().find(|(local, _)| local == name).map(|(_, size)| *size);
                CostBound { size: local.or_else(|| self.named(expr).map(size)).unwrap_or(1), cost: 1 }
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
                let size = self.named(expr).map_or(operand.size, size);
                CostBound { size, cost: operand.cost.saturating_add(1) }
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
