//! The fields of a `PodTemplateSpec`, from the Go types of the Kubernetes API (printed by `fields/main.go`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The type of the root.
pub(crate) const ROOT: &str = "PodTemplateSpec";

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FieldType {
    Text,
    Bool,
    Int,
    /// `100m`, or a number.
    Quantity,
    IntOrText,
    Any,
    /// A mapping with the fields of a type.
    Fields(&'static str),
    List(Box<FieldType>),
    Map(Box<FieldType>),
}

#[derive(Debug)]
pub(crate) struct FieldSchema {
    pub(crate) field_type: FieldType,
    /// The merge key of a list's items, empty for texts. `None` for a list that is replaced.
    pub(crate) key: Option<&'static str>,
}

type TypeTable = BTreeMap<&'static str, BTreeMap<&'static str, FieldSchema>>;

static TYPES: LazyLock<TypeTable> = LazyLock::new(|| types(include_str!("fields.txt")));

pub(crate) fn field(owner: &str, name: &str) -> Option<&'static FieldSchema> {
    TYPES.get(owner)?.get(name)
}

pub(crate) fn names(owner: &str) -> impl Iterator<Item = &'static str> {
    TYPES.get(owner).into_iter().flat_map(|fields| fields.keys().copied())
}

/// Skips malformed lines. A test checks that there are none.
fn types(text: &'static str) -> TypeTable {
    let mut types = TypeTable::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let Some((owner, name)) = words.next().and_then(|word| word.split_once('.')) else { continue };
        let Some(shape) = words.next().map(parse_type) else { continue };
        let key = (words.next() == Some("merge")).then(|| words.next().unwrap_or_default());
        types.entry(owner).or_default().insert(name, FieldSchema { field_type: shape, key });
    }
    types
}

fn parse_type(text: &'static str) -> FieldType {
    if let Some(item) = text.strip_prefix("[]") {
        return FieldType::List(Box::new(parse_type(item)));
    }
    if let Some(value) = text.strip_prefix("{}") {
        return FieldType::Map(Box::new(parse_type(value)));
    }
    match text {
        "string" => FieldType::Text,
        "bool" => FieldType::Bool,
        "int" => FieldType::Int,
        "quantity" => FieldType::Quantity,
        "intOrString" => FieldType::IntOrText,
        "any" => FieldType::Any,
        name => FieldType::Fields(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type of a field exists, and every merge key is a field of its items.
    #[test]
    fn the_table_is_whole() {
        let lines = include_str!("fields.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(TYPES.values().map(BTreeMap::len).sum::<usize>(), lines);
        for (owner, fields) in TYPES.iter() {
            for (name, field) in fields {
                let mut inner = &field.field_type;
                while let FieldType::List(next) | FieldType::Map(next) = inner {
                    inner = next;
                }
                let FieldType::Fields(of) = inner else { continue };
                assert!(TYPES.contains_key(of), "{owner}.{name}: {of}");
                if let Some(key) = field.key {
                    assert!(TYPES[of].contains_key(key), "{owner}.{name} by {key}");
                }
            }
        }
        assert_eq!(field("Container", "volumeMounts").and_then(|field| field.key), Some("mountPath"));
        assert_eq!(field("PodSpec", "tolerations").and_then(|field| field.key), None);
    }
}
