//! The texts that the API server accepts in names, labels and annotations.

/// Returns a noun after its indefinite article.
pub fn with_article(noun: &str) -> String {
    format!("{} {noun}", if noun.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" })
}

/// Returns true for the value of a label that is not empty.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_made_of(text, |c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Returns true for a part of a DNS name, apart from its length.
pub fn is_dns_part(text: &str) -> bool {
    is_made_of(text, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Returns true if a text has only these characters, and a letter or digit at both ends.
fn is_made_of(text: &str, inner: impl Fn(char) -> bool) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(inner)
}
