//! Names of stored objects.

use std::fmt;
use std::str::FromStr;

use ebb_engine::{EventName, Hook, Unit};
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use sha2::{Digest as _, Sha256};

/// The id of a run. It is derived from instance, generation and hook, so that a repeated start is idempotent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct RunId(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a run id: expected INSTANCE-GENERATION-HOOK in lower case, such as k3j2h4q5w6e7r8t9-1-pre-start")]
pub struct RunIdError(String);

/// One occurrence of an event, `NAME-ID`. A CloudEvent that is repeated is the same occurrence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct EventRef {
    pub name: EventName,
    /// 8 characters of `[a-z2-7]`.
    id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an occurrence of an event: expected NAME-ID, such as sleep-k3j2h4q5")]
pub struct EventRefError(String);

impl EventRef {
    const ID: usize = 8;

    /// Returns the occurrence that the CloudEvent with this id announces.
    pub fn new(name: EventName, cloud_event: &str) -> Self {
        Self { name, id: short_digest(&["event", cloud_event], Self::ID) }
    }
}

impl fmt::Display for EventRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.name.as_str(), self.id)
    }
}

impl FromStr for EventRef {
    type Err = EventRefError;

    fn from_str(text: &str) -> Result<Self, EventRefError> {
        let parts = text.split_once('-').filter(|(_, id)| id.len() == Self::ID);
        let parts = parts.filter(|(_, id)| id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let found = parts.and_then(|(name, id)| Some(Self { name: EventName::new(name)?, id: id.to_owned() }));
        found.ok_or_else(|| EventRefError(text.to_owned()))
    }
}

/// The hooks of the lifecycle in run ids, which are parts of DNS labels.
const HOOKS: [(Hook, &str); 4] = [
    (Hook::PreStart, "pre-start"),
    (Hook::PostStart, "post-start"),
    (Hook::PreStop, "pre-stop"),
    (Hook::PostStop, "post-stop"),
];

/// The part of a run id that precedes an occurrence of an event.
const EVENT: &str = "on-";

impl RunId {
    /// Returns the run of a hook of the lifecycle. An event has a run for each occurrence, see [`RunId::of_event`].
    pub fn new(instance_key: &str, generation: u64, hook: Hook) -> Self {
        match hook {
            Hook::Event(name) => Self::of_event(instance_key, generation, &EventRef::new(name, "")),
            Hook::Update(_) => Self(format!("{instance_key}-{generation}-{hook}")),
            hook => {
                let name = HOOKS.iter().find(|row| row.0 == hook).map_or("", |row| row.1);
                Self(format!("{instance_key}-{generation}-{name}"))
            }
        }
    }

    pub fn of_event(instance_key: &str, generation: u64, event: &EventRef) -> Self {
        Self(format!("{instance_key}-{generation}-{EVENT}{event}"))
    }

    /// Returns the run of another hook of the same instance and generation.
    pub fn sibling(&self, hook: Hook) -> Self {
        match self.parts() {
            Some((instance_key, generation, _)) => Self::new(instance_key, generation, hook),
            None => self.clone(),
        }
    }

    pub fn hook(&self) -> Hook {
        self.parts().map_or(Hook::PreStart, |(_, _, hook)| hook)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> Option<(&str, u64, Hook)> {
        let (key, rest) = self.0.split_once('-')?;
        let (generation, name) = rest.split_once('-')?;
        let known = HOOKS.iter().find(|row| row.1 == name).map(|row| row.0);
        let hook = match name.strip_prefix(EVENT) {
            Some(event) => Hook::Event(event.parse::<EventRef>().ok()?.name),
            None => known.or_else(|| Hook::update_number(name).map(Hook::Update))?,
        };
        let plain = !key.is_empty() && key.len() <= 32;
        let plain = plain && key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if plain { Some((key, generation.parse().ok()?, hook)) } else { None }
    }
}

impl FromStr for RunId {
    type Err = RunIdError;

