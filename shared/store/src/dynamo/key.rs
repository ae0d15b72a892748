//! Keys of items. Free text is percent-encoded, so that keys can be parsed and sort by kind and name.

use ebb_protocol::engine::{Attempt, Timestamp, Unit};
use ebb_protocol::id::{RunId, TargetKey, short_digest};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::{ClusterFaultKind, DesiredKey, DueItem, Item, NamedKind, TableSpec};

/// Characters that sort at or before the separator `#`, and the escape character.
const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b'!').add(b'"').add(b'#').add(b'%');

/// The sort key of the first item of a partition.
pub(crate) const HEAD: &str = "h";
/// The sort key of the mark that the bucket may contain outputs of a run.
pub(crate) const OUTPUTS: &str = "b";
pub(crate) const DUE_SHARDS: u8 = 16;

/// DynamoDB limits of a partition key and a sort key.
const PARTITION_BYTES: usize = 2048;
const SORT_BYTES: usize = 1024;

/// Returns true if DynamoDB accepts the key. It rejects even a read with any other key.
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

pub(crate) fn target(target: TargetKey<'_>) -> String {
    format!("t#{}#{}", encode(target.kind), encode(target.name))
}

pub(crate) fn history(target: TargetKey<'_>) -> String {
    format!("y#{}#{}", encode(target.kind), encode(target.name))
}

/// Returns the range of partition keys of targets of a kind, or of all kinds, after the target `after`.
pub(crate) fn targets(kind: Option<&str>, after: Option<TargetKey<'_>>) -> (String, String) {
    let prefix = kind.map_or_else(|| "t#".to_owned(), |kind| format!("t#{}#", encode(kind)));
    // `$` is the character after `#`, and `!` sorts before every continuation of a longer name.
    let greatest = format!("{}$", &prefix[..prefix.len() - 1]);
    let least = after.map_or_else(|| prefix.clone(), |after| format!("{}!", target(after)));
    (least.max(prefix), greatest)
}

pub(crate) fn tombstone(instance: &str) -> String {
    format!("x#{instance}")
}

pub(crate) fn plan(instance: &str) -> String {
    format!("p#{instance}")
}

/// Defines the partition keys of items with one name.
macro_rules! named_keys {
    ($($item:ident: $key:literal;)*) => {$(
        pub(crate) fn $item(name: &str) -> String {
            format!($key, encode(name))
        }
    )*};
}

named_keys! {
    plugin: "v#{}";
    rejections: "j#{}";
    watch: "e#{}";
    token: "k#{}";
    session: "w#{}";
    access_token: "o#{}";
    batch_queue: "batch#{}";
}

/// Returns the partition key of a document. That of the beginning of a name is the beginning of the key.
pub(crate) fn document(kind: NamedKind, name: &str) -> String {
    let name = encode(name);
    match kind {
        NamedKind::Source => format!("s#{name}"),
        NamedKind::Connection => format!("c#{name}"),
        NamedKind::Subscription => format!("n#{name}"),
        NamedKind::Undelivered => format!("f#{name}"),
    }
}

/// Returns the partition key of the slots of a plugin, connection, source or owner, by kind and name.
pub(crate) fn slots((kind, name): (&str, &str)) -> String {
    format!("slots#{kind}#{}", encode(name))
}

pub(crate) fn desired(DesiredKey { source, kind, name, uid }: &DesiredKey) -> String {
    let target = format!("d#{}#{}#{}", encode(source), encode(kind), encode(name));
    uid.as_ref().map_or(target.clone(), |uid| format!("{target}#{}", encode(uid)))
}

pub(crate) const EXPIRIES: &str = "retention#";

/// Returns the sort key of a removal time. Sort keys are ordered by time.
pub(crate) fn expiry(due: Timestamp, instance: &str) -> String {
    format!("{}#{instance}", expires(due))
}

/// Returns the prefix of sort keys of removal times at `due`.
pub(crate) fn expires(due: Timestamp) -> String {
    format!("{:020}", due.0)
}

/// The partition of the item with orphan scans, outages and denied polls, and of reported policies.
pub(crate) const CLUSTERS: &str = "clusters";

pub(crate) const REGISTERED: &str = "registered";
/// A range of sort keys that contains the name of each cluster, which is a DNS label.
pub(crate) const CLUSTER_NAMES: (&str, &str) = ("0", "{");

pub(crate) const CHANGES: &str = "changes";

pub(crate) const CHECK: &str = "check";

pub(crate) fn scan_attribute(cluster: &str) -> String {
    format!("scan#{cluster}")
}

/// Returns all attributes of a cluster in the item of all clusters.
pub(crate) fn cluster_attributes(cluster: &str) -> [String; 6] {
    let [(since, reason), (denied, denial)] =
        [ClusterFaultKind::Outage, ClusterFaultKind::Denial].map(|kind| fault_attributes(kind, cluster));
    [scan_attribute(cluster), since, reason, denied, denial, policy(cluster)]
}

pub(crate) fn attribute_cluster(attribute: &str) -> Option<&str> {
    let (kind, cluster) = attribute.split_once('#')?;
    ["scan", "since", "reason", "denied", "denial", "policy"].contains(&kind).then_some(cluster)
}

