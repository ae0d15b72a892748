//! Looking after work until its result has been taken.

use std::sync::Arc;
use std::time::Duration;

use ebb_outbound::{CallError, Request};
use ebb_wire::callback::Callback;
use ebb_wire::relay::WorkName;
use tokio::sync::Notify;

use super::relay::Inner;
use super::work::{Received, Standing};
use super::{PodsError, folder};

/// How often work is looked at while it is young, and later.
const LOOK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(100));
/// Between two tries of a callback: the first pause, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// What one callback may take: the control plane starts what became ready before it answers.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a try to deliver has come to.
enum Delivery {
    Done,
    Later(String),
}

/// Watches over one work: starts or settles it if nobody runs it, and sends its result until it is taken. `wake` makes
/// it look at once.
pub(super) async fn look_after(inner: Arc<Inner>, name: WorkName, wake: Arc<Notify>) {
    let mut look = LOOK.0;
    let mut pause = PAUSE.0;
    loop {
        let rest = match step(&inner, &name).await {
            Ok(Step::Leave) if inner.leave(&name) => return,
            Ok(Step::Leave) => continue,
            Ok(Step::Look) => {
                look = (look + look / 8).min(LOOK.1);
                look
            }
            Ok(Step::Again(why)) => {
                tracing::debug!(unit = name.unit, attempt = name.attempt, why, "callback not taken yet");
                pause = (pause * 2).min(PAUSE.1);
                pause / 2
            }
            Err(error) => {
                tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "work cannot be looked after");
                pause = (pause * 2).min(PAUSE.1);
                pause / 2
            }
        };
        tokio::select! {
            () = tokio::time::sleep(rest) => {}
            () = wake.notified() => {}
        }
    }
}

enum Step {
    /// There is nothing more to do.
    Leave,
    Look,
    /// Its result is not taken yet.
    Again(String),
}

async fn step(inner: &Inner, name: &WorkName) -> Result<Step, PodsError> {
    let work = inner.work(name);
    match work.standing()? {
        Standing::Absent | Standing::Tombstoned => Ok(Step::Leave),
        Standing::Running => {
            inner.keep_deadline(&work)?;
            Ok(Step::Look)
        }
        Standing::Waiting | Standing::Vanished => {
            inner.pick_up(name).await?;
            Ok(Step::Look)
        }
        Standing::Ended(_) if work.taken().exists() => Ok(Step::Leave),
        Standing::Ended(result) => {
            let Some(received) = folder::read_json::<Received>(&work.request())? else {
                return Ok(Step::Again("the request is gone".to_owned()));
            };
            let asked = inner.asked(name);
            Ok(match deliver(inner, name, &received, &result).await {
                Delivery::Done if inner.take(name, asked)? => Step::Leave,
                Delivery::Done => Step::Look,
                Delivery::Later(why) => Step::Again(why),
            })
        }
    }
}

async fn deliver(inner: &Inner, name: &WorkName, received: &Received, result: &Callback) -> Delivery {
    let body = match serde_json::to_vec(result) {
        Ok(body) => body,
        Err(error) => return Delivery::Later(error.to_string()),
    };
    let callback = &received.request.callback;
    let request = Request {
        method: "POST".to_owned(),
        url: inner.options.callback_url.clone().unwrap_or_else(|| callback.url.clone()),
        headers: vec![
            ("authorization".to_owned(), format!("Bearer {}", callback.token)),
            ("content-type".to_owned(), "application/json".to_owned()),
        ],
        body,
        timeout: TIMEOUT,
    };
    match inner.options.call.call(request).await {
        Ok(response) if (200..300).contains(&response.status) => Delivery::Done,
        // Too early, too many, too slow: not about this message.
        Ok(response) if matches!(response.status, 408 | 425 | 429) => {
            Delivery::Later(format!("status {}", response.status))
        }
        Ok(response) if (400..500).contains(&response.status) => {
            let status = response.status;
            tracing::warn!(unit = name.unit, attempt = name.attempt, status, "callback refused");
            Delivery::Done
        }
        Ok(response) => Delivery::Later(format!("status {}", response.status)),
        Err(error @ CallError::Refused(_)) => {
            tracing::warn!(unit = name.unit, attempt = name.attempt, %error, "callback not allowed");
            Delivery::Done
        }
        Err(error) => Delivery::Later(error.to_string()),
    }
}
