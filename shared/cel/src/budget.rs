//! The work that reading a document may take, counted in steps so that it is the same on every machine.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::near;
use crate::pattern::{PatternError, TextPattern};

/// The steps that compiling a document may take unless it is said otherwise. A step takes about 50 ns of one core in a
/// release build, so this is about half a second.
pub const DEFAULT_STEPS: u64 = 10_000_000;

/// The work that is left for one document, and the patterns that it has compiled already.
#[derive(Debug)]
pub struct WorkBudget {
    limit: u64,
    spent: Cell<u64>,
    patterns: RefCell<BTreeMap<String, Result<TextPattern, PatternError>>>,
}

impl Default for WorkBudget {
    fn default() -> Self {
        Self::new(DEFAULT_STEPS)
    }
}

impl WorkBudget {
    /// Returns a budget of so many steps.
    pub fn new(steps: u64) -> Self {
        Self { limit: steps, spent: Cell::new(0), patterns: RefCell::new(BTreeMap::new()) }
    }

    /// Returns a budget without a limit, for what was compiled within a budget before.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Takes steps. Returns false if there are not so many left; from then on there are none.
    pub fn spend(&self, steps: u64) -> bool {
        self.spent.set(self.spent.get().saturating_add(steps));
        !self.is_exhausted()
    }

    /// Returns whether more steps were asked for than there are.
    pub fn is_exhausted(&self) -> bool {
        self.spent.get() > self.limit
    }

    /// Returns the steps that were asked for.
    pub fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Returns the steps that there were in the beginning.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Compiles a pattern, or returns it if the same text was compiled before.
    ///
    /// # Errors
    /// [`PatternError`]; the same text gives the same error.
    pub fn pattern(&self, text: &str) -> Result<TextPattern, PatternError> {
        if let Some(known) = self.patterns.borrow().get(text) {
            return known.clone();
        }
        let made = TextPattern::compile(text, |steps| self.spend(steps));
        self.patterns.borrow_mut().insert(text.to_owned(), made.clone());
        made
    }

    /// Returns whether a pattern matches a text, or `None` if there is no budget left to find out.
    pub fn matches(&self, pattern: &TextPattern, text: &str) -> Option<bool> {
        self.spend(pattern.match_steps(text.len())).then(|| pattern.is_match(text))
    }

    /// Returns [`nearest`](crate::nearest) as long as there is budget for it.
    pub fn nearest<'a>(&self, name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        if self.is_exhausted() {
            return None;
        }
        let (found, cells) = near::search(name, candidates);
        self.spend(cells / near::CELLS_PER_STEP);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_is_spent_stays_spent() {
        let budget = WorkBudget::new(10);
        assert!(budget.spend(10) && !budget.is_exhausted());
        assert!(!budget.spend(1) && !budget.spend(0) && budget.is_exhausted());
        assert_eq!((budget.spent(), budget.limit()), (11, 10));
        assert_eq!(budget.nearest("nmae", ["name"]), None);
        assert!(WorkBudget::unlimited().spend(u64::MAX - 1));
    }

    #[test]
    fn a_pattern_is_compiled_once() {
        let budget = WorkBudget::default();
        let first = budget.pattern("^[a-z]+$").unwrap();
        let spent = budget.spent();
        assert!(spent > 0);
        assert_eq!(budget.pattern("^[a-z]+$").unwrap(), first);
        assert_eq!(budget.spent(), spent);
        assert_eq!(budget.matches(&first, "abc"), Some(true));
        assert!(budget.spent() > spent);
        let wrong = budget.pattern(r"\w{900}").unwrap_err();
        let spent = budget.spent();
        assert_eq!(budget.pattern(r"\w{900}").unwrap_err(), wrong);
        assert_eq!(budget.spent(), spent);
    }
}
