//! The plugins of providers in `tests/examples`, with each mishap of their providers. What a provider has after the
//! teardown, by its own inventory, is what Ebb says that may remain.

use std::fs;

use clap::ValueEnum as _;
use ebb_local::pods::secrets;
use ebb_tests::provider::{Mishap, Provider, ProviderApi};
use futures::future::join_all;
use libtest_mimic::Trial;
use standardwebhooks::Webhook;

use crate::harness::*;
use crate::request_table::table;
use crate::security::secrets::{
    GIVEN, MADE, api_responses, assert_no_event_contains_it, contains, contains_canary, stored,
};

/// The maximum lines of a plugin in the examples.
const MAX_LINES: usize = 70;
/// The versions of a plugin: with its timeouts, with a short one of the setup, and with a short one of the teardown.
const VERSIONS: [&str; 3] = ["1.0.0", "1.0.1", "1.0.2"];

/// The phase after the setup, the grade of the evidence of a gone target, and the version of the plugin, which can end a wait
/// soon. Without a grade, the target is stuck.
type MishapEnd = (TargetPhase, Option<String>, String);

/// A plugin and its documents in a folder of `tests/examples`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderExample {
    api: ProviderApi,
    /// The folder, and the name of the connection.
    folder: String,
    plugin: String,
    origin: String,
    secret: Option<String>,
    /// The param of the sandbox that names the account.
    account: String,
    /// The unit whose resource the plugin removes.
    unit: String,
    output: String,
    /// By their accounts. Nothing for one that no request of the plugin meets.
    mishaps: BTreeMap<String, Option<MishapEnd>>,
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "there is no {from} in:\n{text}");
    text.replace(from, to)
}

/// Waits until a target is in one of these phases.
async fn ended(harness: &Harness, name: &str, phases: [TargetPhase; 2]) -> TargetPhase {
    until(&format!("{phases:?} of {name}"), async || {
        let phase = harness.target(name).await?.info.phase;
        phases.contains(&phase).then_some(phase)
    })
    .await
}

impl ProviderExample {
    fn file(&self, name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(&self.folder);
        fs::read_to_string(folder.join(name)).unwrap()
    }

    /// Returns true if the API shows a password.
    fn has_password(&self) -> bool {
        self.api != ProviderApi::Atlas && !self.api.is_instant()
    }

    fn end(&self, mishap: Mishap) -> &MishapEnd {
        self.mishaps[&mishap.account()].as_ref().unwrap()
    }

    /// Replaces the version of the plugin at the end of each line that names one.
    fn with_version(&self, text: &str, version: &str) -> String {
        let name = format!("{}@", self.plugin);
        let lines = text.lines().map(|line| match line.split_once(&name) {
            Some((before, _)) => format!("{before}{name}{version}\n"),
            None => format!("{line}\n"),
        });
        lines.collect()
    }

    /// Returns the plugin for the stand-in, with short waits.
    fn document(&self, version: &str, provider: &Provider) -> String {
        let text = self.file("plugin.yaml");
        assert!(text.lines().count() <= MAX_LINES, "the plugin in {} is too long", self.folder);
        let retry = "retry: {attempts: 5, backoff: 20ms, maxBackoff: 200ms, on: ";
        let text = replaced(&self.with_version(&text, version), "retry: {on: ", retry);
        // The outcome of a request is asked for after 10 s, and once more at the end of this time.
        let processing = if version == VERSIONS[1] { "maxProcessingTime: 1s" } else { "maxProcessingTime: 12s" };
        let text = text.replace("maxProcessingTime: 1m", processing).replace("every: 5s", "every: 1s");
        let text = match version {
            "1.0.1" => replaced(&text, "timeout: 30m", "timeout: 3s"),
            "1.0.2" => text.replace("timeout: 20m", "timeout: 3s"),
            _ => text,
        };
        if self.api != ProviderApi::Rds {
            return text.replace(&self.origin, provider.receiver.url());
        }
        let script = self.file("rds.sh");
        assert!(script.contains(&self.origin), "the script has another server");
        let script = json!(replaced(&script, "sleep 15", "sleep 0.1")).to_string();
        replaced(&text, "\"@{embed: rds.sh}\"", &script)
    }

