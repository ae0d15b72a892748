//! Analyses the tree of an expression.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use crate::names::{RootVariable, TYPES, functions, is_function};
use crate::path::{PathKey, SelectionPath, StepAccess, step};
use crate::tokens::{self, NameToken};
use crate::{
    BYTES_PER_STEP, Expression, ExpressionIssue, MAX_DEPTH, MAX_ISSUES, MAX_NESTED_LOOPS, MAX_NODES, MAX_PATTERN_STEPS,
    PATTERN_HELP, PatternError, ReferenceSource, ReferenceUsage, Scope, TextPattern, ValueReference, nearest,
};

/// The name of `matches` with a compiled pattern. No expression can contain this name.
pub(super) const MATCHES: &str = "@matches";

const SMALLER: &str = "compute the value in a unit and pass it as an output";

/// Returns the expression `written` with its references, or its issues. `text` has other names instead of those with
/// dashes, at the same places.
pub(super) fn analyse(
    written: &str,
    text: &str,
    mut tree: IdedExpr,
    scope: Scope,
) -> Result<Expression, Vec<ExpressionIssue>> {
    let mut walk = ExpressionWalker {
        text,
        scope,
        patterns: BTreeMap::new(),
        pattern_steps: 0,
        names: tokens::names(text),
        bound: Vec::new(),
        loops: 0,
        roots: Vec::new(),
        found: Vec::new(),
        mistakes: Vec::new(),
    };
    walk.expr(&tree, ReferenceUsage::Whole);
    let patterns = Arc::new(std::mem::take(&mut walk.patterns));
    let steps = 1 + text.len() as u64 / BYTES_PER_STEP + walk.pattern_steps;
    let (references, mistakes) = walk.placed();
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    if !patterns.is_empty() {
        each_mut(&mut tree, &mut |expr| match expr {
            Expr::Call(call) if call.func_name == "matches" => call.func_name = MATCHES.to_owned(),
            _ => {}
        });
    }
    Ok(Expression { text: written.to_owned(), tree, references, patterns, steps })
}

/// Applies `change` to every node of a tree that passed [`shape`].
pub(super) fn each_mut(expr: &mut IdedExpr, change: &mut impl FnMut(&mut Expr)) {
    change(&mut expr.expr);
    match &mut expr.expr {
        Expr::Call(call) => {
            call.target.as_deref_mut().into_iter().chain(&mut call.args).for_each(|part| each_mut(part, change));
        }
        Expr::Comprehension(c) => {
            let parts = [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result];
            parts.into_iter().for_each(|part| each_mut(part, change));
        }
        Expr::List(list) => list.elements.iter_mut().for_each(|element| each_mut(element, change)),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    each_mut(&mut entry.key, change);
                    each_mut(&mut entry.value, change);
                }
            }
        }
        Expr::Select(select) => each_mut(&mut select.operand, change),
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

/// Rejects trees that are too large for recursion. The check itself does not recurse.
pub(super) fn shape(tree: &IdedExpr) -> Result<(), Vec<ExpressionIssue>> {
    let mut open = vec![(tree, 1)];
    let mut nodes = 0;
    while let Some((expr, depth)) = open.pop() {
        nodes += 1;
        if depth > MAX_DEPTH || nodes > MAX_NODES {
            let message = match depth > MAX_DEPTH {
                true => format!("the expression is nested more than {MAX_DEPTH} levels deep"),
                false => format!("the expression has more than {MAX_NODES} parts"),
            };
            return Err(vec![ExpressionIssue::new("expression-limit", message).help(SMALLER)]);
        }
        if matches!(expr.expr, Expr::Struct(_) | Expr::Unspecified) {
            let issue = ExpressionIssue::new("syntax", "messages such as `Name{…}` are not supported");
            return Err(vec![issue.help("a map is written `{\"key\": value}`")]);
        }
        open.extend(children(expr).into_iter().map(|child| (child, depth + 1)));
    }
    Ok(())
}

pub(super) fn children(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => {
            vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result]
        }
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some([&entry.key, &entry.value]),
                EntryExpr::StructField(_) => None,
            });
            entries.flatten().collect()
        }
        Expr::Select(select) => vec![&select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Vec::new(),
    }
}

/// Returns true if a tree that passed [`shape`] contains `name` as a field or a text.
pub(super) fn writes(expr: &IdedExpr, name: &str) -> bool {
    let is_written = match &expr.expr {
        Expr::Select(select) => select.field == name,
        Expr::Literal(LiteralValue::String(text)) => text.inner() == name,
        _ => false,
    };
    is_written || children(expr).into_iter().any(|child| writes(child, name))
}

