//! Keys of items. Free text is percent-encoded where it could be mistaken for a separator, so that keys can be read
//! back and sort by kind and name.

use ebb_protocol::engine::{Attempt, Shard, Timestamp, Unit};
use ebb_protocol::id::{RunId, short_digest};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::ops::DueItem;

/// Everything that sorts at or before the separator `#`, and the escape itself.
const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b'!').add(b'"').add(b'#').add(b'%');

/// Sort key of the one item, or the first item, of a partition.
pub(crate) const HEAD: &str = "h";
/// Sort key of the item of a run that says that the bucket may have outputs of it.
pub(crate) const OUTPUTS: &str = "b";
/// Index shards of what is due.
pub(crate) const DUE_SHARDS: u8 = 16;

/// Bytes of the longest partition key and of the longest sort key that DynamoDB has.
const PARTITION_BYTES: usize = 2048;
const SORT_BYTES: usize = 1024;

/// Returns whether an item may have this key. DynamoDB refuses to look for another one.
pub(crate) fn can_be(partition: &str, sort: &str) -> bool {
    partition.len() <= PARTITION_BYTES && sort.len() <= SORT_BYTES
}

fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

fn decode(text: &str) -> Option<String> {
    Some(percent_decode_str(text).decode_utf8().ok()?.into_owned())
}

pub(crate) fn run(run: &RunId) -> String {
    format!("r#{run}")
}

pub(crate) fn target(kind: &str, name: &str) -> String {
    format!("t#{}#{}", encode(kind), encode(name))
}

/// Least and greatest partition key of the targets of `kind`, or of all, that come after `after`.
pub(crate) fn targets(kind: Option<&str>, after: Option<(&str, &str)>) -> (String, String) {
    let prefix = kind.map_or_else(|| "t#".to_owned(), |kind| format!("t#{}#", encode(kind)));
    // `$` is the character after `#`, and `!` sorts before everything that a longer name can go on with.
    let greatest = format!("{}$", &prefix[..prefix.len() - 1]);
    let least = after.map_or_else(|| prefix.clone(), |(kind, name)| format!("{}!", target(kind, name)));
    (least.max(prefix), greatest)
}

pub(crate) fn tombstone(uid: &str) -> String {
    format!("x#{}", encode(uid))
}

pub(crate) fn plan(life: &str) -> String {
    format!("p#{life}")
}

pub(crate) fn plugin(name: &str) -> String {
    format!("v#{}", encode(name))
}

/// The partition of the removal times of the stored data of instances.
pub(crate) const EXPIRIES: &str = "retention#";

/// Returns the sort key of the removal time of an instance. Sort keys are in the order of their times.
pub(crate) fn expiry(due: Timestamp, instance: &str) -> String {
    format!("{}#{instance}", expires(due))
}

/// Returns what the sort keys of the removal times at `due` begin with.
pub(crate) fn expires(due: Timestamp) -> String {
    format!("{:020}", due.0)
}

pub(crate) fn batch_queue(cluster: &str) -> String {
    format!("batch#{}", encode(cluster))
}

/// The partition of the item with the next orphan scan and the outage of each cluster.
pub(crate) const CLUSTERS: &str = "clusters";

/// What is written to see whether that can be done.
pub(crate) const CHECK: &str = "check";

/// Returns the attribute of the item [`CLUSTERS`] with the time of a cluster's next orphan scan.
pub(crate) fn scan_attribute(cluster: &str) -> String {
    format!("scan#{cluster}")
}

pub(crate) fn scan_cluster(attribute: &str) -> Option<&str> {
    attribute.strip_prefix("scan#")
}

/// Returns the attributes of the item [`CLUSTERS`] with the start and the reason of a cluster's outage.
pub(crate) fn outage_attributes(cluster: &str) -> (String, String) {
    (format!("since#{cluster}"), format!("reason#{cluster}"))
}

pub(crate) fn outage_cluster(attribute: &str) -> Option<&str> {
    attribute.strip_prefix("since#")
}

pub(crate) fn shard(shard: Shard) -> String {
    if shard == Shard::ROOT { HEAD.to_owned() } else { format!("h#{:04}", shard.0) }
}

pub(crate) fn shard_of(sort: &str) -> Option<Shard> {
    match sort.strip_prefix(HEAD)? {
        "" => Some(Shard::ROOT),
        rest => Some(Shard(rest.strip_prefix('#')?.parse().ok()?)),
    }
}

pub(crate) fn record(unit: Unit, attempt: Attempt) -> String {
    format!("u#{:05}#{:03}", unit.0, attempt.0)
}

/// Sort key of the tries of a head item whose acceptance was noted together at a time.
pub(crate) fn accepted(shard: Shard, at: Timestamp) -> String {
    format!("c#{:04}#{}", shard.0, at.0)
}

/// Least and greatest sort key of the accepted tries of a head item.
pub(crate) fn all_accepted(shard: Shard) -> (String, String) {
    (format!("c#{:04}#", shard.0), format!("c#{:04}$", shard.0))
}