    /// Returns the sandbox for an account of the stand-in. It has a script that fails unless it gets the password, or the other
    /// output.
    fn sandbox(&self, mishap: Mishap, provider: &Provider) -> LifecycleData {
        let name = mishap.account();
        let account = match self.api {
            ProviderApi::Rds => format!("{}, endpoint: \"{}/rds/{name}\"", self.account, provider.receiver.url()),
            _ => format!("{}: {name}", self.account.split_once(": ").unwrap().0),
        };
        let text = replaced(&self.file("sandbox.yaml"), "name: shop-pr-7", &format!("name: {name}"));
        let text = self.with_version(&replaced(&text, &self.account, &account), &self.end(mishap).2);
        let wanted = if self.has_password() { "*\"$(printf 'canary-%s-made' 4711)\"*" } else { "?*" };
        let script = format!("#!/bin/sh -eu\ncase $VALUE in {wanted}) ;; *) exit 1 ;; esac");
        let runners = json!({"shell": {"image": "busybox:1.37"}});
        let inputs = json!({"value": format!("${{resources.{}}}", self.output)});
        let own = json!({"use": {"cleanup": "none", "pod": {"script": script}, "inputs": inputs}});
        let document = Some(format!("{text}runners: {runners}\npreStart: {own}\n"));
        LifecycleData { document, ..sandbox(&name, &format!("{name}-uid"), "none") }
    }

    /// Writes the credential, and the other secrets that sandboxes name.
    fn give(&self, harness: &Harness, token: &str) {
        let state = harness.folder().join("state");
        match &self.secret {
            Some(name) => harness.write_secrets(&json!({ name: token })),
            None => {
                secrets::put(&state, "aws", "credential", format!("{token}:secret").as_bytes()).unwrap();
                secrets::put(&state, "app-db", "password", MADE.as_bytes()).unwrap();
            }
        }
    }

    async fn set_up(&self, harness: &Harness, provider: &Provider, mishap: Mishap) {
        let (name, place) = (mishap.account(), format!("{} {mishap:?}", self.folder));
        harness.lifecycle(LifecycleType::Created, &self.sandbox(mishap, provider)).await.is(202);
        let phase = ended(harness, &name, [TargetPhase::Ready, TargetPhase::Failed]).await;
        assert_eq!(phase, self.end(mishap).0, "{place}: {:#?}", harness.why(&name).await);
        // The provider has made the thing whose answer lacks a field.
        if mishap != Mishap::MissingField {
            assert_eq!(provider.is_ready(&name), phase == TargetPhase::Ready, "{place}");
        }
        if self.api == ProviderApi::Supabase && mishap == Mishap::FailingCreation {
            let cause = harness.why(&name).await.cause.unwrap();
            assert_eq!(cause.reason.message, "the branch is INIT_FAILED", "{place}");
        }
    }

    /// Checks that the `inventory` of the plugin has all things of an account, also those of a second page.
    async fn list(&self, harness: &Harness, provider: &Provider, mishap: Mishap) {
        let (name, place) = (mishap.account(), format!("{} {mishap:?}", self.folder));
        let document = self.sandbox(mishap, provider).document.unwrap();
        let resources = serde_saphyr::from_str::<Value>(&document).unwrap()["resources"].take();
        let resource = resources.as_object().unwrap().keys().next().unwrap().clone();
        let document = json!({"apiVersion": "ebb.dev/v1", "kind": "Target", "targetKind": "inventory", "name": name,
            "resources": resources});
        let applied = json!({"kind": "inventory", "name": name, "document": document.to_string()});
        harness.post("/v1/targets", applied).await.is(202);
        let what = format!("the inventory of {place}");
        let listed = until(&what, async || {
            let target = harness.operator().target(&format!("inventory/{name}")).await?;
            assert_ne!(target.info.phase, TargetPhase::Failed, "{place}: {:#?}", target.runs);
            (target.info.phase == TargetPhase::Ready).then(|| json!(target.resources[&resource].outputs["things"]))
        });
        let listed = listed.await["value"].take().to_string();
        let own = provider.inventory(&name);
        assert!(!own.is_empty() && own.iter().all(|own| listed.contains(own)), "{place}: {own:?} in {listed}");
    }

