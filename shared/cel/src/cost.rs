//! Computes an upper bound of the cost of an evaluation from the tree and the sizes of its variables.
//!
//! Loops multiply, and so does `replace`. A chain of `map`s that doubles its elements grows exponentially. A selection
//! by constant names from a variable or its elements has its real size; any other has the size of its operand.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use cel::common::types::{CelBytes, CelList, CelMap, CelMapKey, CelOptional, CelString};
use cel::common::value::Val;

use crate::path::{PathKey, SelectionPath, StepAccess};
use crate::walk::MATCHES;
use crate::{CelValue, CelVariables, Expression, TextPattern};

/// The maximum cost of an evaluation, in touched values. A more expensive one does not start.
pub const MAX_COST: u64 = 5_000_000;
/// The number of pattern steps that take as long as touching one value.
const STEPS_PER_VALUE: u64 = 4;
/// The number of bytes of a text that count as one value.
const BYTES_PER_VALUE: u64 = 64;

/// The parts of variables that an expression can be, or that have all its elements. `None` if there are other values.
type KnownValues<'a> = Option<Vec<&'a (dyn Val + 'a)>>;

/// The number of values that an expression creates (`size`), and that it touches (`cost`).
#[derive(Default)]
pub(crate) struct CostBound<'a> {
    pub(crate) size: u64,
    pub(crate) cost: u64,
    /// The number of values over which a loop goes, and the size of the largest.
    elements: u64,
    largest: u64,
    known: KnownValues<'a>,
}

impl CostBound<'_> {
    /// Returns the bound of a value with any number of elements.
    fn new(size: u64, cost: u64) -> Self {
        Self { size, cost, elements: size, largest: size, known: None }
    }
}

/// Returns the maximum number of values that an evaluation creates and touches, or the cost if it exceeds [`MAX_COST`].
pub(crate) fn bound<'a>(expression: &'a Expression, variables: &'a CelVariables<'a>) -> Result<CostBound<'a>, u64> {
    let mut estimator = CostEstimator { variables, patterns: &expression.patterns, local: Vec::new(), left: MAX_COST };
    let bound = estimator.of(&expression.tree);
    if bound.cost > MAX_COST { Err(bound.cost) } else { Ok(bound) }
}

