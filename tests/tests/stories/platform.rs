//! A sandbox platform that asks for one life of one sandbox, as persistently as platforms do.

use std::time::{Instant, SystemTime};

use ebb_wire::api::{Phase, TargetDetail};
use ebb_wire::cloudevents::{self, Asked};
use ebb_wire::engine::Timestamp;
use ebb_wire::lifecycle::Lifecycle;
use ebb_wire::sign::{self, MessageId, Secret};
use reqwest::StatusCode;

use crate::place::{Dev, LOOK, PATIENCE};

/// What the platform does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Create,
    AwaitReady,
    Delete,
    AwaitGone,
    Over,
}

/// The platform's side of one life.
pub(crate) struct Platform {
    pub(crate) step: Step,
    pub(crate) uid: String,
    name: String,
    document: String,
    http: reqwest::Client,
}

impl Platform {
    pub(crate) fn new(name: &str, uid: &str, document: String) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { step: Step::Create, uid: uid.to_owned(), name: name.to_owned(), document, http }
    }

    /// Does the next step. May be dropped at any moment and then does the step once more, as a platform that got no
    /// answer.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn advance(&mut self, dev: &Dev) -> Result<(), reqwest::Error> {
        self.step = match self.step {
            Step::Create => {
                self.post(dev, Asked::Created).await?;
                Step::AwaitReady
            }
            Step::AwaitReady => {
                self.reach(dev, Phase::Ready).await?;
                Step::Delete
            }
            Step::Delete => {
                self.post(dev, Asked::Deleted).await?;
                Step::AwaitGone
            }
            Step::AwaitGone => {
                self.reach(dev, Phase::Gone).await?;
                Step::Over
            }
            Step::Over => Step::Over,
        };
        Ok(())
    }

    async fn post(&self, dev: &Dev, asked: Asked) -> Result<(), reqwest::Error> {
        let data = Lifecycle {
            kind: "sandbox".to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            generation: 1,
            document: (asked == Asked::Created).then(|| self.document.clone()),
            routing_key: None,
        };
        let id = format!("msg_{}_{asked:?}", self.uid);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let now = Timestamp(u64::try_from(since.as_millis()).unwrap());
        let (content_type, body) = cloudevents::lifecycle(&id, "stories", asked, now, &data);
        let secret = Secret::parse(&dev.secret).unwrap();
        let mut request =
            self.http.post(format!("{}/v1/events", dev.url)).header("content-type", content_type);
        for (name, value) in sign::sign(&secret, &MessageId::parse(&id).unwrap(), now, &body) {
            request = request.header(name, value);
        }
        let answer = request.body(body).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        assert_eq!(status, StatusCode::ACCEPTED, "{asked:?}: {text}");
        Ok(())
    }

    /// Waits until the sandbox is there and the platform was told so: who deletes earlier is told only that it is gone.
    async fn reach(&self, dev: &Dev, phase: Phase) -> Result<(), reqwest::Error> {
        let since = Instant::now();
        loop {
            let seen = self.look(dev).await?;
            let is_reached = |seen: &TargetDetail| seen.info.phase == phase && seen.telling.is_none();
            if seen.as_ref().is_some_and(is_reached) {
                return Ok(());
            }
            let is_stuck =
                seen.as_ref().is_some_and(|seen| matches!(seen.info.phase, Phase::Failed | Phase::Stuck));
            let waited = since.elapsed();
            assert!(!is_stuck && waited < PATIENCE, "{phase:?} is awaited for {waited:?}: {seen:#?}");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What the server knows of the sandbox.
    ///
    /// # Errors
    /// No answer.
    pub(crate) async fn look(&self, dev: &Dev) -> Result<Option<TargetDetail>, reqwest::Error> {
        let url = format!("{}/v1/targets/sandbox/{}", dev.url, self.name);
        let answer = self.http.get(url).bearer_auth(&dev.token).send().await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let seen: TargetDetail = answer.error_for_status()?.json().await?;
        assert_eq!(seen.info.uid, self.uid);
        Ok(Some(seen))
    }
}
