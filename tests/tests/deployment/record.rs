//! Records the requests to AWS: the operation, and the part of the table or the bucket.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ebb_store::suite::{RequestPlace, StoreObserver, TableRequest};

/// Actions of policies, each with its place.
pub(crate) type PolicyRights = BTreeSet<(String, String)>;

/// The rights that the requests of one function need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder(Arc<Mutex<PolicyRights>>);

impl Recorder {
    pub(crate) fn rights(&self) -> PolicyRights {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn needs(&self, action: &str, place: &str) {
        self.0.lock().unwrap().insert((action.to_owned(), place.to_owned()));
    }
}

impl StoreObserver for Recorder {
    /// The place of an item of the partition `r#a` is `Table r#*`.
    fn table(&self, request: &TableRequest<'_>) {
        // Each put of a transaction needs its own right.
        let operation = if request.operation == "TransactWriteItems" { "PutItem" } else { request.operation };
        let action = format!("dynamodb:{operation}");
        match &request.place {
            RequestPlace::Index(index) => self.needs(&action, &format!("Table index/{index}")),
            RequestPlace::Items(keys) => {
                for key in keys {
                    let kind = key.partition.split_once('#').map(|(kind, _)| format!("{kind}#*"));
                    self.needs(&action, &format!("Table {}", kind.as_ref().unwrap_or(&key.partition)));
                }
            }
        }
    }

    /// A key begins with a folder.
    fn bucket(&self, operation: &'static str, key: &str) {
        let folder = key.split('/').next().unwrap_or_default();
        match operation {
            "ListObjectsV2" => self.needs("s3:ListBucket", "Bucket"),
            _ => self.needs(&format!("s3:{operation}"), &format!("Bucket {folder}/*")),
        }
    }
}
