//! The work that compiling a document may take, in machine-independent steps.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::near;
use crate::pattern::{PatternError, TextPattern};

/// The default limit of steps. A step takes about 50 ns of one core in a release build, so this is about half a
/// second.
pub const DEFAULT_STEPS: u64 = 10_000_000;

/// The remaining work for one document, and its compiled patterns.
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
    pub fn new(steps: u64) -> Self {
        Self { limit: steps, spent: Cell::new(0), patterns: RefCell::new(BTreeMap::new()) }
    }

    /// Returns a budget without a limit, for texts that were compiled within a budget before.
    pub fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Spends steps. Returns false if too few remain; then all are spent.
    pub fn spend(&self, steps: u64) -> bool {
        self.spent.set(self.spent.get().saturating_add(steps));
        !self.is_exhausted()
    }

    /// Returns true if more steps were requested than the limit.
    pub fn is_exhausted(&self) -> bool {
        self.spent.get() > self.limit
    }

    pub fn spent(&self) -> u64 {
        self.spent.get()
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Compiles a pattern, or returns the earlier result for the same text.
    pub fn pattern(&self, text: &str) -> Result<TextPattern, PatternError> {
        if let Some(cached) = self.patterns.borrow().get(text) {
            return cached.clone();
        }
        let result = TextPattern::compile(text, |steps| self.spend(steps));
        self.patterns.borrow_mut().insert(text.to_owned(), result.clone());
        result
    }

    /// Matches a pattern, or returns `None` if the budget is exhausted.
    pub fn matches(&self, pattern: &TextPattern, text: &str) -> Option<bool> {
        self.spend(pattern.match_steps(text.len())).then(|| pattern.is_match(text))
    }

    /// Calls [`nearest`](crate::nearest) within the budget.
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
