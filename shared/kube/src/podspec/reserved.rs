//! Names, labels and annotations that no author may use.

/// The prefix of reserved names of volumes, containers, Secrets and objects.
pub const RESERVED_PREFIX: &str = "ebb-";
/// The domain of reserved labels and annotations.
pub const RESERVED_DOMAIN: &str = "ebb.dev";

/// Names that Signadot's operator reserves. A document with one of them would not load there.
const SIGNADOT: [&str; 3] =
    ["signadot-execunit-io", "signadot-execunit-input-manager", "signadot-execunit-output-manager"];

/// Returns true for a reserved name of a volume, a container, a Secret or an object.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX) || SIGNADOT.contains(&name)
}

/// Returns true for a reserved label or annotation: `ebb.dev/…`, `x.ebb.dev/…`.
pub fn is_reserved_key(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| {
        domain.strip_suffix(RESERVED_DOMAIN).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}
