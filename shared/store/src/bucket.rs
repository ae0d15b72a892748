//! Large things, in S3.

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::primitives::ByteStream;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::dynamo::failure;
use crate::error::StoreError;
use crate::ops::{Objects, OpenObject, Stored};

/// Objects that are removed at once.
const REMOVALS: usize = 16;

/// The bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    client: Client,
    name: String,
}

impl Bucket {
    /// The bucket `name`, by `client`. Asks for nothing yet.
    pub fn new(client: Client, name: impl Into<String>) -> Self {
        Self { client, name: name.into() }
    }

    /// The bucket's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client that it is asked by.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl Bucket {
    /// Removes what is under a key, if there is anything.
    ///
    /// # Errors
    /// The service's.
    pub async fn remove(&self, key: &str) -> Stored<()> {
        let request = self.client.delete_object().bucket(&self.name).key(key);
        request.send().await.map_err(|error| failure("DeleteObject", &error))?;
        Ok(())
    }
}

impl Bucket {
    /// Removes everything whose key begins with `prefix`.
    ///
    /// # Errors
    /// The service's.
    pub async fn remove_all(&self, prefix: &str) -> Stored<()> {
        let mut from = None;
        loop {
            let (keys, next) = self.page(prefix, from).await?;
            let removals = futures::stream::iter(keys).map(|key| async move { self.remove(&key).await });
            removals.buffer_unordered(REMOVALS).try_collect::<()>().await?;
            from = next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Returns all keys that begin with `prefix`.
    pub(crate) async fn list(&self, prefix: &str) -> Stored<Vec<String>> {
        let (mut keys, mut next) = self.page(prefix, None).await?;
        while next.is_some() {
            let (more, after) = self.page(prefix, next).await?;
            keys.extend(more);
            next = after;
        }
        Ok(keys)
    }

    /// Returns a page of the keys that begin with `prefix`, and where the next one begins.
    async fn page(&self, prefix: &str, from: Option<String>) -> Stored<(Vec<String>, Option<String>)> {
        let request = self.client.list_objects_v2().bucket(&self.name).prefix(prefix);
        let page = request.set_continuation_token(from).send().await;
        let page = page.map_err(|error| failure("ListObjectsV2", &error))?;
        let keys = page.contents().iter().filter_map(|object| object.key()).map(str::to_owned).collect();
        Ok((keys, page.next_continuation_token))
    }
}

#[async_trait]
impl Objects for Bucket {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> Stored<()> {
        let request = self.client.put_object().bucket(&self.name).key(key).body(ByteStream::from(bytes));
        request.send().await.map_err(|error| failure("PutObject", &error))?;
        Ok(())
    }

    async fn open_object(&self, key: &str) -> Stored<Option<OpenObject>> {
        let answer = match self.client.get_object().bucket(&self.name).key(key).send().await {
            Err(SdkError::ServiceError(error)) if error.err().is_no_such_key() => return Ok(None),
            Err(error) => return Err(failure("GetObject", &error)),
            Ok(answer) => answer,
        };
        let bytes = answer.content_length.and_then(|length| usize::try_from(length).ok());
        let body = async move {
            let body = answer.body.collect().await;
            let body = body.map_err(|error| StoreError::Retryable {
                operation: "GetObject",
                reason: error.to_string(),
            })?;
            Ok(body.to_vec())
        };
        Ok(Some(OpenObject::new(bytes, body)))
    }
}
