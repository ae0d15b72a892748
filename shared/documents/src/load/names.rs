//! Names and versions, with their syntax and limits.

use ebb_engine::{EventName, Hook};
use semver::Version;

use crate::load::reader::DocumentReader;
use crate::model::{At, Entries, Named, VersionRange, version};
use crate::plan::PLUGIN_UPDATE;

/// The maximum number of bytes of a plugin's name without a version.
pub const MAX_PLUGIN_NAME: usize = 253;
/// The maximum number of characters of a name in a Signadot document.
const MAX_SIGNADOT_NAME: usize = 30;
/// The maximum number of characters of a name in Ebb's documents.
pub(crate) const MAX_NAME: usize = 63;
/// The maximum number of bytes of a script: 256 KiB.
pub const MAX_SCRIPT: usize = 256 << 10;

/// A reference to a plugin: `name`, `name@range` or `name@latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginReference {
    pub name: String,
    /// The allowed versions, of which the highest is used. `None` allows all.
    pub version: Option<VersionRange>,
}

/// The part of a text that is not valid in a reference to a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceError {
    Name(String),
    Version(String),
}

impl std::str::FromStr for PluginReference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let (name, version) = text.split_once('@').map_or((text, None), |(name, version)| (name, Some(version)));
        if !is_name(name, NameSyntax::Signadot) || name.len() > MAX_PLUGIN_NAME {
            return Err(ReferenceError::Name(name.to_owned()));
        }
        let version = match version {
            None | Some("latest") => None,
            Some(text) => Some(VersionRange::parse(text).ok_or_else(|| ReferenceError::Version(text.to_owned()))?),
        };
        Ok(Self { name: name.to_owned(), version })
    }
}

impl std::fmt::Display for PluginReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The allowed characters of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameSyntax {
    Signadot,
    Ours,
    Environment,
    Kind,
}

impl NameSyntax {
    /// Returns the characters beside letters and digits, true if one of them can be the last, and the rule for people.
    fn parts(self) -> (&'static str, bool, &'static str) {
        match self {
            Self::Signadot => ("-", false, "letters, digits and `-`, a letter first, no `-` last"),
            Self::Ours => ("-_", false, "letters, digits, `-` and `_`, a letter first, a letter or digit last"),
            Self::Environment => ("_", true, "letters, digits and `_`, no digit first"),
            Self::Kind => ("-", true, "lower-case letters, digits and `-`, a letter first"),
        }
    }
}

/// Returns true if a name has this syntax: it starts with a letter and does not end with `-` or `_`. A variable may
/// start and end with `_`, and a kind may end with `-`.
pub(crate) fn is_name(name: &str, shape: NameSyntax) -> bool {
    let (marks, any_end, _) = shape.parts();
    let is_letter = |c: char| if shape == NameSyntax::Kind { c.is_ascii_lowercase() } else { c.is_ascii_alphabetic() };
    name.starts_with(|c: char| is_letter(c) || (shape == NameSyntax::Environment && c == '_'))
        && name.chars().all(|c| is_letter(c) || c.is_ascii_digit() || marks.contains(c))
        && (any_end || name.ends_with(|c: char| c.is_ascii_alphanumeric()))
}

fn tidied(name: &str, shape: NameSyntax, most: usize) -> Option<String> {
    let dash = if shape == NameSyntax::Environment { '_' } else { '-' };
    let text: String = name
        .chars()
        .map(|c| match c {
            '_' | '-' if shape != NameSyntax::Ours => dash,
            c if shape == NameSyntax::Kind => c.to_ascii_lowercase(),
            c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => c,
            _ => dash,
        })
        .take(most)
        .collect();
    let text = text.trim_matches(dash).to_owned();
    (is_name(&text, shape) && text != name).then_some(text)
}

/// Returns the name if it is valid, or a similar valid name in lower case.
pub(crate) fn valid_name(name: &str, shape: NameSyntax) -> String {
    if is_name(name, shape) && name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let dashed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = name.chars().map(dashed).skip_while(|c| !c.is_ascii_alphabetic()).take(MAX_NAME).collect();
    match text.trim_end_matches('-') {
        "" => "collection".to_owned(),
        text => text.to_owned(),
    }
}

/// Returns the rule for a name, with a similar valid name if there is one.
pub(crate) fn name_help(name: &str, shape: NameSyntax, most: usize) -> String {
    let (.., rule) = shape.parts();
    tidied(name, shape, most).map_or_else(|| rule.to_owned(), |tidy| format!("{rule}: `{tidy}`"))
}

