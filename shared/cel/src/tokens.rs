//! Finds the positions of names in the text of an expression.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameToken<'a> {
    pub(crate) text: &'a str,
    pub(crate) offset: usize,
    /// True for a name that is selected from what precedes it.
    pub(crate) after_dot: bool,
}

/// Returns all names outside of strings and comments, in the order of the text.
pub(crate) fn names(text: &str) -> Vec<NameToken<'_>> {
    let bytes = text.as_bytes();
    let mut names = Vec::new();
    let mut at = 0;
    let mut after_dot = false;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        if byte.is_ascii_alphabetic() || byte == b'_' {
            at += word(&bytes[at..]);
            let prefix = text[start..at].bytes().all(|byte| b"rRbB".contains(&byte)) && at - start <= 2;
            if prefix && matches!(bytes.get(at), Some(b'"' | b'\'')) {
                at = string_end(text, at);
            } else {
                names.push(NameToken { text: &text[start..at], offset: start, after_dot });
            }
            after_dot = false;
        } else if byte.is_ascii_digit() {
            at += word(&bytes[at..]);
            after_dot = false;
        } else if byte == b'"' || byte == b'\'' {
            at = string_end(text, at);
            after_dot = false;
        } else if bytes[at..].starts_with(b"//") {
            at += text[at..].find('\n').unwrap_or(text.len() - at);
        } else {
            match byte {
                b'.' => after_dot = true,
                // `.?name` is a name after a dot, and blanks are ignored.
                b'?' if after_dot => {}
                _ if byte.is_ascii_whitespace() => {}
                _ => after_dot = false,
            }
            at += 1;
        }
    }
    names
}

fn word(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
}

/// Returns the byte offset after the string literal that begins with a quote at `start`. An unclosed short string ends
/// with its line. CEL rejects it later.
pub fn string_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let Some(&quote) = bytes.get(start) else { return start };
    let before = bytes[..start].iter().rposition(|b| !b.is_ascii_alphanumeric() && *b != b'_').map_or(0, |n| n + 1);
    let prefix = &bytes[before..start];
    let raw =
        prefix.len() <= 2 && prefix.iter().all(|b| b"rRbB".contains(b)) && prefix.iter().any(|b| b"rR".contains(b));
    let long = bytes[start..].starts_with(&[quote; 3]);
    let width = if long { 3 } else { 1 };
    let mut at = start + width;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if !raw => at += 1,
            b'\n' if !long => return at,
            _ if byte == quote && (!long || bytes[at..].starts_with(&[quote; 3])) => return at + width,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// Returns the name with dashes at an offset, such as `queue-url`.
pub(crate) fn dashed(text: &str, offset: usize) -> Option<&str> {
    let rest = &text[offset..];
    let length = rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_' || *b == b'-').count();
    let name = rest[..length].trim_end_matches('-');
    name.contains('-').then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outside_of_strings() {
        let text = "a.?b + r'x\\' + size(\"c\\\"d\") // e\n + f . g[1e5] + bytes(b'''h'i''')";
        let found: Vec<String> =
            names(text).iter().map(|name| format!("{} {} {}", name.after_dot, name.offset, name.text)).collect();
        assert_eq!(found.join(", "), "false 0 a, true 3 b, false 15 size, false 36 f, true 40 g, false 49 bytes");
        assert_eq!(dashed("x.queue-url-2 - 1", 2), Some("queue-url-2"));
        assert_eq!(dashed("x.queue - url", 2), None);
    }
}
