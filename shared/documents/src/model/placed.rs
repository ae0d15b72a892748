//! Values with their place, and mappings in the order of the document.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::source::LineColumn;

/// A value with its place. The reader of documents supplies the place.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct At<T> {
    pub at: LineColumn,
    pub value: T,
}

/// A value with the key under which it stands. The reader of documents supplies the key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Named<T> {
    pub name: At<String>,
    pub inner: T,
}

impl<T> Deref for Named<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Named<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// The entries of a mapping in the order of the document.
#[derive(Clone, Debug, PartialEq)]
pub struct Entries<T>(pub Vec<Named<T>>);

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for Entries<T> {
    type Target = Vec<Named<T>>;

    fn deref(&self) -> &Vec<Named<T>> {
        &self.0
    }
}

impl<T> DerefMut for Entries<T> {
    fn deref_mut(&mut self) -> &mut Vec<Named<T>> {
        &mut self.0
    }
}

impl<'a, T> IntoIterator for &'a Entries<T> {
    type Item = &'a Named<T>;
    type IntoIter = std::slice::Iter<'a, Named<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// The maximum number of entries of a mapping.
const MAX_ENTRIES: usize = 10_000;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntriesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<T>, A::Error> {
                let count = map.size_hint().unwrap_or(0);
                if count > MAX_ENTRIES {
                    return Err(A::Error::custom(format_args!("has {count} entries; the limit is {MAX_ENTRIES}")));
                }
                // The largest entries have 2 KiB: a vector that grows would have up to twice as many of them.
                let mut entries = Vec::with_capacity(count);
                while map.next_key::<IgnoredAny>()?.is_some() {
                    // The reader has reported an entry that is wrong; the others are still read.
                    entries.extend(map.next_value());
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}
