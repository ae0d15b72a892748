//! What the services of the emulator say: what is in the table, the bucket and the queues, how often a function ran, what
//! there is at all. Requests are as AWS takes them but for their signature, which the emulator does not read.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use ebb_tests::platform::http;
use reqwest::RequestBuilder;
use serde_json::{Map, Value, json};

use crate::cloud::{CloudEmulator, ENDPOINT, REGION, STACK};

/// What the stack has, by the service that lists it: its name, a path, and what is asked for.
const LISTS: [(&str, &str, &str); 9] = [
    ("lambda", "/2015-03-31/functions/", ""),
    ("apigateway", "/v2/apis", ""),
    ("scheduler", "/schedules", ""),
    ("sqs", "/", "AmazonSQS.ListQueues"),
    ("logs", "/", "Logs_20140328.DescribeLogGroups"),
    ("dynamodb", "/", "DynamoDB_20120810.ListTables"),
    ("s3", "/", ""),
    ("iam", "/?Action=ListRoles&Version=2010-05-08", ""),
    ("monitoring", "/?Action=DescribeAlarms&Version=2010-08-01", ""),
];

/// How many messages a queue has.
#[derive(Debug)]
pub(crate) struct QueueDepth {
    pub(crate) waiting: usize,
    pub(crate) delayed: usize,
    pub(crate) taken: usize,
}

async fn text(request: RequestBuilder, service: &str) -> anyhow::Result<String> {
    let scope = format!("AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/{service}/aws4_request");
    let signed = format!("{scope}, SignedHeaders=host, Signature=0");
    let answer = request.header("authorization", signed).header("x-amz-date", "20260101T000000Z").send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{service} answers {status}: {text}");
    Ok(text)
}

impl CloudEmulator {
    /// What a service answers to `GET`.
    pub(crate) async fn get(&self, service: &str, path: &str) -> anyhow::Result<String> {
        text(http().get(format!("{ENDPOINT}{path}")), service).await
    }

    async fn ask(&self, service: &str, target: &str, body: Value) -> anyhow::Result<String> {
        let request = http().post(ENDPOINT).header("x-amz-target", target).body(body.to_string());
        text(request.header("content-type", "application/x-amz-json-1.0"), service).await
    }

    async fn value(&self, service: &str, target: &str, body: Value) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.ask(service, target, body).await?)?)
    }

    /// How many items of each kind the table has, by the first part of their keys.
    pub(crate) async fn items(&self, table: &str) -> anyhow::Result<BTreeMap<String, usize>> {
        let page = self.value("dynamodb", "DynamoDB_20120810.Scan", json!({ "TableName": table })).await?;
        let keys = page["Items"].as_array().context("items")?.iter().map(|item| item["pk"]["S"].as_str());
        Ok(kinds(keys.map(|key| key.unwrap_or_default()), '#'))
    }

    /// How many objects of each folder a bucket has. `None`: there is no such bucket.
    pub(crate) async fn objects(&self, bucket: &str) -> anyhow::Result<Option<BTreeMap<String, usize>>> {
        let buckets = self.get("s3", "/").await?;
        if !buckets.contains(&format!("<Name>{bucket}</Name>")) {
            return Ok(None);
        }
        let page = self.get("s3", &format!("/{bucket}?list-type=2")).await?;
        let keys = page.split("<Key>").skip(1).filter_map(|rest| rest.split('<').next());
        Ok(Some(kinds(keys, '/')))
    }

    /// How often a function has run: its log group has the beginning of each invocation.
    pub(crate) async fn invocations(&self, group: &str) -> anyhow::Result<usize> {
        let asked = json!({"logGroupName": group, "filterPattern": "START", "limit": 10_000});
        let page = self.value("logs", "Logs_20140328.FilterLogEvents", asked).await?;
        let events = page["events"].as_array().context("events")?;
        let is_start = |event: &&Value| event["message"].as_str().is_some_and(|line| line.starts_with("START "));
        Ok(events.iter().filter(is_start).count())
    }

    /// The messages of a queue of the stack, by its name in the template.
    ///
    /// # Errors
    /// When there is not this one queue.
    pub(crate) async fn messages(&self, queue: &str) -> anyhow::Result<QueueDepth> {
        let queues = self.value("sqs", "AmazonSQS.ListQueues", json!({})).await?;
        let urls = queues["QueueUrls"].as_array().context("queues")?.iter().filter_map(Value::as_str);
        let is_it = |url: &&str| url.contains(&format!("/{STACK}-{queue}-"));
        let found: Vec<&str> = urls.filter(is_it).collect();
        let [url] = found[..] else { bail!("the queues {queue} are {found:?}, of {queues}") };
        let asked = json!({"QueueUrl": url, "AttributeNames": ["All"]});
        let page = self.value("sqs", "AmazonSQS.GetQueueAttributes", asked).await?;
        let count = |of: &str| {
            let name = format!("ApproximateNumberOfMessages{of}");
            let count = page["Attributes"][&name].as_str().with_context(|| format!("no {name}: {page}"))?;
            anyhow::Ok(count.parse::<usize>()?)
        };
        Ok(QueueDepth { waiting: count("")?, delayed: count("Delayed")?, taken: count("NotVisible")? })
    }

    /// Has the queues start functions no more. What they have started goes on.
    pub(crate) async fn cut_queues(&self) -> anyhow::Result<()> {
        const PATH: &str = "/2015-03-31/event-source-mappings/";
        let listed: Value = serde_json::from_str(&self.get("lambda", PATH).await?)?;
        let mappings = listed["EventSourceMappings"].as_array().context("mappings")?;
        ensure!(!mappings.is_empty(), "no queue starts a function: {listed}");
        for mapping in mappings {
            let id = mapping["UUID"].as_str().context("a mapping has an id")?;
            let put = http().put(format!("{ENDPOINT}{PATH}{id}")).body(json!({"Enabled": false}).to_string());
            let changed: Value = serde_json::from_str(&text(put, "lambda").await?)?;
            ensure!(changed["State"] == "Disabled", "{changed}");
        }
        Ok(())
    }

    /// The variables of the stack's functions, by the functions' names.
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

    /// The services that have something with this word in its name.
    pub(crate) async fn services_with(&self, word: &str) -> anyhow::Result<Vec<&'static str>> {
        let mut found = Vec::new();
        for (service, path, target) in LISTS {
            let listed = match target {
                "" => self.get(service, path).await?,
                _ => self.ask(service, target, json!({})).await?,
            };
            if listed.contains(word) {
                found.push(service);
            }
        }
        Ok(found)
    }

    /// All services that are asked.
    pub(crate) fn services() -> Vec<&'static str> {
        LISTS.map(|(service, ..)| service).to_vec()
    }
}

fn kinds<'a>(keys: impl Iterator<Item = &'a str>, separator: char) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for kind in keys.filter_map(|key| key.split(separator).next()) {
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}
