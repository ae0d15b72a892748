//! Names documents of other programs that Ebb does not read, and says what Ebb has instead.

use ebb_kube::podspec::with_article;

use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::LineColumn;

/// The kinds, one per line: keys, name and help. The first line of the file describes the keys.
const KINDS: &str = include_str!("foreign_kinds.txt");

/// Returns the name of the kind of a document, a help, and the position of a value that only this kind has. Returns `None`
/// for a document of Ebb and of an unknown kind. One with `kind` alone is known by its value.
pub(super) fn kind(document: &YamlNode) -> Option<(String, &'static str, LineColumn)> {
    let (version, kind) = (document.get("apiVersion"), document.find("kind"));
    let is_ours = version.is_some_and(|version| version.text().is_none_or(|text| text.starts_with("ebb.dev/")));
    if is_ours {
        return None;
    }
    let by_kind = version.is_none() && kind.is_some();
    KINDS.lines().filter(|line| !by_kind || line.starts_with("kind=")).find_map(|line| {
        let (keys, rest) = line.split_once(" | ")?;
        let (noun, help) = rest.split_once(" | ")?;
        let at = keys.split(", ").find_map(|all| {
            let nodes: Option<Vec<&YamlNode>> = all.split(' ').map(|path| find(document, path)).collect();
            Some(nodes?.first()?.at)
        })?;
        let kind = kind.and_then(YamlNode::text).unwrap_or_default();
        Some((noun.replace("{kind}", &with_article(kind)), help, at))
    })
}

/// Returns the node at a path, or for a path after `!` that leads nowhere, the document.
fn find<'n>(document: &'n YamlNode, path: &str) -> Option<&'n YamlNode> {
    if let Some(path) = path.strip_prefix('!') {
        return find(document, path).is_none().then_some(document);
    }
    let (path, text) = path.split_once('=').map_or((path, None), |(path, text)| (path, Some(text)));
    let found = path.split('.').try_fold(document, |node, key| match &node.value {
        YamlValue::List(items) if key == "[]" => items.first(),
        _ => node.find(key),
    })?;
    let value = found.text();
    let begins = |start: &str| value.is_some_and(|value| value.starts_with(start));
    text.is_none_or(|text| text.strip_suffix('*').map_or(value == Some(text), begins)).then_some(found)
}
