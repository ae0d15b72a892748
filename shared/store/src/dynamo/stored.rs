//! What the items of a table are, for tests that look into it.

use ebb_protocol::engine::{Attempt, Timestamp, Unit};
use ebb_protocol::{AttemptRecord, AttemptResult, RunId};

use super::attribute::ItemReader;
use super::document::BodyStorage;
use super::key::{self, RecordPart};
use super::{accepted, changed_targets, desired, expiry, history_items, record, run, source, source_watch, target};
use crate::{
    ChangeFeed, DesiredTarget, HistoryItem, InstanceExpiry, Item, ItemKey, NamedDocument, NamedKind, RunHead,
    SourceRejections, SourceWatch, StoreResult, TargetHead,
};

/// An item with what its key names.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredItem {
    Head(RunId, Box<RunHead>),
    /// The bucket may contain outputs of the run.
    OutputMark(RunId),
    /// A record without its further results.
    Record(RunId, Unit, Attempt, Box<AttemptRecord>),
    FurtherResult(RunId, Unit, Attempt, Box<AttemptResult>),
    Acceptances(RunId, Vec<(Unit, Attempt, Timestamp)>),
    Target(Box<TargetHead>),
    /// The end of an instance.
    Tombstone(String, Timestamp),
    /// An entry of the history of the target with this kind and name.
    History(String, String, Box<HistoryItem>),
    /// The plan of an instance: its text, or the key of an object.
    Plan(String, Result<Vec<u8>, String>),
    Desired(Box<DesiredTarget>),
    Rejections(SourceRejections),
    Watch(Box<SourceWatch>),
    Document(NamedKind, NamedDocument),
    Expiry(InstanceExpiry),
    /// The removal time of the object of a plan.
    ObjectExpiry(ItemKey),
    Feed(ChangeFeed),
    /// An item that no test looks at.
    Other(ItemKey),
}

impl StoredItem {
    /// Reads an item.
    ///
    /// # Errors
    /// Returns [`crate::StoreError::Broken`] if the item has no key, or is damaged.
    pub fn read(item: &Item) -> StoreResult<Self> {
        let reader = ItemReader::new("read", item);
        let (partition, sort) = (reader.text("pk")?, reader.text("sk")?);
        let (kind, name) = partition.split_once('#').unwrap_or((partition, ""));
        let unnamed = || reader.broken("the partition key names nothing");
        let document = |kind| Ok(Self::Document(kind, source::read_document(reader)?));
        match kind {
            "r" => Self::of_run(name.parse().map_err(|_| unnamed())?, sort, reader),
            "t" => Ok(Self::Target(Box::new(target::read_target(reader)?))),
            "x" => Ok(Self::Tombstone(name.to_owned(), target::read_end(reader)?)),
            "y" => {
                let (kind, name) = key::history_of(partition).ok_or_else(unnamed)?;
                Ok(Self::History(kind, name, Box::new(history_items::read_entry(reader)?)))
            }
            "p" => Ok(Self::Plan(
                name.to_owned(),
                match BodyStorage::read(reader)? {
                    BodyStorage::Inline(text) => Ok(text),
                    BodyStorage::Object(key) => Err(key),
                },
            )),
            "d" => Ok(Self::Desired(Box::new(desired::read_state(reader)?))),
            "e" => Ok(Self::Watch(Box::new(source_watch::read_watch(reader)?))),
            "j" => Ok(Self::Rejections(desired::read_rejections(reader)?)),
            "s" => document(NamedKind::Source),
            "c" => document(NamedKind::Connection),
            "n" => document(NamedKind::Subscription),
            "f" => document(NamedKind::Undelivered),
            "retention" if expiry::unnamed_object(sort).is_some() => {
                Ok(Self::ObjectExpiry(ItemKey::new(partition, sort)))
            }
            "retention" => Ok(Self::Expiry(expiry::read_expiry(reader)?)),
            "changes" => Ok(Self::Feed(changed_targets::read_feed(reader)?)),
            _ => Ok(Self::Other(ItemKey::new(partition, sort))),
        }
    }

    fn of_run(run: RunId, sort: &str, reader: ItemReader<'_>) -> StoreResult<Self> {
        if sort == key::OUTPUTS {
            return Ok(Self::OutputMark(run));
        }
        Ok(match key::record_of(sort) {
            Some((unit, attempt, RecordPart::Main)) => {
                Self::Record(run, unit, attempt, Box::new(record::read_record(reader)?))
            }
            Some((unit, attempt, RecordPart::Second)) => {
                let result = reader.required("dg", record::read_result(reader)?)?;
                Self::FurtherResult(run, unit, attempt, Box::new(result))
            }
            None if key::accepted_at(sort).is_some() => Self::Acceptances(run, accepted::read_acceptances(reader)?),
            None => Self::Head(run, Box::new(self::run::read_head(reader)?)),
        })
    }
}
