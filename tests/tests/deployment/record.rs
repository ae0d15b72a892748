//! Records the requests to AWS: the operation, and the part of the table or the bucket.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use aws_sdk_dynamodb::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use serde_json::Value;

/// An action of a policy and its place.
pub(crate) type PolicyRight = (String, String);
pub(crate) type PolicyRights = BTreeSet<PolicyRight>;

/// Records the rights that the requests of one function need.
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

impl Intercept for Recorder {
    fn name(&self) -> &'static str {
        "Recorder"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        settings: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let (request, metadata) = (context.request(), settings.load::<Metadata>().unwrap());
        if metadata.service().contains("S3") {
            if metadata.name() == "ListObjectsV2" {
                self.needs("s3:ListBucket", "Bucket");
                return Ok(());
            }
            // `/BUCKET/FOLDER/…`
            let path = url::Url::parse(request.uri()).map(|url| url.path().to_owned());
            let path = path.unwrap_or_else(|_| request.uri().to_owned());
            let folder = path.split('/').nth(2).unwrap_or_default().to_owned();
            self.needs(&format!("s3:{}", metadata.name()), &format!("Bucket {folder}/*"));
            return Ok(());
        }
        let body: Value = serde_json::from_slice(request.body().bytes().unwrap())?;
        for (operation, place) in rights_of(metadata.name(), &body) {
            self.needs(&format!("dynamodb:{operation}"), &place);
        }
        Ok(())
    }
}

/// Returns the rights that a request to the table needs.
fn rights_of(operation: &str, body: &Value) -> Vec<(String, String)> {
    let one = |place: String| vec![(operation.to_owned(), place)];
    match operation {
        // Each write needs its own right.
        "TransactWriteItems" => {
            let writes = body["TransactItems"].as_array().unwrap().iter();
            writes
                .flat_map(|write| {
                    let (kind, write) = write.as_object().unwrap().iter().next().unwrap();
                    rights_of(&format!("{kind}Item"), write)
                })
                .collect()
        }
        "BatchGetItem" => {
            let tables = body["RequestItems"].as_object().unwrap().values();
            let keys = tables.flat_map(|table| table["Keys"].as_array().unwrap());
            keys.map(|key| (operation.to_owned(), place(&key["pk"]))).collect()
        }
        "BatchWriteItem" => {
            let tables = body["RequestItems"].as_object().unwrap().values();
            let writes = tables.flat_map(|writes| writes.as_array().unwrap());
            let keys = writes.map(|write| &write["DeleteRequest"]["Key"]["pk"]);
            keys.map(|key| (operation.to_owned(), place(key))).collect()
        }
        "Query" => match body["IndexName"].as_str() {
            Some(index) => one(format!("Table index/{index}")),
            // The key condition begins with the partition key.
            None => one(place(&body["ExpressionAttributeValues"][":0"])),
        },
        "PutItem" => one(place(&body["Item"]["pk"])),
        _ => one(place(&body["Key"]["pk"])),
    }
}

/// Returns the place of a partition key, such as `Table r#*`.
fn place(key: &Value) -> String {
    let key = key["S"].as_str().unwrap_or_else(|| panic!("{key} is not a partition key"));
    match key.split_once('#') {
        Some((kind, _)) => format!("Table {kind}#*"),
        None => format!("Table {key}"),
    }
}
