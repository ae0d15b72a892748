//! The text of units that create and delete things of the provider.

use super::plugin_documents as documents;
use super::*;

pub(super) const CONNECTION: &str = "provider";
/// The begin of the paths at which the provider honours idempotency keys, of those at which it may ignore them, and of
/// those at which it refuses a second thing of a name.
const KEYED: &str = "/keyed/";
pub(super) const PLAIN: &str = "/plain/";
pub(super) const NAMED: &str = "/named/";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
pub enum ThingCreation {
    /// The provider honours the idempotency key, so the request may be repeated.
    Keyed,
    /// Each attempt sends the request once.
    Once,
    /// Each attempt sends the request once, and the list of the provider shows an unknown outcome.
    Described,
    /// The request may be repeated. The provider refuses a second thing of its name, and its list shows the first one.
    Named,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
pub enum ThingRemoval {
    /// The unit waits until the thing is gone.
    Awaited,
    /// The unit ends with the answer to its request.
    Unawaited,
    /// The same, and another unit asks for the thing.
    VerifiedByGet,
    /// The same, and another unit asks for the list.
    VerifiedByList,
    /// The undo is skipped if the ID of the thing is not known. Another unit asks for the list in any case.
    Guarded,
    /// The same, and a script with another credential looks for the thing.
    VerifiedByScript,
    /// The same, and an object whose controller looks for it.
    VerifiedByObject,
    /// Another unit deletes the parts of the thing before. Then the unit waits until the thing is gone.
    Emptied,
}

/// A unit that creates a thing of the provider, and its undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderUnit {
    pub creation: ThingCreation,
    pub removal: ThingRemoval,
    /// True if the undo addresses the thing by the name that its creation gives it, and not by its id.
    pub by_name: bool,
    /// True if the requests have the credential of a connection, and not a signature.
    pub connected: bool,
    /// True if there is a thing for each entry of the param `items`.
    pub each: bool,
}

impl Default for ProviderUnit {
    fn default() -> Self {
        let (creation, removal) = (ThingCreation::Keyed, ThingRemoval::Awaited);
        Self { creation, removal, by_name: false, connected: true, each: false }
    }
}

/// A lost message delays a question by up to 15 minutes.
const TIMEOUT: &str = "    timeout: 20m\n";
/// The failures of both that pass.
const RETRY: &str =
    "    retry: {attempts: 4, backoff: 2s, maxBackoff: 1m, on: [timeout, connect, lost, failed, 5xx, 409, 423, 429]}\n";

/// The condition of an answer 200 with an error.
const HAS_ERROR: &str = "type(response.body) == map && has(response.body.error)";

/// A verification is tried again while the thing exists.
const VERIFY_RETRY: &str =
    "retry: {attempts: 10, backoff: 10s, maxBackoff: 5m, on: [timeout, connect, failed, lost, evicted, 5xx, 429]}";

pub(super) fn is_connected(plugin: &str) -> bool {
    plugin.contains(&format!("connection: {CONNECTION}"))
}

impl ProviderUnit {
    /// Returns a random one. The numbers of `more` make another one of some.
    pub(super) fn random([random, more, _]: &[SimRandom; 3]) -> Self {
        use ThingCreation::{Described, Keyed, Once};
        use ThingRemoval::{
            Awaited, Guarded, Unawaited, VerifiedByGet, VerifiedByList, VerifiedByObject, VerifiedByScript,
        };
        let creation = [Keyed, Keyed, Once, Described][random.below(4) as usize];
        let (by_name, connected) = (random.below(2) == 0, random.below(2) == 0);
        let removals =
            [Awaited, Awaited, Unawaited, VerifiedByGet, VerifiedByList, VerifiedByScript, VerifiedByObject, Guarded];
        let removal = removals[random.below(removals.len() as u64) as usize];
        let creation = if more.below(4) == 0 { ThingCreation::Named } else { creation };
        let removal = if more.below(6) == 0 { ThingRemoval::Emptied } else { removal };
        Self { creation, removal, by_name, connected, each: false }
    }