struct ExpressionWalker<'t> {
    text: &'t str,
    scope: Scope,
    patterns: BTreeMap<String, TextPattern>,
    pattern_steps: u64,
    names: Vec<NameToken<'t>>,
    bound: Vec<String>,
    loops: usize,
    /// The node and the name of each path's root.
    roots: Vec<(u64, String)>,
    /// References with the node of their root.
    found: Vec<(u64, ValueReference)>,
    /// Issues with the node of their path, or with an offset.
    mistakes: Vec<(Option<u64>, ExpressionIssue)>,
}

impl ExpressionWalker<'_> {
    fn expr(&mut self, expr: &IdedExpr, usage: ReferenceUsage) {
        if let Some(path) = SelectionPath::of(expr) {
            self.roots.push((path.root_id, path.root.to_owned()));
            for step in &path.steps {
                if let PathKey::Dynamic(key) = step.key {
                    self.expr(key, ReferenceUsage::Part);
                }
            }
            if !path.root.starts_with('@') && !self.bound.iter().any(|name| name == path.root) {
                self.path(&path, usage);
            }
            return;
        }
        match &expr.expr {
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            _ => children(expr).into_iter().for_each(|child| self.expr(child, ReferenceUsage::Part)),
        }
    }

    fn call(&mut self, call: &CallExpr) {
        if call.func_name == operators::SUBSTRACT && call.target.is_none() && self.subtraction(call) {
            return;
        }
        if call.func_name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            let namespace = call.target.as_deref().and_then(|target| match &target.expr {
                Expr::Ident(name) if !self.bound.contains(name) => Some(format!("{name}.")),
                _ => None,
            });
            if let Some(namespace) = namespace
                && let Some(sibling) = functions().find(|function| function.starts_with(&namespace))
            {
                if !is_function(&format!("{namespace}{}", call.func_name)) {
                    self.unknown_function(&call.func_name, Some(sibling));
                }
                call.args.iter().for_each(|arg| self.expr(arg, ReferenceUsage::Part));
                return;
            }
            if !is_function(&call.func_name) {
                self.unknown_function(&call.func_name, None);
            } else if call.func_name == "secretRef" {
                self.secret_ref(call);
                return;
            } else if call.func_name == "matches" {
                self.pattern(call);
            }
        }
        if let Some(target) = &call.target {
            self.expr(target, ReferenceUsage::Part);
        }
        call.args.iter().for_each(|arg| self.expr(arg, ReferenceUsage::Part));
    }

    /// Compiles the pattern of `matches`. It must be a literal, so that its cost is known before the evaluation.
    fn pattern(&mut self, call: &CallExpr) {
        let message = match call.args.last().map(|pattern| &pattern.expr) {
            Some(Expr::Literal(LiteralValue::String(pattern))) => {
                let compiled = TextPattern::compile(pattern.inner(), |steps| {
                    self.pattern_steps += steps;
                    self.pattern_steps <= MAX_PATTERN_STEPS
                });
                match compiled {
                    Ok(compiled) => {
                        self.patterns.insert(pattern.inner().to_owned(), compiled);
                        return;
                    }
                    Err(PatternError::Syntax(reason)) => {
                        format!("the pattern of `matches` is not a regular expression: {reason}")
                    }
                    Err(error) => format!("the pattern of `matches` cannot be used: {error}"),
                }
            }
            Some(_) => "the pattern of `matches` is computed".to_owned(),
            None => return,
        };
        let help = format!("{PATTERN_HELP}; use a literal such as `\"^[a-z]+$\"`");
        self.mistake_at("matches", ExpressionIssue::new("pattern", message).help(help));
    }

    fn mistake(&mut self, root: Option<u64>, mistake: ExpressionIssue) {
        if self.mistakes.len() < MAX_ISSUES {
            self.mistakes.push((root, mistake));
        }
    }

    /// Returns a suggestion, unless there are too many issues.
    fn near<'a>(&self, name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        if self.mistakes.len() < MAX_ISSUES { nearest(name, candidates) } else { None }
    }

    fn secret_ref(&mut self, call: &CallExpr) {
        let is_sensitive =
            |root: &RootVariable| matches!(root, RootVariable::Params | RootVariable::Units | RootVariable::Resources);
        if !self.scope.roots().iter().any(is_sensitive) {
            let issue = ExpressionIssue::new("sensitive", "`secretRef` cannot be used here");
            self.mistake_at("secretRef", issue.help("no value here is sensitive; leave out `secretRef`"));
        }
        match (call.target.as_deref(), call.args.as_slice()) {
            (None, [arg]) if SelectionPath::of(arg).is_some() => self.expr(arg, ReferenceUsage::SecretRef),
            _ => {
                let issue = ExpressionIssue::new("sensitive", "`secretRef` takes one output or param");
                self.mistake_at("secretRef", issue.help("such as `secretRef(units.database.outputs.dsn)`"));
            }
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) {
        self.expr(&comprehension.iter_range, ReferenceUsage::Part);
        let outer = self.bound.len();
        self.bound.push(comprehension.iter_var.clone());
        self.bound.extend(comprehension.iter_var2.clone());
        self.loops += 1;
        if self.loops == MAX_NESTED_LOOPS + 1 {
            let message = format!("`all`, `exists`, `map` and `filter` are nested more than {MAX_NESTED_LOOPS} deep");
            self.mistake(None, ExpressionIssue::new("expression-limit", message).help(SMALLER));
        }
        let parts =
            [&comprehension.accu_init, &comprehension.loop_cond, &comprehension.loop_step, &comprehension.result];
        parts.into_iter().for_each(|part| self.expr(part, ReferenceUsage::Part));
        self.loops -= 1;
        self.bound.truncate(outer);
    }

    fn path(&mut self, path: &SelectionPath<'_>, usage: ReferenceUsage) {
        let Some(root) = RootVariable::named(path.root).filter(|root| self.scope.roots().contains(root)) else {
            if !(TYPES.contains(&path.root) && path.steps.is_empty()) {
                self.unknown_root(path);
            }
            return;
        };
        let steps = match root {
            RootVariable::Params | RootVariable::Inputs | RootVariable::Target | RootVariable::Resource => 1,
            RootVariable::Old => 2,
            RootVariable::Units | RootVariable::Resources => 3,
            _ => 0,
        };
        let Some(source) = self.source(root, path) else { return };
        let presence = path.steps.last().is_some_and(|step| step.access == StepAccess::Presence);
        let usage = match usage {
            _ if presence && path.steps.len() <= steps => ReferenceUsage::Presence,
            usage if path.steps.len() <= steps || steps == 0 => usage,
            _ => ReferenceUsage::Field,
        };
        let optional = path.steps.iter().take(steps.max(1)).any(|step| step.access != StepAccess::Required);
        let reference = ValueReference { source, optional, usage, offset: 0, length: 0 };
        self.found.push((path.root_id, reference));
    }

    /// Returns the source of a path, or reports an issue.
    fn source(&mut self, root: RootVariable, path: &SelectionPath<'_>) -> Option<ReferenceSource> {
        let at = path.root_id;
        let name = root.as_str();
        match root {
            RootVariable::Item => {
                if self.scope != Scope::Listing && !path.steps.is_empty() {
                    let message = "`item` is a text, number or boolean, which has no fields".to_owned();
                    self.report(at, "field", message, Some("read it as a whole".to_owned()));
                }
                Some(ReferenceSource::Root(root))
            }
            RootVariable::Target | RootVariable::Resource | RootVariable::Source => {
                let field = self.constant(path, 0, &format!("{name}.name"))?.to_owned();
                if !self.check_field(at, root, &field) {
                    return None;
                }
                if path.steps.len() > 1 && !["labels", "generation"].contains(&field.as_str()) {
                    let message = format!("`{name}.{field}` is a text, which has no fields");
                    self.report(at, "field", message, Some("read it as a whole".to_owned()));
                }
                Some(match root {
                    RootVariable::Target => ReferenceSource::Target(field),
                    RootVariable::Source => ReferenceSource::Root(root),
                    _ => ReferenceSource::OwnResource(field),
                })
            }
            RootVariable::Params => Some(ReferenceSource::Param(self.constant(path, 0, "params.NAME")?.to_owned())),
            RootVariable::Inputs => Some(ReferenceSource::Input(self.constant(path, 0, "inputs.NAME")?.to_owned())),
            RootVariable::Old => {
                let shape = "old.params.NAME";
                let field = self.constant(path, 0, shape)?;
                if !self.check_field(at, root, field) {
                    return None;
                }
                Some(ReferenceSource::OldParam(self.constant(path, 1, shape)?.to_owned()))
            }
            RootVariable::Units | RootVariable::Resources => {
                let (singular, shape) = match root {
                    RootVariable::Units => ("unit", "units.UNIT.outputs.OUTPUT"),
                    _ => ("resource", "resources.RESOURCE.outputs.OUTPUT"),
                };
                let first = self.constant(path, 0, shape)?.to_owned();
                let second = self.constant(path, 1, shape)?;
                if second != "outputs" {
                    let message = format!("a {singular} has only `outputs`, not `{second}`");
                    let right = match self.near(second, ["outputs"]) {
                        Some(_) => format!("{name}{}.outputs", step(&first)),
                        None => format!("{name}{}.outputs{}", step(&first), step(second)),
                    };
                    self.report(at, "unknown-name", message, Some(format!("did you mean `{right}`?")));
                    return None;
                }
                let output = self.constant(path, 2, shape)?.to_owned();
                Some(match root {
                    RootVariable::Units => ReferenceSource::Output { unit: first, output },
                    _ => ReferenceSource::Resource { resource: first, output },
                })
            }
            _ if root.fields().is_empty() => Some(ReferenceSource::Root(root)),
            _ => {
                let Some(field) = path.name(0) else {
                    let help = format!("expected `{}`", root.fields().replace(' ', "`, `"));
                    self.report(at, "unknown-name", format!("`{name}` cannot be read as a whole"), Some(help));
                    return None;
                };
                self.check_field(at, root, field);
                Some(ReferenceSource::Root(root))
            }
        }
    }

    /// Returns the constant name of a step, or reports an issue.
    fn constant<'a>(&mut self, path: &SelectionPath<'a>, step: usize, shape: &str) -> Option<&'a str> {
        let name = path.name(step);
        if name.is_none() {
            let part = path.root;
            let (code, message) = match path.steps.get(step) {
                Some(_) => ("dynamic-index", format!("a name below `{part}` is computed, so its source is unknown")),
                None => ("whole-map", format!("`{part}` cannot be used as a whole")),
            };
            self.report(path.root_id, code, message, Some(format!("write a constant name, as in `{shape}`")));
        }
        name
    }

    fn unknown_root(&mut self, path: &SelectionPath<'_>) {
        let allowed: Vec<&str> = self.scope.roots().iter().map(|root| root.as_str()).collect();
        let here = format!("`{}`", allowed.join("`, `"));
        let name = path.root;
        let outside = [Scope::Event, Scope::FetchedEvent, Scope::Listing, Scope::Subscription, Scope::Notification];
        let (message, help) = match RootVariable::named(name) {
            Some(RootVariable::Resources) if !outside.contains(&self.scope) => (
                "a plugin cannot name other resources".to_owned(),
                "declare a param; the sandbox wires the other resource's output into it".to_owned(),
            ),
            Some(_) => (format!("`{name}` cannot be used here"), format!("use {here}")),
            None => match self.near(name, allowed.iter().copied()) {
                Some(near) => (format!("`{name}` is not known"), format!("did you mean `{near}`?")),
                None => (format!("`{name}` is not known"), format!("use {here}; text needs quotes: \"{name}\"")),
            },
        };
        self.report(path.root_id, "unknown-name", message, Some(help));
    }

    /// Returns true if a variable has this field. Reports another one.
    fn check_field(&mut self, at: u64, root: RootVariable, field: &str) -> bool {
        let fields = root.fields();
        if fields.split(' ').any(|known| known == field) {
            return true;
        }
        let help = match self.near(field, fields.split(' ')) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("expected `{}`", fields.replace(' ', "`, `")),
        };
        self.report(at, "unknown-name", format!("`{}` has no `{field}`", root.as_str()), Some(help));
        false
    }

    /// Reports a function. `sibling` is one of its namespace.
    fn unknown_function(&mut self, name: &str, sibling: Option<&str>) {
        let plain = |function: &'static str| function.rsplit('.').next().unwrap_or(function);
        let macros = ["has", "all", "exists", "exists_one", "map", "filter"];
        let near = sibling.or_else(|| self.near(name, functions().map(plain).chain(macros)));
        let help = near.map(|near| {
            let whole = functions().find(|&function| plain(function) == near).unwrap_or(near);
            format!("did you mean `{whole}`?")
        });
        let message = match macros.contains(&name) {
            true => format!("`{name}` is used in a wrong way"),
            false => format!("there is no function `{name}`"),
        };
        self.mistake_at(name, ExpressionIssue { help, ..ExpressionIssue::new("unknown-function", message) });
    }

    /// Reports a subtraction that is probably a name with a dash. Returns true if it is one.
    fn subtraction(&mut self, call: &CallExpr) -> bool {
        let [left, right] = call.args.as_slice() else { return false };
        if let Expr::Call(inner) = &left.expr
            && inner.func_name == operators::SUBSTRACT
        {
            return self.subtraction(inner);
        }
        let Some(path) = SelectionPath::of(left) else { return false };
        let known = RootVariable::named(path.root).is_some() && !self.bound.iter().any(|name| name == path.root);
        let Some(PathKey::Name(last)) = path.steps.last().map(|step| &step.key) else { return false };
        let Some(beginning) = leftmost(right) else { return false };
        let other = RootVariable::named(beginning).is_some() || self.bound.iter().any(|name| name == beginning);
        if !known || other {
            return false;
        }
        let text = self.text;
        let found = self.names.iter().filter(|name| name.text == *last && name.after_dot);
        let found: Vec<(usize, &str)> =
            found.filter_map(|name| Some((name.offset, tokens::dashed(text, name.offset)?))).collect();
        let Some(&(offset, dashed)) = found.first() else { return false };
        let before = match path.steps.len().checked_sub(2).and_then(|n| path.name(n)) {
            Some(before) => before,
            None => path.root,
        };
        let issue = ExpressionIssue::new("dash", format!("CEL reads `{before}.{dashed}` as a subtraction"));
        let issue = issue.help(format!("write `{before}[\"{dashed}\"]`"));
        self.mistake(None, ExpressionIssue { offset, length: dashed.chars().count(), ..issue });
        true
    }

    fn report(&mut self, root: u64, code: &'static str, message: String, help: Option<String>) {
        self.mistake(Some(root), ExpressionIssue { help, ..ExpressionIssue::new(code, message) });
    }

    /// Adds an issue at the first occurrence of a name.
    fn mistake_at(&mut self, name: &str, issue: ExpressionIssue) {
        let offset = self.names.iter().find(|found| found.text == name).map_or(0, |found| found.offset);
        self.mistake(None, ExpressionIssue { offset, ..issue });
    }

    /// Returns references and issues with offsets. Node ids follow the order of the text, so the n-th path with a root
    /// name is at the n-th occurrence of that name as a root.
    fn placed(mut self) -> (Vec<ValueReference>, Vec<ExpressionIssue>) {
        self.roots.sort();
        let mut seen: HashMap<&str, usize> = HashMap::new();
        let mut offsets: HashMap<u64, usize> = HashMap::new();
        for (id, root) in &self.roots {
            let nth = seen.entry(root).or_default();
            let mut places = self.names.iter().filter(|n| n.text == root && !n.after_dot);
            if let Some(name) = places.nth(*nth) {
                offsets.insert(*id, name.offset);
            }
            *nth += 1;
        }
        let offset = |id: u64| offsets.get(&id).copied().unwrap_or(0);
        let guarded: Vec<ReferenceSource> = self
            .found
            .iter()
            .filter(|(_, reference)| reference.usage == ReferenceUsage::Presence)
            .map(|(_, reference)| reference.source.clone())
            .collect();
        let mut references: Vec<ValueReference> = Vec::with_capacity(self.found.len());
        for (id, reference) in self.found {
            let offset = offset(id);
            let optional = reference.optional || guarded.contains(&reference.source);
            references.push(ValueReference { offset, length: path_length(self.text, offset), optional, ..reference });
        }
        references.sort_by_key(|reference| reference.offset);
        let mut mistakes: Vec<ExpressionIssue> = Vec::with_capacity(self.mistakes.len());
        for (id, mistake) in self.mistakes {
            mistakes.push(match id.map(offset) {
                Some(offset) => ExpressionIssue { offset, length: path_length(self.text, offset), ..mistake },
                None => mistake,
            });
        }
        mistakes.sort_by_key(|mistake| mistake.offset);
        (references, mistakes)
    }
}

fn leftmost(expr: &IdedExpr) -> Option<&str> {
    let mut at = expr;
    loop {
        if let Some(path) = SelectionPath::of(at) {
            return Some(path.root);
        }
        at = match &at.expr {
            Expr::Call(call) => call.target.as_deref().or(call.args.first())?,
            Expr::Select(select) => &select.operand,
            _ => return None,
        };
    }
}

/// Returns the number of characters of the path at an offset.
fn path_length(text: &str, offset: usize) -> usize {
    let mut depth = 0_usize;
    let mut quote = None;
    let mut length = 0;
    for c in text[offset..].chars() {
        match (quote, c) {
            (Some(open), c) => {
                if c == open {
                    quote = None;
                }
            }
            (None, '"' | '\'') if depth > 0 => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth > 0 => depth -= 1,
            (None, '.' | '?' | '_') => {}
            (None, c) if c.is_ascii_alphanumeric() => {}
            (None, _) => break,
        }
        length += 1;
    }
    length
}
