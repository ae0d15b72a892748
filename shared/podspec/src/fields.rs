//! What fields a `PodTemplateSpec` has, from the Go types of the Kubernetes API (`fields/main.go` prints them).

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The type that everything begins with.
pub(crate) const ROOT: &str = "PodTemplateSpec";

/// How a value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Bool,
    Int,
    /// `100m`, or a number.
    Quantity,
    IntOrText,
    Any,
    /// A mapping with the fields of a type.
    Fields(&'static str),
    List(Box<Shape>),
    Map(Box<Shape>),
}

/// A field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) shape: Shape,
    /// Of a list that is merged: what its items are known by, empty for texts.
    pub(crate) key: Option<&'static str>,
}

type Types = BTreeMap<&'static str, BTreeMap<&'static str, Field>>;

static TYPES: LazyLock<Types> = LazyLock::new(|| types(include_str!("fields.txt")));

/// The field of a type.
pub(crate) fn field(owner: &str, name: &str) -> Option<&'static Field> {
    TYPES.get(owner)?.get(name)
}

/// The names of the fields of a type.
pub(crate) fn names(owner: &str) -> impl Iterator<Item = &'static str> {
    TYPES.get(owner).into_iter().flat_map(|fields| fields.keys().copied())
}

/// Lines that are none are left out; a test holds that there is no such line.
fn types(text: &'static str) -> Types {
    let mut types = Types::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let Some((owner, name)) = words.next().and_then(|word| word.split_once('.')) else { continue };
        let Some(shape) = words.next().map(shape) else { continue };
        let key = (words.next() == Some("merge")).then(|| words.next().unwrap_or_default());
        types.entry(owner).or_default().insert(name, Field { shape, key });
    }
    types
}

fn shape(text: &'static str) -> Shape {
    if let Some(item) = text.strip_prefix("[]") {
        return Shape::List(Box::new(shape(item)));
    }
    if let Some(value) = text.strip_prefix("{}") {
        return Shape::Map(Box::new(shape(value)));
    }
    match text {
        "string" => Shape::Text,
        "bool" => Shape::Bool,
        "int" => Shape::Int,
        "quantity" => Shape::Quantity,
        "intOrString" => Shape::IntOrText,
        "any" => Shape::Any,
        name => Shape::Fields(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type that a field has is there, and every merged list of mappings is merged by a field of its items.
    #[test]
    fn the_table_is_whole() {
        let lines = include_str!("fields.txt").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(TYPES.values().map(BTreeMap::len).sum::<usize>(), lines);
        for (owner, fields) in TYPES.iter() {
            for (name, field) in fields {
                let mut inner = &field.shape;
                while let Shape::List(next) | Shape::Map(next) = inner {
                    inner = next;
                }
                let Shape::Fields(of) = inner else { continue };
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
