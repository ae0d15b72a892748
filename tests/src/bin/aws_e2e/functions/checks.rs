//! What `GET /v1/checks` says of parts that are not there, and of messages that do not get to `sweep`.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use ebb_protocol::api::CheckList;
use serde_json::Value;

use super::emulator::EmulatedFunction;
use super::events::{self, BodyEncoding};
use super::parts::FunctionBackends;
use crate::cloud::ENDPOINT;
use crate::keys::TOKEN;
use crate::steps::step;

const NONE: &str = "none-of-this-name";
/// How many there are where no cluster is connected.
const CHECKS: usize = 6;

/// `sweep` gets no message of the queue.
const NO_SWEEP: &str = "no sweep";

/// What is another one than there is, and the checks that fail then.
const MISSING: [(&str, &[&str]); 5] = [
    ("", &[]),
    // `sweep` marks in the table that is there what has come through the queue.
    ("EBB_TABLE", &["table", "list-index", "due-index", "sweep", "queue"]),
    ("EBB_BUCKET", &["bucket"]),
    ("EBB_QUEUE_URL", &["queue"]),
    (NO_SWEEP, &["queue"]),
];

/// Starts `api` with all parts, then without each of them, and compares what it says of them.
pub(crate) async fn all(
    rie: &Path,
    api: &Path,
    (parts, sweep): (&FunctionBackends, &EmulatedFunction),
    folder: &Path,
) -> anyhow::Result<()> {
    for (missing, expected) in MISSING {
        let mut variables = parts.variables.clone();
        let other = match missing {
            "EBB_QUEUE_URL" => format!("{ENDPOINT}/000000000000/{NONE}"),
            _ => NONE.to_owned(),
        };
        if let Some(variable) = variables.get_mut(missing) {
            *variable = other;
        }
        let api = EmulatedFunction::start("api", rie, api, &variables, folder.join("checks.log")).await?;
        let ask = events::with_token("GET", "/v1/checks", TOKEN, &Value::Null, BodyEncoding::Text);
        let name = match missing {
            "" => "api: all checks pass".to_owned(),
            NO_SWEEP => "api: without messages for sweep the check of the queue fails".to_owned(),
            _ => format!("api: with another {missing} these checks fail: {}", expected.join(", ")),
        };
        let checked = async {
            let deal = async {
                match missing {
                    NO_SWEEP => std::future::pending().await,
                    _ => deal(parts, sweep).await,
                }
            };
            let answer = tokio::select! {
                answer = api.invoke(&ask) => answer?,
                failed = deal => return failed,
            };
            ensure!(answer["statusCode"] == 200, "{answer}");
            let list: CheckList = serde_json::from_str(answer["body"].as_str().unwrap_or_default())?;
            let failed = list.checks.iter().filter(|check| !check.passed);
            let failed: Vec<&str> = failed.map(|check| check.name.as_str()).collect();
            ensure!(failed == expected && list.checks.len() == CHECKS, "{:?}", list.checks);
            Ok(())
        };
        step(&name, checked).await?;
    }
    Ok(())
}

/// Gives `sweep` what is in the queue; ends with an error.
async fn deal(parts: &FunctionBackends, sweep: &EmulatedFunction) -> anyhow::Result<()> {
    loop {
        let messages = parts.messages().await?;
        if !messages.is_empty() {
            sweep.invoke(&events::batch(&messages)).await?;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
