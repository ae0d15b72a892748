//! Creates the table where no template creates it.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::SdkError;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};

use super::failure;
use crate::{StoreError, StoreResult, TableSpec};

/// Creates the table with its indexes and TTL, billed on demand. An existing table stays unchanged.
///
/// # Errors
/// Returns [`StoreError::Retryable`] if the table is not ready after about ten seconds.
pub async fn create_table(client: &Client, name: &str) -> StoreResult<()> {
    match table_creation(client, name)?.send().await {
        Err(SdkError::ServiceError(error)) if error.err().is_resource_in_use_exception() => {}
        Err(error) => return Err(failure("CreateTable", &error)),
        Ok(_) => {}
    }
    wait_until_active(client, name).await?;
    enable_ttl(client, name).await
}

/// Returns the request that creates the table with its indexes, billed on demand. The TTL needs a request of its own.
///
/// # Errors
/// Returns [`StoreError::Broken`] if the request cannot be built.
pub fn table_creation(client: &Client, name: &str) -> StoreResult<CreateTableFluentBuilder> {
    use TableSpec as T;
    let attribute = |name, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build();
    let key = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build();
    let index = |name, hash, range| {
        GlobalSecondaryIndex::builder()
            .index_name(name)
            .key_schema(key(hash, KeyType::Hash).map_err(invalid)?)
            .key_schema(key(range, KeyType::Range).map_err(invalid)?)
            .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
            .build()
            .map_err(invalid)
    };
    Ok(client
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute(T::PARTITION, ScalarAttributeType::S).map_err(invalid)?)
        .attribute_definitions(attribute(T::SORT, ScalarAttributeType::S).map_err(invalid)?)
        .attribute_definitions(attribute(T::DUE_SHARD, ScalarAttributeType::N).map_err(invalid)?)
        .attribute_definitions(attribute(T::DUE, ScalarAttributeType::N).map_err(invalid)?)
        .attribute_definitions(attribute(T::LIST, ScalarAttributeType::S).map_err(invalid)?)
        .key_schema(key(T::PARTITION, KeyType::Hash).map_err(invalid)?)
        .key_schema(key(T::SORT, KeyType::Range).map_err(invalid)?)
        .global_secondary_indexes(index(T::DUE_INDEX, T::DUE_SHARD, T::DUE)?)
        .global_secondary_indexes(index(T::LIST_INDEX, T::LIST, T::PARTITION)?))
}

async fn wait_until_active(client: &Client, name: &str) -> StoreResult<()> {
    for pause in [0, 20, 50, 100, 200, 500, 1000, 2000, 3000, 3000] {
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        let response = client.describe_table().table_name(name).send().await;
        let table = response.map_err(|error| failure("DescribeTable", &error))?.table;
        if table.and_then(|table| table.table_status) == Some(TableStatus::Active) {
            return Ok(());
        }
    }
    Err(StoreError::Retryable { operation: "DescribeTable", reason: format!("table {name} is not active yet") })
}

async fn enable_ttl(client: &Client, name: &str) -> StoreResult<()> {
    let response = client.describe_time_to_live().table_name(name).send().await;
    let response = response.map_err(|error| failure("DescribeTimeToLive", &error))?;
    let status = response.time_to_live_description.and_then(|ttl| ttl.time_to_live_status);
    if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(());
    }
    let specification =
        TimeToLiveSpecification::builder().enabled(true).attribute_name(TableSpec::TTL).build().map_err(invalid)?;
    let request = client.update_time_to_live().table_name(name).time_to_live_specification(specification);
    request.send().await.map_err(|error| failure("UpdateTimeToLive", &error))?;
    Ok(())
}

fn invalid(error: impl std::error::Error) -> StoreError {
    StoreError::Broken { operation: "CreateTable", reason: error.to_string() }
}