/// Returns the number of values in a value. A long text counts as several.
pub(crate) fn size<'v>(value: &(dyn Val + 'v)) -> u64 {
    let size = |value: &CelValue<'v>| size(value.as_ref());
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        1 + text.inner().len() as u64 / BYTES_PER_VALUE
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let keys = map.inner().keys().map(|key| self::size(key.inner()));
        total(map.inner().values().map(size).chain(keys).chain([1]))
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

/// Returns the values over which a loop goes: the elements of a list, or the keys of a map.
fn elements<'v>(value: &'v (dyn Val + 'v)) -> impl Iterator<Item = &'v (dyn Val + 'v)> {
    let mut elements = value.as_iterable().map(|elements| elements.iter());
    std::iter::from_fn(move || elements.as_mut()?.next())
}

struct CostEstimator<'a> {
    variables: &'a CelVariables<'a>,
    patterns: &'a BTreeMap<String, TextPattern>,
    /// The names of the outer loops, with the maximum size of their values.
    local: Vec<(&'a str, u64, KnownValues<'a>)>,
    /// The number of values that the estimation may still read.
    left: u64,
}

impl<'a> CostEstimator<'a> {
    /// Returns the bound of a selection by constant names from a variable or its elements. A missing value has size 1.
    fn selection(&mut self, expr: &'a IdedExpr) -> Option<CostBound<'a>> {
        let path = SelectionPath::of(expr)?;
        if self.left == 0 {
            return Some(CostBound::new(u64::MAX, u64::MAX));
        }
        let mut values = match self.local.iter().rev().find(|(local, ..)| *local == path.root) {
            Some((_, _, known)) if !path.is_absolute => known.clone()?,
            Some(_) => return None,
            None => vec![self.variables.get(path.root)?.as_ref()],
        };
        self.left = self.left.saturating_sub(values.len() as u64);
        let (mut cost, mut copied) = (1_u64, false);
        for step in &path.steps {
            let PathKey::Name(name) = step.key else { return None };
            let select = |value: &'a (dyn Val + 'a)| {
                let map = value.downcast_ref::<CelMap<'_>>()?;
                map.inner().get(&CelMapKey::from(name)).map(AsRef::as_ref)
            };
            values = values.into_iter().filter_map(select).collect();
            cost += 1;
            if step.access == StepAccess::Presence {
                values.clear();
            } else if step.access == StepAccess::Optional && !copied {
                copied = true;
                cost = cost.saturating_add(values.iter().copied().map(size).max().unwrap_or(1));
            }
        }
        let mut bound = CostBound { size: 1, cost, ..CostBound::default() };
        for value in values.iter().copied() {
            let (all, sizes) = (size(value), elements(value).map(size).collect::<Vec<u64>>());
            self.left = self.left.saturating_sub(all);
            bound.size = bound.size.max(all);
            bound.elements = bound.elements.max(sizes.len() as u64);
            bound.largest = sizes.into_iter().fold(bound.largest, u64::max);
        }
        Some(CostBound { known: Some(values), ..bound })
    }

    fn pattern(&self, call: &CallExpr) -> Option<&'a TextPattern> {
        let Expr::Literal(LiteralValue::String(text)) = &call.args.last()?.expr else { return None };
        self.patterns.get(text.inner())
    }

    fn of(&mut self, expr: &'a IdedExpr) -> CostBound<'a> {
        if let Some(bound) = self.selection(expr) {
            return bound;
        }
        match &expr.expr {
            Expr::Ident(name) => {
                let local = self.local.iter().rev().find(|(local, ..)| local == name).map(|(_, size, _)| *size);
                // A name with a dot is a variable, also if a local one has its name.
                let variable = || self.variables.get(name.strip_prefix('.')?).map(|value| size(value.as_ref()));
                CostBound::new(local.or_else(variable).unwrap_or(1), 1)
            }
            Expr::Literal(literal) => {
                let size = match literal {
                    LiteralValue::String(text) => 1 + text.inner().len() as u64 / BYTES_PER_VALUE,
                    LiteralValue::Bytes(bytes) => 1 + bytes.inner().len() as u64 / BYTES_PER_VALUE,
                    _ => 1,
                };
                CostBound::new(size, 1)
            }
            Expr::Select(select) => {
                let operand = self.of(&select.operand);
                CostBound::new(operand.size, operand.cost.saturating_add(1))
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let parts: Vec<CostBound<'_>> = list.elements.iter().map(|element| self.of(element)).collect();
                CostBound {
                    elements: parts.len() as u64,
                    largest: parts.iter().map(|part| part.size).max().unwrap_or(0),
                    known: parts.is_empty().then(Vec::new),
                    ..parts.into_iter().fold(CostBound::new(1, 1), with_part)
                }
            }
            Expr::Map(map) => map.entries.iter().fold(CostBound::new(1, 1), |sum, entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => with_part(with_part(sum, self.of(&entry.key)), self.of(&entry.value)),
                EntryExpr::StructField(_) => sum,
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Struct(_) | Expr::Unspecified => CostBound::default(),
        }
    }

    fn call(&mut self, call: &'a CallExpr) -> CostBound<'a> {
        let operands = call.target.as_deref().into_iter().chain(&call.args);
        let parts: Vec<CostBound<'_>> = operands.map(|operand| self.of(operand)).collect();
        let sum = total(parts.iter().map(|part| part.size).chain([1]));
        let before = total(parts.iter().map(|part| part.cost));
        let cost = before.saturating_add(sum);
        match call.func_name.as_str() {
            operators::EQUALS | operators::NOT_EQUALS => {
                // A value has no more equal parts than the smaller one.
                let least = parts.iter().map(|part| part.size).min().unwrap_or(0);
                CostBound::new(1, total([before, least, 1]))
            }
            name @ (operators::CONDITIONAL | "or" | "orValue" | "value") => {
                let results = parts.into_iter().skip(usize::from(name == operators::CONDITIONAL));
                let none = CostBound { cost, known: Some(Vec::new()), ..CostBound::default() };
                results.fold(none, |a, b| CostBound {
                    size: a.size.max(b.size),
                    cost,
                    elements: a.elements.max(b.elements),
                    largest: a.largest.max(b.largest),
                    known: a.known.zip(b.known).map(|(a, b)| [a, b].concat()),
                })
            }
            "replace" | "join" | "split" => {
                // A short text can be replaced at every byte, and a size unit has 64 bytes.
                let product = parts.iter().fold(64_u64, |product, part| product.saturating_mul(part.size.max(1)));
                CostBound::new(product, cost.saturating_add(product))
            }
            // A value of JSON has at least one byte.
            "parse" => {
                let values = sum.saturating_mul(BYTES_PER_VALUE);
                CostBound::new(values, cost.saturating_add(values))
            }
            // A byte becomes three characters of a URL.
            "encode" => CostBound::new(sum.saturating_mul(3), cost),
            // The pattern is the last operand. The cost depends on the text before it.
            MATCHES => {
                let read = parts.first().map_or(0, |text| text.size.saturating_mul(BYTES_PER_VALUE));
                let read = usize::try_from(read).unwrap_or(usize::MAX);
                let steps = self.pattern(call).map_or(0, |pattern| pattern.match_steps(read));
                CostBound::new(1, cost.saturating_add(steps / STEPS_PER_VALUE))
            }
            _ => CostBound::new(sum, cost),
        }
    }

    fn comprehension(&mut self, c: &'a ComprehensionExpr) -> CostBound<'a> {
        let range = self.of(&c.iter_range);
        let start = self.of(&c.accu_init);
        let outer = self.local.len();
        let items = range.known.as_ref().map(|known| known.iter().copied().flat_map(elements).collect());
        self.local.push((&c.iter_var, range.largest, items));
        self.local.extend(c.iter_var2.iter().map(|second| (second.as_str(), range.size, None)));
        // The accumulator is counted once after the loop.
        self.local.push((&c.accu_var, 0, None));
        let kept_if = filter_condition(c);
        let step = self.of(kept_if.unwrap_or(&c.loop_step));
        let (condition, result) = (self.of(&c.loop_cond), self.of(&c.result));
        self.local.truncate(outer);
        let steps = range.elements.saturating_mul(total([condition.cost, step.cost, 4]));
        // The elements are copied to the variable of the loop, and twice more to the result of a filter.
        let copies = range.size.saturating_mul(if kept_if.is_some() { 3 } else { 1 });
        let cost = total([range.cost, start.cost, steps, copies, result.cost]);
        let made = match &c.accu_init.expr {
            // A boolean or a number.
            Expr::Literal(_) => CostBound::new(1, 0),
            _ if kept_if.is_some() => CostBound { size: range.size.saturating_add(1), ..range },
            _ => CostBound {
                elements: range.elements,
                largest: step.size,
                ..CostBound::new(total([start.size, result.size, range.elements.saturating_mul(step.size)]), 0)
            },
        };
        CostBound { cost: cost.saturating_add(made.size), ..made }
    }
}

/// Returns the condition of a loop that keeps elements: `condition ? @result + [element] : @result`.
fn filter_condition(c: &ComprehensionExpr) -> Option<&IdedExpr> {
    let Expr::Call(step) = &c.loop_step.expr else { return None };
    let [condition, kept, _] = step.args.as_slice() else { return None };
    let Expr::Call(kept) = &kept.expr else { return None };
    let Expr::List(list) = &kept.args.last()?.expr else { return None };
    let [element] = list.elements.as_slice() else { return None };
    matches!(&element.expr, Expr::Ident(name) if *name == c.iter_var).then_some(condition)
}

/// Returns the bound of a list or map with one more part, which is copied.
fn with_part<'a>(a: CostBound<'a>, part: CostBound<'a>) -> CostBound<'a> {
    CostBound::new(a.size.saturating_add(part.size), total([a.cost, part.cost, part.size]))
}

fn total(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