    async fn tear_down(&self, harness: &Harness, provider: &Provider, mishap: Mishap) {
        use Mishap::{Busy, ErrorInSuccess, Expired, LateList, LateRead, RateLimit};
        let (name, place) = (mishap.account(), format!("{} {mishap:?}", self.folder));
        harness.delete(&name).await;
        let phase = ended(harness, &name, [TargetPhase::Gone, TargetPhase::Stuck]).await;
        let why: Value = harness.get(&format!("/v1/targets/sandbox/{name}/why")).await.is(200).json();
        let (left, grade) = (provider.inventory(&name), self.end(mishap).1.as_deref());
        if let Some(grade) = grade {
            assert_eq!(phase, TargetPhase::Gone, "{place}: {why:#}");
            let removals = why["removals"].as_array().into_iter().flatten();
            let of_it: Vec<&Value> = removals.filter(|removal| removal["unit"] == self.unit).collect();
            assert!(of_it.len() == 1 && of_it[0]["grade"] == grade, "{place}: not {grade}: {why:#}");
            assert_eq!(left.len(), usize::from(grade == "unconfirmed"), "{place}: {left:?} is left, {why:#}");
        } else {
            assert_eq!(phase, TargetPhase::Stuck, "{place}: {why:#}");
            assert_eq!(left.len(), 1, "{place}: {left:?} is left");
            assert_eq!(harness.remaining(&name).await, [(self.unit.clone(), Certainty::Exists)], "{place}");
            provider.heal(&name);
            harness.post(&format!("/v1/targets/sandbox/{name}/retry"), json!({})).await.is(202);
            harness.phase(&name, TargetPhase::Gone).await;
            let left = provider.inventory(&name);
            assert!(left.is_empty(), "{place}: {left:?} is left after a retry");
        }
        assert_eq!(provider.made(&name), usize::from(mishap != Mishap::Full), "{place}: the number of creations");
        if matches!(mishap, LateList | LateRead | RateLimit | Busy | ErrorInSuccess | Expired) {
            assert!(provider.has_met(&name), "{place}: no request met the mishap");
        }
    }

    /// Checks that neither the credential nor the password is in the table, the bucket, a response or a notification.
    async fn assert_not_leaked(&self, harness: &Harness) {
        let state = harness.folder().join("state");
        let parts = ["table", "bucket"].map(|part| state.join(part));
        let mut stored = stored(&state);
        stored.retain(|file, _| parts.iter().any(|part| file.starts_with(part)));
        let is_found = stored.values().any(|bytes| contains(bytes, self.plugin.as_bytes()));
        assert!(is_found, "the search does not find stored texts");
        let leaks: Vec<_> = stored.iter().filter(|(_, bytes)| contains_canary(bytes)).map(|(file, _)| file).collect();
        assert!(leaks.is_empty(), "{}: a secret is in {leaks:?}", self.folder);
        assert_no_event_contains_it(harness);
        for (path, body) in api_responses(harness, &Mishap::Nothing.account()).await {
            assert!(!contains_canary(body.as_bytes()), "{path}: {body}");
        }
    }

