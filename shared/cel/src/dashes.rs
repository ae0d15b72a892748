//! Supports names with dashes, as in `units.create-db.outputs.queue-url`, which CEL would parse as subtractions.
//!
//! Names after `units.`, `resources.`, `params.`, `outputs.` and `labels.` come from a document and may have dashes. Each is
//! replaced by another name of the same length before CEL parses the text, so that offsets stay the same, and restored
//! afterwards. A subtraction needs blanks around it.

use std::collections::{BTreeMap, BTreeSet};

use cel::common::ast::{Expr, IdedExpr, LiteralValue, operators};

use crate::tokens;
use crate::walk::each_mut;

/// Replacements of a dash. The first one that produces an unused name is used.
const FILLERS: &str = "_0123456789abcdefghijklmnopqrstuvwxyz";

/// A text with replaced names, and the original names.
pub(crate) struct DashedNames {
    pub(crate) text: String,
    names: BTreeMap<String, String>,
}

impl DashedNames {
    pub(crate) fn replaced(text: &str) -> Self {
        let mut replaced = Self { text: text.to_owned(), names: BTreeMap::new() };
        if !text.contains('-') {
            return replaced;
        }
        let found = tokens::names(text);
        let mut used: BTreeSet<String> = found.iter().map(|name| name.text.to_owned()).collect();
        let mut replacements: BTreeMap<&str, String> = BTreeMap::new();
        // The tokenizer splits names at dashes. Later pieces are skipped.
        let mut read = 0;
        let mut before: Option<(usize, &str)> = None;
        for name in &found {
            if name.offset < read {
                continue;
            }
            read = name.offset + name.text.len();
            let follows = before.is_some_and(|(end, last)| {
                let between = &text[end..name.offset];
                let named = ["units", "resources", "params", "outputs", "labels"].contains(&last);
                named && between.bytes().all(|byte| byte == b'.' || byte == b'?' || byte.is_ascii_whitespace())
            });
            if name.after_dot
                && follows
                && let Some(dashed) = tokens::dashed(text, name.offset)
            {
                let other = replacements.entry(dashed).or_insert_with(|| {
                    let mut candidates = FILLERS.chars().map(|filler| dashed.replace('-', &filler.to_string()));
                    let other = candidates.find(|other| !used.contains(other)).unwrap_or_default();
                    used.insert(other.clone());
                    other
                });
                if other.len() == dashed.len() {
                    read = name.offset + dashed.len();
                    replaced.text.replace_range(name.offset..read, other);
                    replaced.names.insert(other.clone(), dashed.to_owned());
                }
            }
            before = Some((read, &text[name.offset..read]));
        }
        replaced
    }

    pub(crate) fn restore(&self, tree: &mut IdedExpr) {
        if self.names.is_empty() {
            return;
        }
        each_mut(tree, &mut |expr| match expr {
            Expr::Select(select) => {
                if let Some(name) = self.names.get(&select.field) {
                    select.field.clone_from(name);
                }
            }
            Expr::Call(call) if call.func_name == operators::OPT_SELECT => {
                if let Some(Expr::Literal(LiteralValue::String(field))) =
                    call.args.get_mut(1).map(|field| &mut field.expr)
                    && let Some(name) = self.names.get(field.inner())
                {
                    *field = name.clone().into();
                }
            }
            _ => {}
        });
    }
}