pub(crate) fn accepted_at(sort: &str) -> Option<Timestamp> {
    sort.strip_prefix("c#")?.split_once('#')?.1.parse().ok().map(Timestamp)
}

pub(crate) fn second_result(unit: Unit, attempt: Attempt, digest: &str) -> String {
    format!("{}#late#{}", record(unit, attempt), second_digest(digest))
}

/// Returns the name of a second result among those of its try.
pub(crate) fn second_digest(digest: &str) -> String {
    short_digest(&[digest], 32)
}

/// Least and greatest sort key of the records of the units from `first` to `last`.
pub(crate) fn records(first: Unit, last: Unit) -> (String, String) {
    (format!("u#{:05}#", first.0), format!("u#{:05}$", last.0))
}

/// Which kind of record item a sort key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordPart {
    Main,
    Second,
}

pub(crate) fn record_of(sort: &str) -> Option<(Unit, Attempt, RecordPart)> {
    let mut parts = sort.strip_prefix("u#")?.splitn(3, '#');
    let unit = Unit(parts.next()?.parse().ok()?);
    let attempt = Attempt(parts.next()?.parse().ok()?);
    Some((unit, attempt, parts.next().map_or(RecordPart::Main, |_| RecordPart::Second)))
}

pub(crate) fn due_of(partition: &str) -> Option<DueItem> {
    if let Some(run) = partition.strip_prefix("r#") {
        return Some(DueItem::Run(run.parse().ok()?));
    }
    let (kind, name) = partition.strip_prefix("t#")?.split_once('#')?;
    Some(DueItem::Target(decode(kind)?, decode(name)?))
}

/// Returns the time and the instance of the sort key of a removal time.
pub(crate) fn expiry_of(sort_key: &str) -> Option<(Timestamp, &str)> {
    let (due, instance) = sort_key.split_once('#')?;
    Some((Timestamp(due.parse().ok()?), instance))
}

pub(crate) fn plugin_of(partition: &str) -> Option<String> {
    decode(partition.strip_prefix("v#")?)
}

/// Which index shard an item lies in, by its partition key.
pub(crate) fn due_shard(partition: &str) -> u8 {
    short_digest(&[partition], 1).bytes().next().map_or(0, |byte| match byte {
        b'a'..=b'z' => (byte - b'a') % DUE_SHARDS,
        _ => (byte - b'2' + 26) % DUE_SHARDS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_back() {
        for (kind, name) in [("sandbox", "a"), ("route group", "x#y%z"), ("ä", "!\"#$")] {
            assert_eq!(due_of(&target(kind, name)), Some(DueItem::Target(kind.into(), name.into())));
        }
        assert_eq!(due_of("p#x"), None);
        assert_eq!(plugin_of(&plugin("acme/db")), Some("acme/db".into()));
        assert_eq!(shard_of("h"), Some(Shard::ROOT));
        assert_eq!(shard_of(&shard(Shard(12))), Some(Shard(12)));
        assert_eq!(shard_of("u#1"), None);
        assert_eq!(accepted_at(&accepted(Shard(12), Timestamp(7))), Some(Timestamp(7)));
        assert_eq!(record_of("u#00007#002"), Some((Unit(7), Attempt(2), RecordPart::Main)));
        assert_eq!(record_of("u#00007#1002#late#ab"), Some((Unit(7), Attempt(1002), RecordPart::Second)));
    }

    #[test]
    fn ranges_hold_their_keys_and_no_others() {
        let (least, greatest) = targets(Some("a"), Some(("a", "b")));
        let within = |key: &str| least.as_str() <= key && key <= greatest.as_str();
        assert!(!within(&target("a", "b")) && within(&target("a", "b-c")) && within(&target("a", "bé")));
        assert!(!within(&target("a", "a")) && !within(&target("a-b", "c")) && !within(&target("b", "c")));
        let (least, greatest) = records(Unit(1), Unit(2));
        let within = |key: &str| least.as_str() <= key && key <= greatest.as_str();
        assert!(within(&record(Unit(1), Attempt(1))) && within(&record(Unit(2), Attempt(1000))));
        assert!(within(&second_result(Unit(2), Attempt(999), "d")) && !within(&record(Unit(3), Attempt(1))));
    }

    #[test]
    fn every_index_shard_is_used() {
        let used: std::collections::BTreeSet<u8> = (0..400).map(|n| due_shard(&format!("r#{n}"))).collect();
        assert_eq!(used, (0..DUE_SHARDS).collect());
        // By the place of a digest's first letter in its alphabet.
        for partition in (0..400).map(|n| format!("r#{n}")) {
            let place = "abcdefghijklmnopqrstuvwxyz234567".find(&short_digest(&[&partition], 1)).unwrap();
            assert_eq!(usize::from(due_shard(&partition)), place % usize::from(DUE_SHARDS), "{partition}");
        }
    }
}