/// Returns the attributes of the time and the reason of a fault of a cluster.
pub(crate) fn fault_attributes(kind: ClusterFaultKind, cluster: &str) -> (String, String) {
    match kind {
        ClusterFaultKind::Outage => (format!("since#{cluster}"), format!("reason#{cluster}")),
        ClusterFaultKind::Denial => (format!("denied#{cluster}"), format!("denial#{cluster}")),
    }
}

/// Returns the sort key of the policy of a cluster, in the partition [`CLUSTERS`]. It is also the attribute that shows that
/// the policy exists.
pub(crate) fn policy(cluster: &str) -> String {
    format!("policy#{cluster}")
}

pub(crate) fn record(unit: Unit, attempt: Attempt) -> String {
    format!("u#{:05}#{:03}", unit.0, attempt.0)
}

/// Returns the sort key of acceptances that were recorded together.
pub(crate) fn accepted(at: Timestamp) -> String {
    format!("c#{}", at.0)
}

/// The range of sort keys of acceptances.
pub(crate) const ACCEPTED: (&str, &str) = ("c#", "c$");

pub(crate) fn accepted_at(sort: &str) -> Option<Timestamp> {
    sort.strip_prefix("c#")?.parse().ok().map(Timestamp)
}

pub(crate) fn second_result(unit: Unit, attempt: Attempt, digest: &str) -> String {
    format!("{}#late#{}", record(unit, attempt), second_digest(digest))
}

pub(crate) fn second_digest(digest: &str) -> String {
    short_digest(&[digest], 32)
}

/// Returns the range of sort keys of records of the units from `first` to `last`.
pub(crate) fn records(first: Unit, last: Unit) -> (String, String) {
    (format!("u#{:05}#", first.0), format!("u#{:05}$", last.0))
}

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
    let (item, names) = partition.split_once('#')?;
    let names: Vec<String> = names.split('#').map(decode).collect::<Option<_>>()?;
    match (item, names.as_slice()) {
        ("t", [kind, name]) => Some(DueItem::Target(kind.clone(), name.clone())),
        ("e", [source]) => Some(DueItem::Source(source.clone())),
        ("d", [source, kind, name, uid @ ..]) if uid.len() < 2 => {
            let (source, kind, name) = (source.clone(), kind.clone(), name.clone());
            Some(DueItem::Desired(DesiredKey { source, kind, name, uid: uid.first().cloned() }))
        }
        _ => None,
    }
}

impl DueItem {
    /// Returns what an entry of the due index names.
    pub fn of(entry: &Item) -> Option<Self> {
        due_of(entry.get(TableSpec::PARTITION)?.as_s().ok()?)
    }
}

/// Returns kind and name of the target of a partition of history.
#[cfg(feature = "suite")]
pub(crate) fn history_of(partition: &str) -> Option<(String, String)> {
    let (kind, name) = partition.strip_prefix("y#")?.split_once('#')?;
    decode(kind).zip(decode(name))
}

pub(crate) fn expiry_of(sort_key: &str) -> Option<(Timestamp, &str)> {
    let (due, instance) = sort_key.split_once('#')?;
    Some((Timestamp(due.parse().ok()?), instance))
}

pub(crate) fn plugin_of(partition: &str) -> Option<String> {
    decode(partition.strip_prefix("v#")?)
}

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
    fn keys_are_parsed() {
        for (kind, name) in [("sandbox", "a"), ("route group", "x#y%z"), ("ä", "!\"#$")] {
            assert_eq!(due_of(&target(TargetKey::new(kind, name))), Some(DueItem::Target(kind.into(), name.into())));
            for uid in [None, Some("u#1".to_owned())] {
                let key = DesiredKey { source: "s#1".into(), kind: kind.into(), name: name.into(), uid };
                assert_eq!(due_of(&desired(&key)), Some(DueItem::Desired(key)));
            }
        }
        assert_eq!(due_of(&watch("s#1")), Some(DueItem::Source("s#1".into())));
        assert_eq!(due_of("p#x"), None);
        assert_eq!(due_of("d#s#k#n#u#x"), None);
        assert_eq!(plugin_of(&plugin("acme/db")), Some("acme/db".into()));
        assert_eq!(accepted_at(&accepted(Timestamp(7))), Some(Timestamp(7)));
        assert_eq!(record_of("u#00007#002"), Some((Unit(7), Attempt(2), RecordPart::Main)));
        assert_eq!(record_of("u#00007#1002#late#ab"), Some((Unit(7), Attempt(1002), RecordPart::Second)));
    }

    #[test]
    fn every_index_shard_is_used() {
        let used: std::collections::BTreeSet<u8> = (0..400).map(|n| due_shard(&format!("r#{n}"))).collect();
        assert_eq!(used, (0..DUE_SHARDS).collect());
        // The position of the first letter of a digest in the alphabet.
        for partition in (0..400).map(|n| format!("r#{n}")) {
            let position = "abcdefghijklmnopqrstuvwxyz234567".find(&short_digest(&[&partition], 1)).unwrap();
            assert_eq!(usize::from(due_shard(&partition)), position % usize::from(DUE_SHARDS), "{partition}");
        }
    }
}
