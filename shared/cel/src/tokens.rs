//! Positions of names in the text of an expression.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameToken<'a> {
    pub(crate) text: &'a str,
    pub(crate) offset: usize,
    pub(crate) position: NamePosition,
}

/// The position of a name in its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamePosition {
    First,
    AfterDot,
}

/// Returns all names outside of strings and comments, in the order of the text.
pub(crate) fn names(text: &str) -> Vec<NameToken<'_>> {
    let bytes = text.as_bytes();
    let mut names = Vec::new();
    let mut at = 0;
    let mut position = NamePosition::First;
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        if byte.is_ascii_alphabetic() || byte == b'_' {
            at += word(&bytes[at..]);
            let raw = matches!(
                &text[start..at],
                "r" | "R" | "b" | "B" | "rb" | "Rb" | "rB" | "RB" | "br" | "bR" | "Br" | "BR"
            );
            if raw && matches!(bytes.get(at), Some(b'"' | b'\'')) {
                at = skip_string(bytes, at, &text[start..at]);
            } else {
                names.push(NameToken { text: &text[start..at], offset: start, position });
            }
            position = NamePosition::First;
        } else if byte.is_ascii_digit() {
            at += word(&bytes[at..]);
            position = NamePosition::First;
        } else if byte == b'"' || byte == b'\'' {
            at = skip_string(bytes, at, "");
            position = NamePosition::First;
        } else if bytes[at..].starts_with(b"//") {
            at += text[at..].find('\n').unwrap_or(text.len() - at);
        } else {
            match byte {
                b'.' => position = NamePosition::AfterDot,
                // `.?name` is a name after a dot, and blanks are ignored.
                b'?' if position == NamePosition::AfterDot => {}
                _ if byte.is_ascii_whitespace() => {}
                _ => position = NamePosition::First,
            }
            at += 1;
        }
    }
    names
}

fn word(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
}

fn skip_string(bytes: &[u8], start: usize, prefix: &str) -> usize {
    let Some(&quote) = bytes.get(start) else { return start };
    let raw = prefix.contains(['r', 'R']);
    let long = bytes[start..].starts_with(&[quote; 3]);
    let mut at = start + if long { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        if byte == b'\\' && !raw {
            at += 1;
        } else if byte == quote && long && bytes[at..].starts_with(&[quote; 3]) {
            return at + 3;
        } else if byte == quote && !long {
            return at + 1;
        }
        at += 1;
    }
    bytes.len()
}

/// Returns the byte offset of a line and column, both from 1, columns in characters.
pub(crate) fn byte_of(text: &str, (line, column): (isize, isize)) -> usize {
    let line = usize::try_from(line - 1).unwrap_or(0);
    let column = usize::try_from(column - 1).unwrap_or(0);
    let mut start = 0;
    for (number, content) in text.split_inclusive('\n').enumerate() {
        if number == line {
            return start + content.char_indices().nth(column).map_or(content.len(), |(byte, _)| byte);
        }
        start += content.len();
    }
    text.len()
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
        let found: Vec<(&str, usize, bool)> =
            names(text).into_iter().map(|n| (n.text, n.offset, n.position == NamePosition::First)).collect();
        assert_eq!(
            found,
            [
                ("a", 0, true),
                ("b", 3, false),
                ("size", 15, true),
                ("f", 36, true),
                ("g", 40, false),
                ("bytes", 49, true)
            ]
        );
        assert_eq!(dashed("x.queue-url-2 - 1", 2), Some("queue-url-2"));
        assert_eq!(dashed("x.queue - url", 2), None);
    }
}
