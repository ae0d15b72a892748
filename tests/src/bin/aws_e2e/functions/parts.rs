//! What functions find around them: table, bucket and queue, and the variables that name them.

use std::collections::BTreeMap;

use anyhow::Context as _;
use ebb_store::suite::DynamoDbLocal;

use crate::cloud::{ENDPOINT, REGION, emulated};

const NAME: &str = "ebb";

/// Table, bucket and queue, empty. The table is in DynamoDB Local, the others are the emulator's.
pub(crate) struct FunctionBackends {
    _dynamo: DynamoDbLocal,
    queue: aws_sdk_sqs::Client,
    queue_url: String,
    pub(crate) variables: BTreeMap<&'static str, String>,
}

impl FunctionBackends {
    /// Makes them. `platform` is told of notifications; `secrets` is the ARN of the secret, which is the emulator's too.
    pub(crate) async fn new(platform: String, secrets: &str) -> anyhow::Result<Self> {
        let dynamo = DynamoDbLocal::start()?;
        let table = emulated!(aws_sdk_dynamodb, REGION, dynamo.endpoint()).build();
        let table = aws_sdk_dynamodb::Client::from_conf(table);
        ebb_store::table::create(&table, NAME).await.map_err(|error| anyhow::anyhow!("{error}"))?;
        let bucket = emulated!(aws_sdk_s3, "us-east-1", ENDPOINT).force_path_style(true).build();
        aws_sdk_s3::Client::from_conf(bucket).create_bucket().bucket(NAME).send().await?;
        let queue = aws_sdk_sqs::Client::from_conf(emulated!(aws_sdk_sqs, REGION, ENDPOINT).build());
        let made = queue.create_queue().queue_name(NAME).send().await?;
        let queue_url = made.queue_url.context("a queue has a URL")?;
        let variables = BTreeMap::from([
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_ENDPOINT_URL", ENDPOINT.to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", dynamo.endpoint()),
            ("EBB_TABLE", NAME.to_owned()),
            ("EBB_INSTALLATION", NAME.to_owned()),
            ("EBB_BUCKET", NAME.to_owned()),
            ("EBB_QUEUE_URL", queue_url.clone()),
            ("EBB_SOURCE", "urn:tests".to_owned()),
            // No server listens there: the reports of units go to `complete` as events.
            ("EBB_CALLBACK_URL", "https://entry.test/v1/callbacks".to_owned()),
            ("EBB_PLATFORM_URL", platform),
            ("EBB_SECRET_ARN", secrets.to_owned()),
            ("RUST_LOG", "info".to_owned()),
        ]);
        Ok(Self { _dynamo: dynamo, queue, queue_url, variables })
    }

    /// The messages whose time has come, by their ids, at most ten. They are gone then.
    pub(crate) async fn messages(&self) -> anyhow::Result<Vec<(String, String)>> {
        let ask = self.queue.receive_message().queue_url(&self.queue_url).max_number_of_messages(10);
        let mut messages = Vec::new();
        for message in ask.send().await?.messages.unwrap_or_default() {
            let gone = self.queue.delete_message().queue_url(&self.queue_url);
            gone.set_receipt_handle(message.receipt_handle).send().await?;
            messages.push((message.message_id.unwrap_or_default(), message.body.unwrap_or_default()));
        }
        Ok(messages)
    }
}