    fn from_str(text: &str) -> Result<Self, RunIdError> {
        let id = Self(text.to_owned());
        if id.parts().is_some() { Ok(id) } else { Err(RunIdError(id.0)) }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Identifies an attempt of a unit. A higher attempt replaces lower ones, which are cancelled before it starts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskId {
    /// The unit of a run, a DNS label: `RUN-INDEX`.
    pub unit: String,
    pub attempt: u32,
}

impl TaskId {
    /// Checks that the unit is a DNS label and the attempt is at least 1.
    ///
    /// # Errors
    /// Returns the reason.
    pub fn check(&self) -> Result<(), String> {
        if !is_dns_label(&self.unit) {
            return Err(format!("{:?} is not a DNS label", self.unit.chars().take(80).collect::<String>()));
        }
        if self.attempt == 0 { Err("attempt 0: attempts count from 1".to_owned()) } else { Ok(()) }
    }

    /// Returns the name of a unit, shared by all its attempts.
    pub fn unit_of(run: &RunId, unit: Unit) -> String {
        format!("{run}-{}", unit.0)
    }

    /// Returns the key of the instance, with which the name begins.
    pub fn instance(&self) -> &str {
        self.unit.split_once('-').map_or(self.unit.as_str(), |(instance, _)| instance)
    }
}

/// Returns true for a DNS label: 1 to 63 of `a-z`, `0-9` and `-`, no `-` at the ends.
pub fn is_dns_label(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = text.starts_with('-') || text.ends_with('-');
    (1..=63).contains(&text.len()) && text.bytes().all(plain) && !ends
}

/// The name of a target. Its text is `KIND/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetKey<'a> {
    pub kind: &'a str,
    pub name: &'a str,
}

impl<'a> TargetKey<'a> {
    pub const fn new(kind: &'a str, name: &'a str) -> Self {
        Self { kind, name }
    }

    pub const fn instance(self, uid: &'a str) -> InstanceRef<'a> {
        InstanceRef { target: self, uid }
    }
}

impl fmt::Display for TargetKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceRef<'a> {
    pub target: TargetKey<'a>,
    pub uid: &'a str,
}

impl InstanceRef<'_> {
    /// Returns the key of the instance: see [`instance_key`].
    pub fn key(self) -> String {
        instance_key(self.target.kind, self.target.name, self.uid)
    }
}

/// Returns the key of an instance: 16 characters of `[a-z2-7]`, derived from kind, name and UID.
pub fn instance_key(kind: &str, name: &str, uid: &str) -> String {
    short_digest(&[kind, name, uid], 16)
}

/// Returns the first `length` characters of a base-32 digest in lower case. Different lists of parts have different
/// digests.
pub fn short_digest(parts: &[&str], length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    // Five bits of each byte are enough: 32 bytes yield up to 32 characters.
    digest.finalize().iter().take(length).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

/// Returns the id of an installation. `parts` must stay the same for as long as it exists.
pub fn installation(parts: &[&str]) -> String {
    short_digest(parts, 16)
}

/// Returns a digest as `sha256:HEX`.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// The maximum number of characters of a [`unit_key`].
pub const MAX_UNIT_KEY: usize = 36;

/// Returns the value of `EBB_KEY`, which is the same for every attempt.
///
/// It has the form `[a-z][a-z0-9]*` and at most [`MAX_UNIT_KEY`] characters, so it is a valid database name, DNS label
/// or part of a bucket name. It starts with the names of resource and unit, as far as they fit. The last 16 characters
/// are a digest that makes it unique.
pub fn unit_key(instance_key: &str, resource: &str, unit: &str) -> String {
    const DIGEST: usize = 16;
    let named = resource.bytes().chain(unit.bytes()).map(|byte| byte.to_ascii_lowercase());
    // A name that starts with a digit must be quoted in SQL.
    let named = named.filter(u8::is_ascii_alphanumeric).skip_while(u8::is_ascii_digit);
    let mut key: String = named.take(MAX_UNIT_KEY - DIGEST).map(char::from).collect();
    if key.is_empty() {
        key.push('u');
    }
    key.push_str(&short_digest(&["unit key", instance_key, resource, unit], DIGEST));
    key
}
