//! `ebb doctor`.

use ebb_protocol::api::{CheckList, HealthCheck};
use serde::Serialize;

use crate::client::{ApiClient, ApiClientError};
use crate::exit::{CliError, Exit};
use crate::output::{self, OutputArgs};
use crate::timing;

/// How far clocks may be apart, in seconds; webhooks that are five minutes off are refused.
const APART: i64 = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// What was found of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum CheckState {
    Works,
    Fails,
    Unknown,
}

/// One part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DoctorCheck {
    name: String,
    state: CheckState,
    detail: String,
}

impl DoctorCheck {
    fn new(name: &str, state: CheckState, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state, detail: detail.into() }
    }
}

impl DoctorArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> Result<Exit, CliError> {
        let asked = timing::now().as_millisecond();
        let answer = client.checks().await;
        let between = asked.midpoint(timing::now().as_millisecond());
        // Nothing else is worth a try.
        let answer = match answer {
            Err(error @ ApiClientError::Unreachable { .. }) => return Err(error.into()),
            answer => answer,
        };
        let mut parts = Vec::new();
        match answer {
            Ok(list) => {
                parts.push(DoctorCheck::new("api", CheckState::Works, format!("version {}", list.version)));
                parts.push(clock(&list, between));
                parts.push(signature(client).await);
                parts.push(callbacks(client, &list.callback_url).await);
                parts.extend(list.checks.into_iter().map(of_server));
            }
            Err(error) => {
                parts.push(DoctorCheck::new("api", CheckState::Fails, unanswered(&error)));
                parts.push(signature(client).await);
            }
        }
        self.output.write(&parts, |parts| text(parts))?;
        let fails = parts.iter().any(|part| part.state == CheckState::Fails);
        Ok(if fails { Exit::Failed } else { Exit::Done })
    }
}

fn unanswered(error: &ApiClientError) -> String {
    match error.refusal().map(|problem| problem.status) {
        Some(401) => format!("{error}: set EBB_TOKEN"),
        Some(403) => format!("{error}: the token has to be an operator's"),
        Some(404) => "the server is older than this program, and cannot say".to_owned(),
        _ => error.to_string(),
    }
}

fn clock(list: &CheckList, here: i64) -> DoctorCheck {
    let there = i64::try_from(list.now_ms).unwrap_or(i64::MAX);
    let apart = there.saturating_sub(here) / 1000;
    let how = if apart < 0 { "before" } else { "after" };
    let said = format!("the server's is {} s {how} this machine's", apart.abs());
    if apart.abs() <= APART {
        DoctorCheck::new("clock", CheckState::Works, said)
    } else {
        DoctorCheck::new(
            "clock",
            CheckState::Fails,
            format!("{said}: signatures five minutes off are refused; set this clock"),
        )
    }
}

/// A signed event of a type that there is not gets past the signature and no further.
async fn signature(client: &ApiClient) -> DoctorCheck {
    let part = |state, detail: String| DoctorCheck::new("signature", state, detail);
    if !client.has_webhook_secret() {
        return part(CheckState::Unknown, "EBB_WEBHOOK_SECRET is not set".to_owned());
    }
    match client.probe_signature().await {
        Ok(Some(problem)) if problem.status == 422 => {
            part(CheckState::Works, "lifecycle webhooks are believed".to_owned())
        }
        Ok(Some(problem)) if problem.status == 401 => part(
            CheckState::Fails,
            format!("{}: compare EBB_WEBHOOK_SECRET with the server's keys", problem.detail),
        ),
        Ok(Some(problem)) => part(CheckState::Fails, problem.detail),
        Ok(None) => part(CheckState::Fails, "an event that asks for nothing was taken".to_owned()),
        Err(error) => part(CheckState::Fails, error.to_string()),
    }
}

async fn callbacks(client: &ApiClient, url: &str) -> DoctorCheck {
    let part = |state, detail: String| DoctorCheck::new("callbacks", state, detail);
    let Ok(parsed) = url.parse() else { return part(CheckState::Fails, format!("{url} is no URL")) };
    match client.probe_callback(parsed).await {
        Ok(Some(problem)) if problem.status == 401 => part(CheckState::Works, format!("answered at {url}")),
        Ok(Some(problem)) => part(CheckState::Fails, format!("{url}: {}", problem.detail)),
        Ok(None) => {
            part(CheckState::Fails, format!("{url} takes callbacks of nobody: it is another server's"))
        }
        Err(_) => part(
            CheckState::Fails,
            format!(
                "{url}, where units are told to report, is not answered as it should be: see the parameter Url"
            ),
        ),
    }
}

fn of_server(check: HealthCheck) -> DoctorCheck {
    let state = if check.passed { CheckState::Works } else { CheckState::Fails };
    DoctorCheck::new(&check.name, state, format!("{} ({} ms)", check.detail, check.took_ms))
}

fn text(parts: &[DoctorCheck]) -> String {
    let rows = parts.iter().map(|part| {
        let state = match part.state {
            CheckState::Works => "works",
            CheckState::Fails => "FAILS",
            CheckState::Unknown => "unknown",
        };
        [part.name.clone(), state.to_owned(), part.detail.clone()]
    });
    output::table(&["PART", "STATE", "DETAIL"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each() {
        let check = |name: &str, passed, detail: &str| {
            of_server(HealthCheck { name: name.to_owned(), passed, detail: detail.to_owned(), took_ms: 7 })
        };
        let parts = [
            DoctorCheck::new("signature", CheckState::Unknown, "EBB_WEBHOOK_SECRET is not set"),
            check("table", true, "written and read"),
            check("queue", false, "AccessDenied"),
        ];
        insta::assert_snapshot!(text(&parts), @r"
        PART       STATE    DETAIL
        signature  unknown  EBB_WEBHOOK_SECRET is not set
        table      works    written and read (7 ms)
        queue      FAILS    AccessDenied (7 ms)
        ");
    }

    #[test]
    fn clocks_may_be_a_minute_apart() {
        let list = |now_ms| CheckList {
            version: String::new(),
            now_ms,
            callback_url: String::new(),
            checks: Vec::new(),
        };
        for (there, state, says) in [
            (160_000, CheckState::Works, "60 s after"),
            (39_000, CheckState::Fails, "61 s before"),
            (161_000, CheckState::Fails, "61 s after"),
        ] {
            let part = clock(&list(there), 100_000);
            assert!(part.state == state && part.detail.contains(says), "{part:?}");
        }
    }
}
