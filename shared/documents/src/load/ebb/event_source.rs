//! Reads `kind: Source`.

use ebb_engine::SignedPiece;

use crate::diagnostic::SECRET_NAME;
use crate::load::ebb;
use crate::load::names::{MAX_NAME, NameSyntax, is_name};
use crate::model::{At, EventAction, SUPPLIED_KEYS, SourceDoc, VerifyDoc};
use crate::{DocumentReader, NodePath, YamlNode, YamlValue};

/// Reads a source. Returns `None` after it has reported an error.
pub(super) fn event_source(reader: &DocumentReader<'_>, node: &YamlNode, expanded: String) -> Option<SourceDoc> {
    let source: SourceDoc = reader.read(node)?;
    if let Some(document) = node.get("document") {
        check_document(reader, document, &NodePath::Key(&NodePath::Root, "document"));
    }
    if let Some(YamlValue::List(events)) = node.get("events").map(|events| &events.value) {
        for (number, event) in events.iter().enumerate() {
            if let Some(document) = event.get("apply").and_then(|apply| apply.get("document")) {
                let path = NodePath::Item(&NodePath::Key(&NodePath::Root, "events"), number);
                check_document(reader, document, &NodePath::Key(&NodePath::Key(&path, "apply"), "document"));
            }
        }
    }
    let source = SourceDoc { source: reader.source.clone(), expanded, ..source };
    reader.check_name(&source.name, "the source's name", NameSyntax::Signadot, MAX_NAME);
    if let Some(verify) = &source.verify {
        check_verify(reader, verify);
    }
    if let Some(fetch) = &source.fetch {
        reader.check_name(&fetch.connection, "the connection's name", NameSyntax::Signadot, MAX_NAME);
    }
    if let Some(connection) = source.exists.as_ref().and_then(|exists| exists.value.connection.as_ref()) {
        reader.check_name(connection, "the connection's name", NameSyntax::Signadot, MAX_NAME);
    }
    if let Some(limit) = source.limit.as_ref().filter(|limit| !(1..=200).contains(&limit.living.value)) {
        let message = format!("`living` is {}; it is from 1 to 200", limit.living.value);
        let wrong = reader.wrong("limit", limit.living.at, message);
        reader.note(wrong.help("write how many targets may live at once, or leave `limit` out"));
    }
    if let Some(replay) = &source.replay {
        reader.check_name(&replay.value.connection, "the connection's name", NameSyntax::Signadot, MAX_NAME);
    }
    let of_entries = source.events.iter().flatten().filter_map(|event| match &event.action {
        EventAction::Apply(apply) => apply.target.as_ref(),
        EventAction::Delete(delete) => delete.target.as_ref(),
        EventAction::Ignore(_) => None,
    });
    for target in source.target.iter().chain(of_entries) {
        reader.check_name(&target.kind, "the target's kind", NameSyntax::Kind, MAX_NAME);
    }
    Some(source)
}

