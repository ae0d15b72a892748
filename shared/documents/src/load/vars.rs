//! Values for `@{var}` from `--set`.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VarError(String);

/// Values for `@{var}`. Unused values are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentVars(BTreeMap<String, String>);

impl DocumentVars {
    pub fn none() -> Self {
        Self::default()
    }

    /// Parses `name=value` texts. The value begins after the first `=`. Equal duplicates are allowed.
    ///
    /// # Errors
    /// Returns an error for a text without `=`, for an invalid name, or if a name has two values.
    pub fn parse<S: AsRef<str>>(sets: impl IntoIterator<Item = S>) -> Result<Self, VarError> {
        let mut vars = BTreeMap::new();
        for set in sets {
            let set = set.as_ref();
            let (name, value) = set.split_once('=').ok_or_else(|| VarError(format!("`{set}` is no `name=value`")))?;
            if !is_variable(name) {
                let rule = "expected a letter, then letters, digits, `_`, `.` or `-`";
                return Err(VarError(format!("`{name}` is not a valid variable name: {rule}")));
            }
            if let Some(first) = vars.insert(name.to_owned(), value.to_owned()).filter(|first| first != value) {
                let conflict = format!("`{name}` is set to `{first}` and to `{value}`");
                return Err(VarError(format!("conflicting variable defs: {conflict}")));
            }
        }
        Ok(Self(vars))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Returns true if a name matches `^[a-zA-Z][a-zA-Z0-9_.-]*$`.
pub(crate) fn is_variable(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(is_inner)
}
