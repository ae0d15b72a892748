//! `ebb doctor`.

use ebb_wire::api::{Check, CheckList};
use serde::Serialize;

use crate::client::{Client, ClientError};
use crate::exit::{Exit, Trouble};
use crate::output::{self, Output};
use crate::timing;

/// How far clocks may be apart, in seconds; webhooks that are five minutes off are refused.
const APART: i64 = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    output: Output,
}

/// What was found of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    Works,
    Fails,
    Unknown,
}

/// One part.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    name: String,
    state: State,
    detail: String,
}

impl Part {
    fn new(name: &str, state: State, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), state, detail: detail.into() }
    }
}

impl Args {
    pub(crate) async fn run(self, client: &Client) -> Result<Exit, Trouble> {
        let asked = timing::now().as_millisecond();
        let answer = client.checks().await;
        let between = asked.midpoint(timing::now().as_millisecond());
        // Nothing else is worth a try.
        let answer = match answer {
            Err(error @ ClientError::Unreachable { .. }) => return Err(error.into()),
            answer => answer,
        };
        let mut parts = Vec::new();
        match answer {
            Ok(list) => {
                parts.push(Part::new("api", State::Works, format!("version {}", list.version)));
                parts.push(clock(&list, between));
                parts.push(signature(client).await);
                parts.push(callbacks(client, &list.callback_url).await);
                parts.extend(list.checks.into_iter().map(of_server));
            }
            Err(error) => {
                parts.push(Part::new("api", State::Fails, unanswered(&error)));
                parts.push(signature(client).await);
            }
        }
        self.output.write(&parts, |parts| text(parts))?;
        let fails = parts.iter().any(|part| part.state == State::Fails);
        Ok(if fails { Exit::Failed } else { Exit::Done })
    }
}

fn unanswered(error: &ClientError) -> String {
    match error.refusal().map(|problem| problem.status) {
        Some(401) => format!("{error}: set EBB_TOKEN"),
        Some(403) => format!("{error}: the token has to be an operator's"),
        Some(404) => "the server is older than this program, and cannot say".to_owned(),
        _ => error.to_string(),
    }
}

fn clock(list: &CheckList, here: i64) -> Part {
    let there = i64::try_from(list.now_ms).unwrap_or(i64::MAX);
    let apart = there.saturating_sub(here) / 1000;
    let how = if apart < 0 { "before" } else { "after" };
    let said = format!("the server's is {} s {how} this machine's", apart.abs());
    if apart.abs() <= APART {
        Part::new("clock", State::Works, said)
    } else {
        Part::new(
            "clock",
            State::Fails,
            format!("{said}: signatures five minutes off are refused; set this clock"),
        )
    }
}

/// A signed event of a type that there is not gets past the signature and no further.
async fn signature(client: &Client) -> Part {
    let part = |state, detail: String| Part::new("signature", state, detail);
    if !client.has_webhook_secret() {
        return part(State::Unknown, "EBB_WEBHOOK_SECRET is not set".to_owned());
    }
    match client.signed_nothing().await {
        Ok(Some(problem)) if problem.status == 422 => {
            part(State::Works, "lifecycle webhooks are believed".to_owned())
        }
        Ok(Some(problem)) if problem.status == 401 => part(
            State::Fails,
            format!("{}: compare EBB_WEBHOOK_SECRET with the server's keys", problem.detail),
        ),
        Ok(Some(problem)) => part(State::Fails, problem.detail),
        Ok(None) => part(State::Fails, "an event that asks for nothing was taken".to_owned()),
        Err(error) => part(State::Fails, error.to_string()),
    }
}

async fn callbacks(client: &Client, url: &str) -> Part {
    let part = |state, detail: String| Part::new("callbacks", state, detail);
    let Ok(parsed) = url.parse() else { return part(State::Fails, format!("{url} is no URL")) };
    match client.callback_of_nobody(parsed).await {
        Ok(Some(problem)) if problem.status == 401 => part(State::Works, format!("answered at {url}")),
        Ok(Some(problem)) => part(State::Fails, format!("{url}: {}", problem.detail)),
        Ok(None) => part(State::Fails, format!("{url} takes callbacks of nobody: it is another server's")),
        Err(_) => part(
            State::Fails,
            format!(
                "{url}, where units are told to report, is not answered as it should be: see the parameter Url"
            ),
        ),
    }
}

fn of_server(check: Check) -> Part {
    let state = if check.passed { State::Works } else { State::Fails };
    Part::new(&check.name, state, format!("{} ({} ms)", check.detail, check.took_ms))
}

fn text(parts: &[Part]) -> String {
    let rows = parts.iter().map(|part| {
        let state = match part.state {
            State::Works => "works",
            State::Fails => "FAILS",
            State::Unknown => "unknown",
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
            of_server(Check { name: name.to_owned(), passed, detail: detail.to_owned(), took_ms: 7 })
        };
        let parts = [
            Part::new("signature", State::Unknown, "EBB_WEBHOOK_SECRET is not set"),
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
            (160_000, State::Works, "60 s after"),
            (39_000, State::Fails, "61 s before"),
            (161_000, State::Fails, "61 s after"),
        ] {
            let part = clock(&list(there), 100_000);
            assert!(part.state == state && part.detail.contains(says), "{part:?}");
        }
    }
}
