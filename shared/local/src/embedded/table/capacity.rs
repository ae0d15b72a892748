//! The units that DynamoDB would consume, by its rules: 4 KiB of a strongly consistent read, half of it for another
//! one, 1 KiB of a write by the larger of both images, and one unit for each index entry that is created or removed.

use ebb_store::item_table::ItemKey;
use ebb_store::{Item, item_size};

pub(super) fn read(bytes: usize, is_consistent: bool) -> f64 {
    let units = bytes.div_ceil(4 << 10).max(1) as f64;
    if is_consistent { units } else { units / 2.0 }
}

/// Returns the units of the item and those of its index entries.
pub(super) fn write(before: Option<&Item>, after: Option<&Item>) -> (f64, f64) {
    let bytes = [before, after].into_iter().flatten().map(item_size).max().unwrap_or(0);
    let entries = [&["g", "due"][..], &["l"]].map(|key| {
        let entry = |item: Option<&Item>| {
            let values = key.iter().map(|name| item?.get(*name).cloned()).collect::<Option<Vec<_>>>()?;
            Some((values, item.and_then(ItemKey::of)))
        };
        match (entry(before), entry(after)) {
            (old, new) if old == new => 0.0,
            (Some(_), Some(_)) => 2.0,
            _ => 1.0,
        }
    });
    (bytes.div_ceil(1 << 10).max(1) as f64, entries.iter().sum())
}
