//! What one observation of an object says.

/// The most characters of a reason or message: what a controller wrote is cut there.
pub const MAX_TEXT: usize = 1024;

/// What one observation of an object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectReadiness {
    Pending {
        /// The field or condition that is awaited, and what it says now.
        reason: String,
    },
    /// It is what was asked for.
    Ready,
    /// It will not become ready without a change.
    Failed {
        /// One word for machines: the controller's, or ours where it has none.
        reason: String,
        /// A sentence for people; may be the controller's, and empty if that is.
        message: String,
    },
    /// It is not there, or another object has taken its name. Success for who deleted it, failure for everybody else.
    Gone,
}

impl ObjectReadiness {
    pub(crate) fn pending(why: impl AsRef<str>) -> Self {
        Self::Pending { reason: shown(why.as_ref()) }
    }

    pub(crate) fn failed(reason: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self::Failed { reason: shown(reason.as_ref()), message: shown(message.as_ref()) }
    }

    /// Pending on a field that has another value than the awaited one.
    pub(crate) fn awaits(field: &str, now: &str, wanted: &str) -> Self {
        if now.is_empty() {
            return Self::pending(format!("`{field}` is not there yet, `{wanted}` is awaited"));
        }
        Self::pending(format!("`{field}` is `{now}`, `{wanted}` is awaited"))
    }
}

/// In one line, without control characters, of at most [`MAX_TEXT`] characters.
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
