//! Large values in S3.

use async_trait::async_trait;
use aws_sdk_s3::Client;
use aws_sdk_s3::error::SdkError;
use aws_sdk_s3::primitives::ByteStream;

use crate::sdk_table::failure;
use crate::{Bucket, OpenObject, StoreError, StoreResult};

#[derive(Clone, Debug)]
pub struct S3Bucket {
    client: Client,
    name: String,
}

impl S3Bucket {
    /// Returns the bucket without a request.
    pub fn new(client: Client, name: impl Into<String>) -> Self {
        Self { client, name: name.into() }
    }
}

#[async_trait]
impl Bucket for S3Bucket {
    async fn put_object(&self, key: &str, bytes: Vec<u8>) -> StoreResult<()> {
        let request = self.client.put_object().bucket(&self.name).key(key).body(ByteStream::from(bytes));
        request.send().await.map_err(|error| failure("PutObject", &error))?;
        Ok(())
    }

    async fn open_object(&self, key: &str) -> StoreResult<Option<OpenObject>> {
        let response = match self.client.get_object().bucket(&self.name).key(key).send().await {
            Err(SdkError::ServiceError(error)) if error.err().is_no_such_key() => return Ok(None),
            Err(error) => return Err(failure("GetObject", &error)),
            Ok(response) => response,
        };
        let bytes = response.content_length.and_then(|length| usize::try_from(length).ok());
        let body = async move {
            let body = response.body.collect().await;
            let body =
                body.map_err(|error| StoreError::Retryable { operation: "GetObject", reason: error.to_string() })?;
            Ok(body.to_vec())
        };
        Ok(Some(OpenObject::new(bytes, body)))
    }

    async fn remove(&self, key: &str) -> StoreResult<()> {
        let request = self.client.delete_object().bucket(&self.name).key(key);
        request.send().await.map_err(|error| failure("DeleteObject", &error))?;
        Ok(())
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<String>> {
        let request = self.client.list_objects_v2().bucket(&self.name).prefix(prefix);
        let (mut keys, mut pages) = (Vec::new(), request.into_paginator().send());
        while let Some(page) = pages.try_next().await.map_err(|error| failure("ListObjectsV2", &error))? {
            keys.extend(page.contents().iter().filter_map(|object| object.key()).map(str::to_owned));
        }
        Ok(keys)
    }
}
