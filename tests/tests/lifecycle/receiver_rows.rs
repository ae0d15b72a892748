//! How rows tell the receiver to answer, and what they expect of its requests.

use ebb_protocol::sign::{self, WebhookKeys};
use ebb_tests::receiver::ReplyHold;

use super::expected_values::{differs, options};
use super::{TableRow, in_json};
use crate::harness::*;

/// Returns a reply of the receiver: a status, the body of a status 200, or a list of both and of headers. A text is a page.
fn canned(reply: &Value) -> CannedReply {
    match reply {
        Value::Number(status) => CannedReply::status(u16::try_from(status.as_u64().unwrap()).unwrap()),
        Value::String(page) => CannedReply::text(200, "text/html", page),
        Value::Array(parts) if matches!(parts.len(), 2 | 3) => {
            let headers = parts.iter().skip(2).filter_map(Value::as_object).flatten();
            let body = match (parts[0].as_u64(), &parts[1]) {
                (Some(status), Value::String(page)) => {
                    CannedReply::text(u16::try_from(status).unwrap(), "text/html", page)
                }
                (_, body) => canned(&parts[0]).with(body.clone()),
            };
            headers.fold(body, |reply, (name, value)| reply.header(name.clone().leak(), value.as_str().unwrap()))
        }
        _ => CannedReply::ok(reply.clone()),
    }
}

impl TableRow {
    /// Tells the receiver how to answer from now on.
    pub(super) fn instruct(&self, receiver: &TestReceiver, held: &mut BTreeMap<String, ReplyHold>) {
        for (line, reply) in &self.reply {
            let reply = reply.to_string();
            receiver.on(line, move |call: &ReceivedCall, _| {
                let reply = reply.replace("AUTHORIZATION", &in_json(call.header("authorization")));
                canned(&serde_json::from_str(&reply).unwrap())
            });
        }
        for (line, replies) in &self.replies {
            receiver.replies(line, &replies.iter().map(canned).collect::<Vec<_>>());
        }
        for (path, answers) in self.relay.clone() {
            receiver.on(&format!("POST {path}/v1/batch"), move |call: &ReceivedCall, _| {
                let answer = |request: &Value| {
                    let found = answers.iter().find(|(text, _)| request.to_string().contains(text));
                    found.map_or_else(|| json!("done"), |(_, answer)| answer.clone())
                };
                let responses: Value = call.body["requests"].as_array().unwrap().iter().map(answer).collect();
                CannedReply::ok(json!({"v": 1, "cluster": "uid", "responses": responses}))
            });
        }
        held.extend(self.hold.iter().map(|line| (line.clone(), receiver.hold(line))));
        if let Some(line) = &self.release {
            assert!(held.remove(line).is_some(), "{line} is not held");
        }
    }

    pub(super) async fn check_requests(&self, receiver: &TestReceiver) -> anyhow::Result<()> {
        for (line, number) in &self.received {
            receiver.call(line, *number).await;
        }
        for (line, texts) in &self.texts {
            until(&format!("{line} with {texts:?}"), async || {
                let body = receiver.calls(line).last()?.body.to_string();
                texts.iter().all(|text| body.contains(text)).then_some(())
            })
            .await;
        }
        for (line, expected) in &self.bodies {
            let body = json!({"": receiver.call(line, 1).await.body});
            differs(&body, &[("/".to_owned(), expected.clone())].into())?;
        }
        for (line, expected) in &self.values {
            differs(&receiver.call(line, 1).await.body, expected)?;
        }
        for (line, headers) in &self.headers {
            let call = receiver.call(line, 1).await;
            let is_wrong = |(name, expected): &(&String, &String)| {
                let (found, start) = (call.header(name), expected.strip_suffix('*'));
                start.map_or(found != **expected, |start| found.len() <= start.len() || !found.starts_with(start))
            };
            let wrong = headers.iter().find(is_wrong).map(|(name, _)| (name, call.header(name)));
            ensure!(wrong.is_none(), "{line} has {wrong:?}");
        }
        for (line, headers) in &self.distinct {
            let calls = receiver.calls(line);
            for (name, expected) in headers {
                let values = calls.iter().map(|call| format!("{:?}", Vec::from_iter(call.headers.get_all(name))));
                let values = values.map(|values| values.trim_matches(['[', ']', '"']).to_owned());
                let values = BTreeSet::from_iter(values);
                let is_expected = *expected == json!(values) || *expected == json!(values.len());
                ensure!(is_expected, "{line} has {name}: {values:?}");
            }
        }
        for (line, secrets) in &self.signatures {
            let call = receiver.call(line, 1).await;
            let body = if call.body.is_null() { String::new() } else { call.body.to_string() };
            for (secret, expected) in secrets {
                let key = WebhookKeys::from(WebhookSecret::parse(secret).unwrap());
                let is_signed = sign::verify(&key, &call.headers, body.as_bytes(), now()).is_ok();
                ensure!(is_signed == *expected, "{line} is signed with {secret}: {is_signed}");
            }
        }
        for (line, seconds) in &self.pauses {
            let pause = receiver.call(line, 2).await.at - receiver.call(line, 1).await.at;
            ensure!(pause >= Duration::from_secs(*seconds), "{line}: {pause:?}");
        }
        for (line, expected) in &self.counts {
            let count = receiver.count(line);
            ensure!(options(expected).contains(&json!(count)), "{line} came {count} times");
        }
        let order = receiver.order();
        ensure!(self.order.as_ref().is_none_or(|expected| order == *expected), "the order is {order:?}");
        let Some(expected) = &self.requests else { return Ok(()) };
        let mut calls = receiver.all();
        calls.retain(|call| !call.line.ends_with("/v1/batch"));
        let mut bodies = BTreeMap::<&str, Vec<&Value>>::new();
        for call in &calls {
            bodies.entry(&call.line).or_default().push(&call.body);
        }
        let expected_counts = expected.iter().map(|(line, bodies)| (line.as_str(), bodies.len()));
        let has_counts = bodies.iter().map(|(line, bodies)| (*line, bodies.len())).eq(expected_counts);
        ensure!(has_counts, "the requests are {bodies:?}");
        for (body, expected) in bodies.values().flatten().zip(expected.values().flatten()) {
            differs(body, expected)?;
        }
        receiver.forget();
        Ok(())
    }
}
