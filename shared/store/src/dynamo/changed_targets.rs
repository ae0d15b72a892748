//! The feed of changed targets: `changes` / `h`. `cn` is the number of the last change, `wa` the time until which changes are
//! written, `bg` the start of that watch, and `b` the ring as JSON. Its readers compare numbers, so a read that is a second
//! old is enough.

use ebb_protocol::{RunId, TargetKey, Timestamp};

use super::run::read_head;
use super::{ItemReader, Store, json, key, number, read_target};
use crate::item_table::AttributeChange::{Add, Set};
use crate::{ChangeFeed, RunHead, StoreResult, TargetHead, UpdateImage, WriteCondition, WriteExpression, WriteOutcome};

const ITEM: (&str, &str) = (key::CHANGES, key::HEAD);
const LAST: &str = "cn";
const WATCHED: &str = "wa";
const BEGUN: &str = "bg";
const RING: &str = "b";
/// Attempts to append a change to the ring. A further one raises the number only.
const ATTEMPTS: usize = 2;

pub(super) fn read_feed(reader: ItemReader<'_>) -> StoreResult<ChangeFeed> {
    Ok(ChangeFeed {
        last: reader.number_if_any(LAST)?.unwrap_or(0),
        watched: reader.time_if_any(WATCHED)?.unwrap_or_default(),
        begun: reader.time_if_any(BEGUN)?.unwrap_or_default(),
        ring: reader.json_if_any(RING)?.unwrap_or_default(),
    })
}

/// Watches the feed of changed targets, reads it, and appends to it (`Query`, `UpdateItem`). Looks whether a target has changed
/// (`Query`).
impl Store {
    /// Returns the feed as it was a short time ago.
    pub async fn peek_changes(&self) -> StoreResult<ChangeFeed> {
        Ok(self.table.peek(ITEM.0, ITEM.1, read_feed).await?.unwrap_or_default())
    }

    /// Appends a change of each target, `KIND/NAME`, to the feed, which was read as `seen`. Returns the feed with the changes.
    /// While many others append, the changes only raise the number of the last one.
    pub async fn note_changes(&self, seen: &ChangeFeed, targets: &[&str]) -> StoreResult<ChangeFeed> {
        let mut seen = seen.clone();
        for _ in 0..ATTEMPTS {
            let next = seen.with(targets);
            let changes = [(LAST, Set(number(next.last))), (RING, Set(json(&next.ring)?))];
            let expression = WriteExpression::when(WriteCondition::equal(LAST, number(seen.last))).with(changes);
            match self.table.update(ITEM, expression, UpdateImage::After).await? {
                WriteOutcome::Written(item) => return read_feed(ItemReader::new("UpdateItem", &item)),
                // Another change came first, or this one is repeated because its response was lost. A change that is
                // noted twice is read twice.
                WriteOutcome::Refused(item) => seen = read_feed(ItemReader::new("UpdateItem", &item))?,
            }
        }
        self.update_feed(WriteExpression::default().with([(LAST, Add(number(targets.len() as u64)))])).await
    }

    async fn update_feed(&self, expression: WriteExpression) -> StoreResult<ChangeFeed> {
        match self.table.update(ITEM, expression, UpdateImage::After).await? {
            WriteOutcome::Written(item) | WriteOutcome::Refused(item) => {
                read_feed(ItemReader::new("UpdateItem", &item))
            }
        }
    }

    /// Sets the time until which changes are written. A watch that begins sets its start, and raises the number of the last
    /// change: earlier changes may be missing. Returns the feed after the write.
    pub async fn watch_changes(&self, until: Timestamp, begun: Option<Timestamp>) -> StoreResult<ChangeFeed> {
        let begun = begun.map(|begun| [(BEGUN, Set(number(begun.0))), (LAST, Add(number(1)))]);
        let changes = [(WATCHED, Set(number(until.0)))].into_iter().chain(begun.into_iter().flatten());
        self.update_feed(WriteExpression::default().with(changes)).await
    }

    /// Returns a target as it was a short time ago, at half the price of [`Self::read_target`].
    pub async fn peek_target(&self, target: TargetKey<'_>) -> StoreResult<Option<TargetHead>> {
        self.table.peek(&key::target(target), key::HEAD, read_target).await
    }

    /// Returns the head of a run as it was a short time ago, at half the price of [`Self::read_run`].
    pub async fn peek_run(&self, run: &RunId) -> StoreResult<Option<RunHead>> {
        self.table.peek(&key::run(run), key::HEAD, read_head).await
    }
}