    /// Returns the key and the value of a path of the provider in a webhook.
    fn at(self, path: &str) -> String {
        if self.connected { format!("path: \"{path}\"") } else { format!("url: \"{ORIGIN}{path}\"") }
    }

    fn folder(self) -> &'static str {
        match self.creation {
            ThingCreation::Keyed => KEYED,
            ThingCreation::Once | ThingCreation::Described => PLAIN,
            ThingCreation::Named => NAMED,
        }
    }

    /// Returns the end of the name of a thing, in a text and in an expression.
    fn entry(self) -> (&'static str, &'static str) {
        if self.each { ("-${item}", " + '-' + item") } else { ("", "") }
    }

    fn webhook(self, method: &str, path: &str) -> String {
        let failure = match method {
            // Another request would make another thing, and an answer with an error does not tell whether there is one.
            "POST" if self.folder() == PLAIN => "{'message': response.body.error, 'status': 500} : {}",
            _ => "response.body.error : ''",
        };
        let connected = format!("connection: {CONNECTION}, failed: \"${{{HAS_ERROR} ? {failure}}}\", ");
        let connected = if self.connected { connected.as_str() } else { "" };
        let next = "next: {cursor: \"${response.body.?next_cursor.orValue('')}\"}, ";
        let next = if self.creation == ThingCreation::Named { next } else { "" };
        format!("{connected}{next}method: {method}, {}", self.at(path))
    }

    /// Returns a unit that creates a thing, with the outputs `id` and `endpoint`. `rest` has further lines.
    pub(super) fn setup(self, name: &str, reads: &[String], rest: &str) -> String {
        let (folder, (text, entry)) = (self.folder(), self.entry());
        let own = format!("resource.key + '-{name}'{entry}");
        let once = if folder == PLAIN { ", idempotent: false" } else { "" };
        let (id, address, describe) = match self.creation {
            ThingCreation::Keyed | ThingCreation::Once => {
                ("response.body.id".to_owned(), "${response.body.id}".to_owned(), String::new())
            }
            // The list has other things of the resource, too.
            ThingCreation::Described | ThingCreation::Named => {
                let list = self.at(&format!("{folder}things?name=${{resource.key}}"));
                let found = format!("response.body.things.exists(thing, thing.name == {own})");
                (
                    format!(
                        "has(response.body.things) ? response.body.things.filter(thing, thing.name == {own})[0].id \
                         : response.body.id"
                    ),
                    format!("${{resource.key}}-{name}{text}"),
                    format!(", maxProcessingTime: 1m, describe: {{{list}, found: \"${{{found}}}\"}}"),
                )
            }
        };
        let webhook = self.webhook("POST", &format!("{folder}things"));
        let parts = (self.removal == ThingRemoval::Emptied).then(|| "parts: 3".to_owned());
        let body = [format!("name: \"${{resource.key}}-{name}{text}\"")]
            .into_iter()
            .chain(documents::values(reads))
            .chain(parts);
        let body = body.collect::<Vec<_>>().join(", ");
        let question = self.at(&format!("{folder}things/{address}"));
        let each = if self.each { EACH } else { "" };
        format!(
            "  {name}:\n{rest}{each}{TIMEOUT}{RETRY}    webhook: {{{webhook}, body: {{{body}}}{once}{describe}}}\n    \
             until: {{{question}, ready: \"${{poll.body.state == 'ready'}}\", \
             failed: \"${{poll.body.state == 'failed' ? 'the provider gave up' : ''}}\", every: 5s, maxEvery: 1m}}\n    \
             outputs: {{id: {{value: \"${{{id}}}\"}}, endpoint: {{value: \"${{poll.body.endpoint}}\"}}}}\n"
        )
    }

    /// Returns a unit that deletes the thing of the unit `undone`.
    pub(super) fn undo(self, name: &str, undone: &str, after: &[String]) -> String {
        // A receiver of signed requests announces a callback by 202, unless the unit waits for a state.
        let own = Self { connected: self.connected || self.removal != ThingRemoval::Awaited, ..self };
        let (text, entry) = self.entry();
        let key = format!("${{resource.key}}-{undone}{text}");
        let is_guarded = self.removal == ThingRemoval::Guarded;
        let id = format!("${{units.{undone}.outputs.id}}");
        let address = if self.by_name && !is_guarded { key.clone() } else { id };
        let guard = format!("    when: \"${{has(units.{undone}.outputs.id)}}\"\n");
        let guard = if is_guarded { guard.as_str() } else { "" };
        let thing = format!("{}things/{address}", self.folder());
        let verified = |action: &str| format!("    verify: {{{action}, {VERIFY_RETRY}}}\n");
        let verify = |request: &str| verified(&format!("webhook: {{{request}}}"));
        let rest = match self.removal {
            ThingRemoval::Awaited | ThingRemoval::Emptied => {
                format!("    timeout: 25m\n    until: {{{}, gone: true, every: 5s}}\n", own.at(&thing))
            }
            ThingRemoval::Unawaited => String::new(),
            ThingRemoval::VerifiedByGet => verify(&own.webhook("GET", &thing)),
            ThingRemoval::VerifiedByList | ThingRemoval::Guarded => {
                let question = own.webhook("GET", &format!("{}things?name={key}", self.folder()));
                let when = if is_guarded { "}, when: \"${true}\"" } else { "}" };
                let name = format!("resource.key + '-{undone}'{entry}");
                let absent = format!("absent: \"${{!response.body.things.exists(thing, thing.name == {name})}}\"");
                verified(&format!("webhook: {{{question}, {absent}{when}"))
            }
            ThingRemoval::VerifiedByScript => verified(documents::POD.trim()),
            ThingRemoval::VerifiedByObject => {
                let manifest = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: \"{key}\"}}}}");
                verified(&format!("object: {{manifest: {manifest}}}"))
            }
        };
        let unit = |name: &str, after: &[String], rest: &str, path: &str| {
            let (after, webhook) = (list("after", after), own.webhook("DELETE", path));
            format!("  {name}:\n    undoes: [{undone}]\n{after}{guard}{RETRY}{rest}    webhook: {{{webhook}}}\n")
        };
        if self.removal != ThingRemoval::Emptied {
            return unit(name, after, &rest, &thing);
        }
        let first = format!("{name}-parts");
        let repeat = format!("    repeat: {{{}, while: \"${{size(poll.body.parts) > 0}}\"}}\n", own.at(&thing));
        let parts = unit(&first, after, &repeat, &format!("{thing}/parts/${{poll.body.parts[0]}}"));
        parts + &unit(name, &[after, &[first]].concat(), &rest, &thing)
    }

    /// Returns a target with a thing, or four of a list, which another unit reads. `head` has further lines of its plugin.
    pub fn target(self, head: &str) -> TargetScenario {
        let reader = documents::setup("reader", UnitAction::Once, &["thing.endpoint".to_owned()], "");
        let first = documents::head("p", false, documents::DEFAULTS);
        let first = if self.each { documents::with_items(&first, "[a, b, c, d]") } else { first };
        let plugin = first
            + head
            + &documents::hook(Hook::PreStart, [self.setup("thing", &[], ""), reader].into_iter())
            + &documents::hook(Hook::PostStop, [self.undo("remove", "thing", &[])].into_iter());
        let document = "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: NAME\nresources:\n  r: {plugin: p@1.0.0}\n";
        let plugins = vec![("p".to_owned(), "1.0.0".to_owned(), plugin)];
        TargetScenario::new(plugins, document.to_owned(), UnitBehavior::Steady)
    }
}
