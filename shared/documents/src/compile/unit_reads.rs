//! The values that the texts of a unit read, each with the role of its text.

use super::collector::ExpressionRead;
use super::sensitive::TextRole;

/// The values that a unit reads.
#[derive(Default)]
pub(super) struct UnitReads<'a>(pub(super) Vec<(TextRole, ExpressionRead<'a>)>);

impl<'a> UnitReads<'a> {
    /// Adds the values that texts of one role read. `compile` compiles these texts, and adds the values to its argument.
    pub(super) fn of<T>(&mut self, role: TextRole, compile: impl FnOnce(&mut Vec<ExpressionRead<'a>>) -> T) -> T {
        let mut found = Vec::new();
        let made = compile(&mut found);
        self.0.extend(found.into_iter().map(|read| (role, read)));
        made
    }
}
