//! Warnings about the requests of webhook units, and about what scripts make of secrets.

use ebb_engine::Hook;

use super::webhook::is_url;
use super::{CompiledUnit, ExpressionRead, TextRole, for_each, profile};
use crate::cel::{ReferenceSource, RootVariable};
use crate::model::{ActionDoc, LineColumn, OutputDoc, OutputFromDoc, SourceText, WebhookMethod};
use crate::plan::{Action, OutputFrom};
use crate::template::{TemplatePiece, is_in_cluster, split};

/// A warning: its code, place, message and help.
pub(super) type UnitWarning = (&'static str, LineColumn, String, &'static str);

/// Returns the warnings about the unit `at` of a document.
pub(super) fn of_unit(source: &SourceText, units: &[CompiledUnit<'_>], at: usize) -> impl Iterator<Item = UnitWarning> {
    let unit = &units[at];
    let of_request = [
        repeated_creation(units, at),
        late_question(unit),
        line_feed(source, units, at),
        unnamed_removal(units, at),
        inner_host(unit),
    ];
    let of_answers =
        [unknown_outcome(unit), foreign_answer(unit), part_of_list(unit), same_for_all(unit), unjudged(unit)];
    of_request.into_iter().chain(of_answers).chain([shown_secret(unit)]).flatten()
}

/// A host that only a cluster knows.
fn inner_host(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let ActionDoc::Webhook(webhook) = &unit.doc.action else { return None };
    let url = webhook.url.as_ref().filter(|url| is_url(url, is_in_cluster) && unit.doc.cluster.is_none())?;
    let message = format!("`{}` is at a name that only a cluster knows", url.value);
    let help = "add `cluster: NAME` beside `webhook`: the relay of the cluster then sends the request";
    Some(("cluster-host", url.at, message, help))
}

/// An address that a script makes, and that may contain the secret which the script reads.
fn shown_secret(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let input = &unit.plan.inputs.iter().find(|input| input.sensitive)?.name;
    let is_address = |output: &&OutputDoc| {
        let name = output.name.value.to_ascii_lowercase();
        let ends = ["dsn", "url", "uri", "connection", "string"];
        output.sensitive.is_none() && !output.is_sensitive() && ends.iter().any(|end| name.ends_with(end))
    };
    let (output, name) = (&unit.doc.outputs.iter().find(is_address)?.name, &unit.doc.name.value);
    let message = format!(
        "output `{}` of `{name}` is not sensitive, and the unit reads the sensitive input `{input}`",
        output.value
    );
    let help = "add `sensitive: true` if it contains the input, otherwise `sensitive: false`";
    Some(("sensitive-output", output.at, message, help))
}

/// The text of a file in a URL. Most commands end it with a line feed.
fn line_feed(source: &SourceText, units: &[CompiledUnit<'_>], at: usize) -> Option<UnitWarning> {
    let is_raw = |found: &&ExpressionRead| {
        let ReferenceSource::Output { unit, output } = &found.source else { return false };
        let made = units.iter().find(|made| made.doc.name.value == *unit);
        let made = made.and_then(|made| made.plan.outputs.get(output));
        found.role == TextRole::Url
            && made.is_some_and(|made| matches!(made.from, OutputFrom::File(_)) && !made.trim && !made.json)
    };
    let found = units[at].uses.iter().find(is_raw)?;
    let message = format!("a line feed at the end of `{}` becomes `%0A` in the URL", found.source);
    Some(("line-feed", found.spot.pos(source), message, "add `trim: true` to the output"))
}

/// A creation by `POST` at a connection, whose server may not know the idempotency key. The undo knows only the ID in the last
/// response.
fn repeated_creation(units: &[CompiledUnit<'_>], at: usize) -> Option<UnitWarning> {
    let name = &units[at].doc.name;
    let ActionDoc::Webhook(webhook) = &units[at].doc.action else { return None };
    let connection = webhook.connection.as_ref()?;
    // An output that does not read the response is the same for each request.
    let reads_response = |text: &str| ["response", "poll"].iter().any(|word| text.contains(word));
    let is_of_response = |output: &str| {
        let named = units[at].doc.outputs.iter().find(|known| known.name.value == output);
        named.is_some_and(|known| matches!(&known.from, OutputFromDoc::Value(text) if reads_response(&text.value)))
    };
    let reads = |undo: &CompiledUnit<'_>| {
        let is_id = |source: &ReferenceSource| match source {
            ReferenceSource::Output { unit, output } => *unit == name.value && is_of_response(output),
            _ => false,
        };
        let is_undo = undo.undoes.contains(&at) && undo.doc.verifies.is_none() && profile::acts(undo);
        is_undo && undo.uses.iter().any(|found| is_id(&found.source))
    };
    let is_repeated = webhook.method == WebhookMethod::Post && webhook.idempotent.is_none();
    if !is_repeated || units[at].hook > Hook::PostStart || !units.iter().any(reads) {
        return None;
    }
    let message = format!(
        "after a lost response, `{}` is sent again: a server that ignores `idempotency-key` makes another thing, which no \
         undo knows",
        name.value
    );
    let help = "write `idempotent: true` if the server knows the key; otherwise `idempotent: false` with `describe`, or an \
                undo that addresses the thing by a name such as `resource.key`";
    Some(("idempotent", connection.at, message, help))
}

/// A deletion of what an undo has found, by a unit that undoes nothing. Its success shows nothing about the thing.
fn unnamed_removal(units: &[CompiledUnit<'_>], at: usize) -> Option<UnitWarning> {
    let (unit, ActionDoc::Webhook(webhook)) = (&units[at], &units[at].doc.action) else { return None };
    let is_undo = |name: &str| units.iter().any(|other| other.doc.name.value == name && !other.undoes.is_empty());
    let finds =
        |found: &&ExpressionRead| matches!(&found.source, ReferenceSource::Output { unit, .. } if is_undo(unit));
    if webhook.method != WebhookMethod::Delete || !unit.undoes.is_empty() || unit.doc.verifies.is_some() {
        return None;
    }
    let ReferenceSource::Output { unit: read, .. } = &unit.uses.iter().find(finds)?.source else { return None };
    let name = &unit.doc.name;
    let message =
        format!("`{}` deletes what `{read}` has found, and undoes nothing: its removal stays unconfirmed", name.value);
    Some(("unnamed-removal", name.at, message, "add `undoes` with the unit that makes the thing"))
}

/// A creation whose outcome nothing tells after a lost response.
fn unknown_outcome(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let ActionDoc::Webhook(webhook) = &unit.doc.action else { return None };
    let name = &unit.doc.name;
    if webhook.idempotent != Some(false) || webhook.describe.is_some() || unit.hook > Hook::PostStart {
        return None;
    }
    let message = format!(
        "after a lost response or a status 5xx, `{}` fails and is not sent again: nothing tells whether it has made something",
        name.value
    );
    let help = "add `describe`, which asks by a name such as `resource.key`, and `maxProcessingTime`";
    Some(("unknown-outcome", name.at, message, help))
}

/// A question about the result of a request that does not name the own thing.
fn foreign_answer(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let ActionDoc::Webhook(webhook) = &unit.doc.action else { return None };
    let describe = webhook.describe.as_ref()?;
    let Action::Webhook(plan) = &unit.plan.action else { return None };
    let texts = serde_json::to_string(plan.describe.as_ref()?).unwrap_or_default();
    if ["resource.key", "target.key", "target.name", "target.uid"].iter().any(|own| texts.contains(own)) {
        return None;
    }
    let at = describe.url.as_ref().or(describe.path.as_ref()).map_or(unit.doc.name.at, |url| url.at);
    let message = "`describe` names no own thing, so it adopts a thing of another resource".to_owned();
    Some(("foreign-answer", at, message, "search for a name with `resource.key`, or add `found`"))
}

/// A conclusion from a list that is neither searched nor names its pages.
fn part_of_list(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let ActionDoc::Webhook(webhook) = &unit.doc.action else { return None };
    let describe = webhook.describe.as_ref();
    let until = unit.doc.until.as_ref().filter(|_| !unit.undoes.is_empty());
    let Action::Webhook(plan) = &unit.plan.action else { return None };
    let text = |body: Option<&serde_json::Value>| body.map(ToString::to_string).unwrap_or_default();
    let questions = [
        Some(("absent", &webhook.absent, &webhook.url, &webhook.path, text(plan.body.as_ref()))),
        describe.map(|asked| {
            let body = plan.describe.as_ref().and_then(|asked| asked.body.as_ref());
            ("found", &asked.found, &asked.url, &asked.path, text(body))
        }),
        until.map(|asked| {
            let body = plan.until.as_ref().and_then(|asked| asked.body.as_ref());
            ("ready", &asked.ready, &asked.url, &asked.path, text(body))
        }),
    ];
    let reads_list =
        |text: &str| ["exists", "filter(", "all(", "size(", " in ", "contains("].iter().any(|word| text.contains(word));
    let mut found = questions.into_iter().flatten().filter_map(|(key, state, url, path, body)| {
        let (state, url) = (state.as_ref()?, url.as_ref().or(path.as_ref())?);
        (reads_list(&state.value) && !is_search(&url.value) && !is_search(&body)).then_some((key, state.at))
    });
    let (key, at) = found.next().filter(|_| webhook.next.is_none())?;
    let message = format!("`{key}` reads a list without a search: the thing may be on a further page");
    let help = "search for its name, or add `next`; a `Link` with `rel=\"next\"` is followed without it";
    Some(("list-pages", at, message, help))
}

/// Returns true if a URL or a body names the own thing: by an expression of its own, or by one in the last segment of a path or in
/// a parameter that searches.
fn is_search(text: &str) -> bool {
    let roots = ["inputs", "item", "target", "units", "response"];
    let is_own = |name: &str| name.starts_with("resource.key") || roots.contains(&name.split('.').next().unwrap_or(""));
    split(text).unwrap_or_default().iter().any(|piece| {
        let TemplatePiece::Expression { text: of, offset } = piece else { return false };
        let mut names = of.split(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c));
        let (before, after) = (&text[..*offset], &text[offset + of.len()..]);
        let searches = ["name=", "id=", "key=", "q=", "search=", "filter=", "prefix=", "query="];
        let is_named = searches.iter().any(|key| before.trim_end_matches("${").ends_with(key));
        names.any(is_own) || is_named || (before.contains('/') && !before.contains('?') && after == "}")
    })
}

/// A request of GraphQL, whose errors have the status 200.
fn unjudged(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let (ActionDoc::Webhook(webhook), Action::Webhook(plan)) = (&unit.doc.action, &unit.plan.action) else {
        return None;
    };
    let query = plan.body.as_ref()?.get("query")?.as_str()?.trim_start();
    if webhook.failed.is_some() || !["query", "mutation", "{"].iter().any(|word| query.starts_with(word)) {
        return None;
    }
    let message = format!("an error of GraphQL has the status 200, so it is a success of `{}`", unit.doc.name.value);
    Some(("graphql", unit.doc.name.at, message, "add `failed: graphql`"))
}

/// A request or object that is the same for each entry of a list. A script has variables that differ.
fn same_for_all(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let at = unit.doc.for_each.as_ref()?.at;
    let differs = |found: &ExpressionRead| {
        matches!(found.source, ReferenceSource::Root(RootVariable::Item) | ReferenceSource::Output { .. })
    };
    if matches!(unit.doc.action, ActionDoc::Pod(_)) || unit.uses.iter().any(differs) {
        return None;
    }
    let message = format!("`{}` does not read `item`, so it does the same for each entry", unit.doc.name.value);
    Some((for_each::CODE, at, message, "read `item`, or leave out `forEach`"))
}

/// A wait that ends before its first question is due.
fn late_question(unit: &CompiledUnit<'_>) -> Option<UnitWarning> {
    let Action::Webhook(webhook) = &unit.plan.action else { return None };
    let (until, doc) = (webhook.until.as_ref()?, unit.doc.until.as_ref()?);
    if until.every_ms < unit.plan.timeout_ms {
        return None;
    }
    let name = &unit.doc.name;
    let message = format!("`{}` asks once, shortly before its timeout: `every` is not below it", name.value);
    let at = doc.every.as_ref().map_or(name.at, |every| every.at);
    Some(("until", at, message, "decrease `every`, or increase `timeout`"))
}