    /// Checks that a token with the scope for it reads the password that Ebb stores. The output of a script stays in the
    /// cluster, so the response has a reference.
    async fn assert_revealed(&self, harness: &Harness) {
        let token = harness.token("job", &["read", "targets:reveal"]).await;
        let line = format!("GET /v1/targets/sandbox/{}?reveal=true", Mishap::Nothing.account());
        let reply = harness.with_token(&token, &line, None).await;
        let env = reply.is(200).json::<Value>()["env"].to_string();
        assert_eq!(env.contains(MADE), self.has_password() && self.api != ProviderApi::Rds, "{}: {env}", self.folder);
    }

    /// Runs a target through each mishap, all at the same time.
    async fn survives(&self) {
        let harness = Harness::new().await;
        let secret = harness.stack().env().settings.unit_keys.for_plugin(&self.plugin).reveal().remove(0);
        let (webhook, is_signed) = (Webhook::new(&secret).unwrap(), self.api == ProviderApi::Tenants);
        let verify = move |call: &ReceivedCall, body: &[u8]| match is_signed {
            true => webhook.verify(body, &call.headers).map_err(|error| error.to_string()),
            false => Ok(()),
        };
        let tokens = [GIVEN.to_owned(), format!("{GIVEN}-2")];
        let provider = Provider::start(self.api, tokens.clone(), MADE, verify).await;
        self.give(&harness, &tokens[0]);
        if self.secret.is_some() {
            let connection = replaced(&self.file("connection.yaml"), &self.origin, provider.receiver.url());
            harness.operator().put("Connection", &self.folder, &connection).await.is(200);
        }
        for version in VERSIONS {
            let document = self.document(version, &provider);
            harness.post("/v1/plugins", json!({"document": document})).await.is(201);
        }
        let mishaps: Vec<Mishap> =
            Mishap::value_variants().iter().copied().filter(|one| self.mishaps[&one.account()].is_some()).collect();
        join_all(mishaps.iter().map(|&mishap| self.set_up(&harness, &provider, mishap))).await;
        self.assert_revealed(&harness).await;
        let with_list = mishaps.iter().filter(|mishap| matches!(mishap, Mishap::Nothing | Mishap::SecondPage));
        join_all(with_list.map(|&mishap| self.list(&harness, &provider, mishap))).await;
        provider.turn();
        // After these mishaps, only a list shows that nothing is left. It shows nothing to a credential that has not sent the
        // requests before. A rejection with the status 200 does not show that nothing was made.
        let (first, others): (Vec<Mishap>, Vec<Mishap>) = mishaps.iter().partition(|&&mishap| {
            mishap == Mishap::LostDeletion || (mishap == Mishap::Full && self.api == ProviderApi::Railway)
        });
        join_all(first.into_iter().map(|mishap| self.tear_down(&harness, &provider, mishap))).await;
        self.give(&harness, &tokens[1]);
        join_all(others.into_iter().map(|mishap| self.tear_down(&harness, &provider, mishap))).await;
        assert_eq!(provider.receiver.refused(), [""; 0]);
        self.assert_not_leaked(&harness).await;
        let listed: Value = harness.get("/v1/targets?gone=true&unconfirmed=true").await.is(200).json();
        let names =
            listed["targets"].as_array().unwrap().iter().map(|target| target["name"].as_str().unwrap().to_owned());
        let is_listed = |mishap: &&Mishap| self.end(**mishap).1.as_deref() == Some("unconfirmed");
        let expected: Vec<String> = mishaps.iter().filter(is_listed).map(|mishap| mishap.account()).collect();
        assert_eq!(names.collect::<Vec<_>>(), expected, "{}: targets that may have left something", self.folder);
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |provider| {
        Trial::test(format!("lifecycle::providers::{provider}"), move || {
            block_on(table::<ProviderExample>("lifecycle/providers.yaml", provider, &[]).survives());
            Ok(())
        })
    };
    ["neon", "planetscale", "supabase", "atlas", "stripe", "bucket", "railway", "rds", "tenants"].map(trial).into()
}
