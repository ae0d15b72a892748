//! The result of judging one observation of an object.

/// The maximum number of characters of a reason or message.
pub const MAX_TEXT: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectReadiness {
    Pending {
        /// The awaited field or condition with its present value.
        reason: String,
    },
    Ready,
    /// The object cannot become ready without a change.
    Failed {
        /// One word for programs, from the controller if it has one.
        reason: String,
        /// A sentence for people, possibly from the controller. May be empty.
        message: String,
    },
    /// The object is missing or replaced. A success for a deletion, a failure otherwise.
    Gone,
}

impl ObjectReadiness {
    /// Returns the awaited field of a pending object, such as `status.readyReplicas`. A reason that is about a field
    /// begins with its path.
    pub fn awaited_field(&self) -> Option<&str> {
        let Self::Pending { reason } = self else { return None };
        let (field, _) = reason.strip_prefix('`')?.split_once('`')?;
        ["metadata.", "spec.", "status."].iter().any(|root| field.starts_with(root)).then_some(field)
    }

    pub(crate) fn pending(why: impl AsRef<str>) -> Self {
        Self::Pending { reason: shown(why.as_ref()) }
    }

    pub(crate) fn failed(reason: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self::Failed { reason: shown(reason.as_ref()), message: shown(message.as_ref()) }
    }

    /// Returns pending for a field with another value than the awaited one.
    pub(crate) fn awaits(field: &str, now: &str, wanted: &str) -> Self {
        if now.is_empty() {
            return Self::pending(format!("`{field}` does not exist yet, `{wanted}` is awaited"));
        }
        Self::pending(format!("`{field}` is `{now}`, `{wanted}` is awaited"))
    }
}

/// Returns one line of at most [`MAX_TEXT`] characters, without control characters.
fn shown(text: &str) -> String {
    let mut words = String::new();
    for (number, character) in text.trim().chars().enumerate() {
        if number == MAX_TEXT - 1 {
            words.push('…');
            break;
        }
        words.push(if character.is_control() { ' ' } else { character });
    }
    words
}
