//! The references in texts of InfraKit's collections.
//!
//! A reference is a value and a dependency. `@depend('NAME/PATH')@` and ``{{ depend `NAME/PATH` }}`` are a part of the
//! description of the resource NAME. `{{ resource "NAME" }}` and `{{ .Resources.NAME.ID }}` are its ID. Any other
//! template action is an error, except ``{{ `TEXT` }}``, which is TEXT.

pub(super) enum CollectionPart<'t> {
    Literal(&'t str),
    /// A reference with its byte offset.
    Reference(usize, CollectionReference),
}

pub(super) struct CollectionReference {
    pub(super) resource: String,
    /// The path without the name, such as `Properties/gateway`. It is the name of the output.
    pub(super) path: String,
    /// The path as an expression over `instance`.
    pub(super) expression: String,
}

pub(super) const RENDER: &str = "render the document first with `infrakit template`";
const DEPEND: &str = "@depend('";
/// The parts of the description of an instance.
const FIELDS: [&str; 4] = ["ID", "LogicalID", "Tags", "Properties"];

/// An error of a text, with its help.
pub(super) type CollectionTextIssue = (String, &'static str);
pub(super) type Parsed<T> = Result<T, CollectionTextIssue>;

/// Splits a text into literals and references. An error has the byte offset of the first part that is neither.
pub(super) fn parts(text: &str) -> Result<Vec<CollectionPart<'_>>, (usize, CollectionTextIssue)> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let begins =
            |(byte, _): &(usize, char)| ["{{", DEPEND, r"\{\{"].iter().any(|mark| text[at + byte..].starts_with(mark));
        let start = text[at..].char_indices().find(begins).map_or(text.len(), |(byte, _)| at + byte);
        if start > at {
            parts.push(CollectionPart::Literal(&text[at..start]));
        }
        if start == text.len() {
            break;
        }
        let (part, length) = marked(&text[start..], start).map_err(|issue| (start, issue))?;
        parts.push(part);
        at = start + length;
    }
    Ok(parts)
}

/// Returns the part at the start of a text, which begins with a mark, and its length.
fn marked(text: &str, offset: usize) -> Parsed<(CollectionPart<'_>, usize)> {
    if let Some(path) = text.strip_prefix(DEPEND) {
        let end = path.find("')@").ok_or_else(|| not_closed(DEPEND, "close it with `')@`"))?;
        let reference = depend(&path[..end])?;
        return Ok((CollectionPart::Reference(offset, reference), DEPEND.len() + end + 3));
    }
    let Some(action) = text.strip_prefix("{{") else {
        let help = "InfraKit renders it when it provisions; write the value, or a reference to another resource";
        return Err((r"`\{\{` is not rendered here".to_owned(), help));
    };
    let not_closed = || not_closed("{{", "close it with `}}`");
    let inner = action.trim_start();
    if let Some((literal, after)) = quoted(inner) {
        let after = after.trim_start().strip_prefix("}}").ok_or_else(not_closed)?;
        return Ok((CollectionPart::Literal(literal), text.len() - after.len()));
    }
    let end = action.find("}}").ok_or_else(not_closed)?;
    let inner = action[..end].trim();
    let called = |function: &str| {
        let (argument, after) = quoted(inner.strip_prefix(function)?.trim_start())?;
        after.is_empty().then_some(argument)
    };
    let field = || inner.strip_prefix(".Resources.")?.strip_suffix(".ID").filter(|name| !name.is_empty());
    let reference = if let Some(name) = called("resource").or_else(field) {
        let [resource, path, expression] = [name, "ID", "instance.ID"].map(str::to_owned);
        CollectionReference { resource, path, expression }
    } else if let Some(path) = called("depend") {
        depend(path)?
    } else {
        let message =
            format!("`{{{{ {inner} }}}}` is not a reference to a resource, and Ebb runs no other template function");
        return Err((message, RENDER));
    };
    Ok((CollectionPart::Reference(offset, reference), 2 + end + 2))
}

fn not_closed(mark: &str, help: &'static str) -> (String, &'static str) {
    (format!("`{mark}` is never closed"), help)
}

/// Returns the content of the quoted text at the start, and the rest.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| ['"', '`'].contains(c))?;
    text[1..].split_once(quote)
}

/// Parses the path of a `depend`: the name of a resource and the keys below, as in `az1-net1/Properties/subnets[0]/id`.
pub(super) fn depend(text: &str) -> Parsed<CollectionReference> {
    const HELP: &str = "write a resource and a part of it: `NAME/ID`, `NAME/LogicalID`, `NAME/Tags/KEY` or \
                        `NAME/Properties/KEY/…`; an item of a list is `[0]`";
    let wrong = || (format!("`{text}` is not the path of a value"), HELP);
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || "-_:./[]".contains(c)) {
        return Err(wrong());
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let (first, below) = parts.split_first().ok_or_else(wrong)?;
    // InfraKit distinguishes what exists after the provisioning. Here, outputs exist only then.
    let (resource, later) = first.strip_prefix("post-provision:").map_or((*first, false), |name| (name, true));
    let mut expression = "instance".to_owned();
    for (number, part) in below.iter().enumerate() {
        let (key, mut items) = part.split_at(part.find('[').unwrap_or(part.len()));
        match (number, FIELDS.contains(&key)) {
            (0, true) => expression += &format!(".{key}"),
            (0, false) if !later => return Err(wrong()),
            (0, false) => expression += &format!(".Properties[\"{key}\"]"),
            _ if key.is_empty() => {}
            _ => expression += &format!("[\"{key}\"]"),
        }
        while let Some((item, after)) = items.strip_prefix('[').and_then(|items| items.split_once(']')) {
            let item: u32 = item.parse().map_err(|_| wrong())?;
            expression += &format!("[{item}]");
            items = after;
        }
        if !items.is_empty() {
            return Err(wrong());
        }
    }
    if below.is_empty() {
        return Err(wrong());
    }
    Ok(CollectionReference { resource: resource.to_owned(), path: below.join("/"), expression })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    fn shown(text: &str) -> String {
        match parts(text) {
            Ok(parts) => parts
                .iter()
                .map(|part| match part {
                    CollectionPart::Literal(text) => format!("[{text}]"),
                    CollectionPart::Reference(at, CollectionReference { resource, path, expression }) => {
                        format!("<{at} {resource} {path} {expression}>")
                    }
                })
                .collect(),
            Err((offset, (message, _))) => format!("at {offset}: {message}"),
        }
    }

    #[test]
    fn references_are_found_in_texts() {
        for (text, expected) in rows::<(String, String)>("references_are_found_in_texts") {
            assert_eq!(shown(&text), expected, "{text}");
        }
    }
}