/// Reports the errors of a target document that are not about its expressions.
fn check_document(reader: &DocumentReader<'_>, document: &YamlNode, path: &NodePath<'_>) {
    let YamlValue::Map(entries) = &document.value else {
        let message = format!("`{path}` is {}; expected a mapping", document.value.noun());
        return reader.note(reader.wrong("wrong-type", document.at, message));
    };
    for (key, _) in entries.iter().filter(|(key, _)| SUPPLIED_KEYS.contains(&key.value.as_str())) {
        let wrong = reader.wrong("contradiction", key.at, format!("`{path}` has `{}`", key.value));
        reader.note(wrong.help("leave it out: `target` of the source has the kind and the name"));
    }
    let node = |text: &str| YamlNode { value: YamlValue::String(text.to_owned()), at: document.at, bytes: None };
    let supplied = [("apiVersion", "ebb.dev/v1"), ("kind", "Sandbox"), ("name", "source")];
    let supplied = supplied.map(|(key, text)| (At { value: key.to_owned(), at: document.at }, node(text)));
    let own = entries.iter().filter(|(key, _)| !SUPPLIED_KEYS.contains(&key.value.as_str()));
    // The event supplies the time.
    let is_rendered = |value: &YamlNode| matches!(&value.value, YamlValue::String(text) if text.contains("${"));
    let known = |(key, value): &(At<String>, YamlNode), name: &str| match key.value == name && is_rendered(value) {
        true => (key.clone(), node("1h")),
        false => (key.clone(), value.clone()),
    };
    let own = own.map(|entry| match (entry.0.value.as_str(), &entry.1.value) {
        ("ttl", YamlValue::Map(parts)) => {
            let parts = YamlValue::Map(parts.iter().map(|part| known(part, "after")).collect());
            (entry.0.clone(), YamlNode { value: parts, ..entry.1.clone() })
        }
        _ => known(entry, "ttl"),
    });
    let value = YamlValue::Map(supplied.into_iter().chain(own).collect());
    ebb::target(reader, &YamlNode { value, ..document.clone() }, path, String::new());
}

/// The prefixes of credentials of well-known services. Some credentials have the form of a name.
const CREDENTIALS: &str = "whsec_ ebbt_ ghp_ gho_ ghs_ ghu_ ghr_ github_pat_ glpat sk_live_ sk_test_ napi_ npm_ hf_";

pub(super) fn check_secret_name(reader: &DocumentReader<'_>, secret: &At<String>) {
    // The message does not repeat the text, because it may be a secret.
    let problem = if CREDENTIALS.split(' ').any(|prefix| secret.value.starts_with(prefix)) {
        "`secret` looks like a credential itself"
    } else if !is_name(&secret.value, NameSyntax::Environment) || secret.value.len() > MAX_NAME {
        "`secret` is not the name of a secret"
    } else {
        return;
    };
    let help = "write the name of a value of the secret store: letters, digits and `_`, no digit first, at most 63";
    reader.note(reader.wrong(SECRET_NAME, secret.at, problem).help(help));
}

fn check_verify(reader: &DocumentReader<'_>, verify: &VerifyDoc) {
    check_secret_name(reader, verify.secret());
    let token = |text: &At<String>, what: &str, allowed: fn(char) -> bool, help: &str| {
        if !text.value.chars().all(allowed) {
            reader.note(reader.wrong("bad-name", text.at, format!("{what} `{}` is not valid", text.value)).help(help));
        }
    };
    let header = |name: &At<String>| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        token(name, "the header", allowed, "letters, digits, `-` and `_`, such as `X-Signature`");
    };
    match verify {
        VerifyDoc::Hmac(hmac) => {
            [&hmac.header].into_iter().chain(hmac.timestamp.as_ref().map(|time| &time.header)).for_each(header);
            let (at, text) = hmac.signed.as_ref().map_or((hmac.header.at, ""), |text| (text.at, text.value.as_str()));
            if (hmac.signed.is_some() || hmac.timestamp.is_some())
                && let Err(problem) = SignedPiece::parse(text, hmac.timestamp.is_some())
            {
                let help = "such as `v0:${timestamp}:${rawBody}` with `timestamp: {header: X-Request-Timestamp}`";
                reader.note(reader.wrong("signed-text", at, problem).help(help));
            }
        }
        VerifyDoc::Jws(jws) => {
            header(&jws.header);
            if jws.issuer.is_some() && jws.body_hash.is_none() {
                let wrong =
                    reader.wrong("jws", jws.header.at, "`issuer` needs `bodyHash`: a detached payload has no claims");
                reader.note(wrong.help("remove `issuer`"));
            }
        }
        VerifyDoc::Basic(basic) => {
            token(&basic.user, "the user", |c| c != ':' && !c.is_control(), "no `:` and no control characters");
        }
        _ => {}
    }
}