impl DocumentReader<'_> {
    pub(crate) fn check_name(&self, name: &At<String>, what: &str, shape: NameSyntax, most: usize) {
        let length = name.value.chars().count();
        if length > most {
            let wrong = self.wrong("name-too-long", name.at, format!("{what} has {length} characters"));
            self.note(wrong.help(format!("at most {most}")));
        } else if !is_name(&name.value, shape) {
            let wrong = self.wrong("bad-name", name.at, format!("{what} `{}` is not valid", name.value));
            self.note(wrong.help(name_help(&name.value, shape, most)));
        }
    }

    pub(super) fn check_short_name(&self, name: &At<String>, what: &str) {
        self.check_name(name, what, NameSyntax::Signadot, MAX_SIGNADOT_NAME);
    }

    pub(crate) fn check_event(&self, name: &At<String>) {
        if EventName::new(&name.value).is_none() {
            let wrong = self.wrong("bad-name", name.at, format!("the event's name `{}` is not valid", name.value));
            let rule = format!("lower-case letters and digits, a letter first, at most {}", EventName::MAX);
            let mut hooks = Hook::ALL.into_iter().chain([PLUGIN_UPDATE]);
            let help = match hooks.find(|hook| hook.name().eq_ignore_ascii_case(&name.value)) {
                Some(hook) => format!("`{}` is a key of its own, beside `hooks`", hook.name()),
                None => format!("{rule}, and not `on`"),
            };
            self.note(wrong.help(help));
        }
    }

    /// Reports a script without an interpreter in its first line, one with a NUL byte, or one that is too large.
    pub(crate) fn check_script(&self, script: &At<String>) {
        if script.value.len() > MAX_SCRIPT {
            let message = format!("the script has {} bytes, more than {MAX_SCRIPT}", script.value.len());
            let wrong = self.wrong("too-large", script.at, message);
            self.note(wrong.help("put large data into the image, or load it in the script"));
        }
        // A script is started through a variable, which cannot hold the byte.
        if let Some(at) = script.value.find('\0') {
            let line = script.value[..at].matches('\n').count() + 1;
            let wrong = self.wrong("nul-byte", script.at, format!("the script has a NUL byte in its line {line}"));
            self.note(wrong.help("remove the byte; load binary data in the script"));
        }
        let first = script.value.split('\n').next().unwrap_or_default();
        let (message, help) = if first.strip_prefix("#!").is_none_or(|program| program.trim().is_empty()) {
            ("the script does not name its interpreter", "begin it with a line such as `#!/bin/sh -eu`")
        } else if first.ends_with('\r') {
            ("the script's lines end in CR LF, so its interpreter is not found", "save it with LF line ends")
        } else {
            return;
        };
        self.note(self.wrong("no-interpreter", script.at, message).help(help));
    }

    pub(crate) fn check_names<T>(&self, entries: &Entries<T>, what: &str, shape: NameSyntax) {
        let most = if shape == NameSyntax::Environment { 255 } else { MAX_NAME };
        for Named { name, .. } in entries {
            self.check_name(name, what, shape, most);
        }
    }

    /// Removes the version from the name of a plugin and returns it.
    pub(crate) fn split_version(&self, name: &mut At<String>) -> Option<Version> {
        if let Some((bare, "latest")) = name.value.split_once('@') {
            let wrong = self.wrong("bad-version", name.at, "`@latest` is not a version, it only refers to one");
            self.note(wrong.help(format!("give it a number: `{bare}@1.0.0`, or none")));
            return None;
        }
        let own = name.value.split_once('@').and_then(|(_, own)| version(own));
        self.split_reference(name).and(own)
    }

    /// Removes the range from a reference to a plugin and returns it: `name[@range|@latest]`. Reports an invalid one.
    pub(crate) fn split_reference(&self, name: &mut At<String>) -> Option<VersionRange> {
        match name.value.parse::<PluginReference>() {
            Ok(PluginReference { name: bare, version }) => {
                name.value = bare;
                return version;
            }
            Err(ReferenceError::Version(version)) => {
                let bare = name.value.split('@').next().unwrap_or_default();
                let wrong = self.wrong("bad-version", name.at, format!("`{version}` is not a valid version"));
                self.note(wrong.help(format!("three numbers: `{bare}@1.2.3`")));
            }
            Err(ReferenceError::Name(value)) => {
                let name = At { value, at: name.at };
                self.check_name(&name, "the plugin's name", NameSyntax::Signadot, MAX_PLUGIN_NAME);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn references_are_parsed() {
        let read = |text: &str| text.parse::<PluginReference>().map(|r| r.to_string());
        for (text, expected) in rows::<(String, Option<String>)>("references_are_parsed") {
            assert_eq!(read(&text).ok(), expected, "{text}");
        }
        assert!(read(&"a".repeat(254)).is_err());
        assert!(read(&"a".repeat(253)).is_ok());
    }

    #[test]
    fn names_have_a_syntax() {
        for (name, is_valid) in rows::<(String, bool)>("names_have_a_syntax") {
            assert_eq!(is_name(&name, NameSyntax::Signadot), is_valid, "{name}");
        }
        assert!(is_name("_A1", NameSyntax::Environment) && !is_name("1A", NameSyntax::Environment));
    }
}
