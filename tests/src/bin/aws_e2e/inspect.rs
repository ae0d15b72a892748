//! The content of the table and the bucket, and the variables of the functions. The emulator does not read the
//! signatures of requests.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use ebb_tests::platform::http;
use reqwest::RequestBuilder;
use serde_json::{Map, Value, json};

use crate::cloud::{CloudEmulator, ENDPOINT, REGION, STACK};

async fn text(request: RequestBuilder, service: &str) -> anyhow::Result<String> {
    let scope = format!("AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/{service}/aws4_request");
    let signed = format!("{scope}, SignedHeaders=host, Signature=0");
    let response = request.header("authorization", signed).header("x-amz-date", "20260101T000000Z").send().await?;
    let (status, text) = (response.status(), response.text().await?);
    ensure!(status.is_success(), "{service} responds {status}: {text}");
    Ok(text)
}

impl CloudEmulator {
    async fn get(&self, service: &str, path: &str) -> anyhow::Result<String> {
        text(http().get(format!("{ENDPOINT}{path}")), service).await
    }

    /// Returns the number of items of each kind in the table, by the first part of their keys.
    pub(crate) async fn items(&self, table: &str) -> anyhow::Result<BTreeMap<String, usize>> {
        let request = http().post(ENDPOINT).header("x-amz-target", "DynamoDB_20120810.Scan");
        let request = request.header("content-type", "application/x-amz-json-1.0");
        let page = text(request.body(json!({ "TableName": table }).to_string()), "dynamodb").await?;
        let page: Value = serde_json::from_str(&page)?;
        let keys = page["Items"].as_array().context("items")?.iter().map(|item| item["pk"]["S"].as_str());
        Ok(kinds(keys.map(|key| key.unwrap_or_default()), '#'))
    }

    pub(crate) async fn objects(&self, bucket: &str) -> anyhow::Result<BTreeMap<String, usize>> {
        let page = self.get("s3", &format!("/{bucket}?list-type=2")).await?;
        let keys = page.split("<Key>").skip(1).filter_map(|rest| rest.split('<').next());
        Ok(kinds(keys, '/'))
    }

    pub(crate) async fn variables(&self) -> anyhow::Result<BTreeMap<String, Map<String, Value>>> {
        let listed: Value = serde_json::from_str(&self.get("lambda", "/2015-03-31/functions/").await?)?;
        let functions = listed["Functions"].as_array().context("functions")?.iter();
        let variables = functions.filter_map(|function| {
            let name = function["FunctionName"].as_str()?;
            let variables = function["Environment"]["Variables"].as_object()?;
            name.starts_with(STACK).then(|| (name.to_owned(), variables.clone()))
        });
        let variables: BTreeMap<_, _> = variables.collect();
        ensure!(variables.len() == 4, "these functions have variables: {:?}", variables.keys());
        Ok(variables)
    }
}

fn kinds<'a>(keys: impl Iterator<Item = &'a str>, separator: char) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for kind in keys.filter_map(|key| key.split(separator).next()) {
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}
