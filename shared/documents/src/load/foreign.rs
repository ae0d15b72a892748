//! Names documents of other programs that Ebb does not read, and says what Ebb has instead.

use crate::load::yaml::{YamlNode, YamlValue};
use crate::model::LineColumn;

/// The kinds, one per line: keys, name and help. The first line of the file describes the keys.
const KINDS: &str = include_str!("foreign_kinds.txt");

/// Returns the name of the kind of a document, a help, and the position of a value that only this kind has. Returns `None`
/// for a document of Ebb and of an unknown kind.
pub(super) fn kind(document: &YamlNode) -> Option<(&'static str, &'static str, LineColumn)> {
    let kind = document.get("apiVersion").or_else(|| document.find("kind"));
    if kind.is_some_and(|kind| !is(kind, |text| text.starts_with("signadot.com/"))) {
        return None;
    }
    KINDS.lines().find_map(|line| {
        let (keys, rest) = line.split_once(" | ")?;
        let (noun, help) = rest.split_once(" | ")?;
        let at = keys.split(", ").find_map(|all| {
            let nodes: Option<Vec<&YamlNode>> = all.split(' ').map(|path| find(document, path)).collect();
            Some(nodes?.first()?.at)
        })?;
        Some((noun, help, at))
    })
}

fn find<'n>(document: &'n YamlNode, path: &str) -> Option<&'n YamlNode> {
    let (path, text) = path.split_once('=').map_or((path, None), |(path, text)| (path, Some(text)));
    let found = path.split('.').try_fold(document, |node, key| match &node.value {
        YamlValue::List(items) if key == "[]" => items.first(),
        _ => node.find(key),
    })?;
    text.is_none_or(|text| is(found, |value| value == text)).then_some(found)
}

fn is(node: &YamlNode, wanted: impl Fn(&str) -> bool) -> bool {
    matches!(&node.value, YamlValue::String(text) if wanted(text))
}
