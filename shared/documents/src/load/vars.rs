//! Values for `@{var}` from `--set`.

use std::collections::BTreeMap;

/// The error of an invalid `--set`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarError {
    /// The text contains no `=`.
    #[error("`{0}` is no `name=value`")]
    NoValue(String),
    /// The name is invalid in `@{…}`.
    #[error("`{0}` is not a valid variable name: expected a letter, then letters, digits, `_`, `.` or `-`")]
    Name(String),
    #[error("conflicting variable defs: `{name}` is set to `{first}` and to `{second}`")]
    Conflict { name: String, first: String, second: String },
}

/// Values for `@{var}`. Unused values are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentVars(BTreeMap<String, String>);

impl DocumentVars {
    /// Returns no values.
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
            let (name, value) = set.split_once('=').ok_or_else(|| VarError::NoValue(set.to_owned()))?;
            if !is_variable(name) {
                return Err(VarError::Name(name.to_owned()));
            }
            if let Some(first) = vars.insert(name.to_owned(), value.to_owned()).filter(|first| first != value) {
                return Err(VarError::Conflict { name: name.to_owned(), first, second: value.to_owned() });
            }
        }
        Ok(Self(vars))
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Returns true if a name matches `^[a-zA-Z][a-zA-Z0-9_.-]*$`.
pub(crate) fn is_variable(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && characters.all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}
