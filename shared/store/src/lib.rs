//! Storage in DynamoDB and S3.
//!
//! [`Store`] has the operations. It sends requests to an [`ItemTable`]: DynamoDB, the table of one machine, or a table in
//! memory. A [`Bucket`] is S3, with the feature `s3`, a folder, or in memory. The feature `suite` contains the tests that
//! every table must pass.

pub mod dynamo;
pub mod error;
pub mod evaluate;
pub mod item_table;
pub mod items;
pub mod memory_table;
pub mod ops;
#[cfg(feature = "s3")]
pub mod s3;
pub mod sdk_table;
// Tests state expectations by unwrapping.
#[cfg(feature = "suite")]
#[allow(clippy::unwrap_used, clippy::panic)]
pub mod suite;
pub mod table;

#[cfg(feature = "suite")]
pub use dynamo::StoredItem;
pub use dynamo::{Store, item_size};
pub use error::StoreError;
pub(crate) use item_table::{AttributeChange, BATCH_BYTES, ItemBatch, ItemKey, ItemPage, ItemPut, ItemQuery};
pub use item_table::{Item, ItemTable};
pub(crate) use item_table::{ItemWrite, MAX_DELETE_BATCH, MAX_GET_BATCH, MAX_ITEM_BYTES, PAGE_BYTES, Projection};
pub(crate) use item_table::{QueryRange, TableResponse, TransactionOutcome, UpdateImage, WriteAction};
pub(crate) use item_table::{WriteCondition, WriteExpression, WriteOutcome};
pub use items::{AccessTokenItem, BootstrapToken, ChangeFeed, ChangeRing, ClusterItem, DatedEvent, DesiredKey};
pub use items::{DesiredTarget, HistoryItem, NamedDocument, NamedKind, NewRun, NotificationState, PatchResult};
pub use items::{ListFindings, ListPass, MissingTarget, ReplayState, SourceWatch};
pub use items::{PendingCreation, PendingUpdate, PhaseNotice, ReceiverState, RefusedUpdate, RegisteredRelay};
pub use items::{RunFacts, RunHead, SecretRelease, SessionBasis, SessionItem, SourceRejections, TargetEvents};
pub use items::{TargetHead, TargetList, TargetOutbox, TargetTransition, TokenItem, Tombstone};
pub use memory_table::MemoryTable;
pub use ops::{AttemptUpdate, Bucket, ClusterFault, ClusterFaultKind, DamagedExpiry, DueExpiries, DueItem};
pub use ops::{HealthMark, HistoryItems, InstanceExpiry, LOGS, ListPage, OUTPUTS, OpenObject, PluginItem};
pub use ops::{PolicyRecord, PutOutcome, QueuedBatch, StoreResult, UnitRecord};
#[cfg(feature = "s3")]
pub use s3::S3Bucket;
pub use sdk_table::{SdkTable, create_table, table_creation};
pub use table::TableSpec;
