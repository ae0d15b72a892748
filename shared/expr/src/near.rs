//! What a misspelt name was meant to be.

/// The most names among which a near one is looked for.
const MAX_CANDIDATES: usize = 500;
/// The most characters of a name that near ones are looked for.
const MAX_NAME: usize = 128;

/// The candidate that `name` was most likely meant to be, if one is near enough.
///
/// Case, `-` and `_` do not count; else at most one mistake in three characters. Comparing takes time and memory by the
/// product of both lengths, so a text of more than 128 characters is near nothing, and only the first 500 candidates
/// are compared.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let wanted = plain(name);
    let short = |text: &str| text.chars().nth(MAX_NAME).is_none();
    candidates
        .into_iter()
        .take(MAX_CANDIDATES)
        .filter(|candidate| short(name) && short(candidate))
        .map(|candidate| {
            let other = plain(candidate);
            let allowed = (wanted.chars().count().max(other.chars().count()) / 3).max(1);
            (strsim::damerau_levenshtein(&wanted, &other), allowed, candidate)
        })
        .filter(|(distance, allowed, candidate)| {
            distance <= allowed && *candidate != name && *distance < wanted.chars().count().max(1)
        })
        .min_by_key(|(distance, _, _)| *distance)
        .map(|(_, _, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found() {
        let names = ["dsn", "queue-url", "region", "seedRows"];
        for (name, expected) in [
            ("queue_url", Some("queue-url")),
            ("queueUrl", Some("queue-url")),
            ("dns", Some("dsn")),
            ("regoin", Some("region")),
            ("seedrow", Some("seedRows")),
            ("bucket", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, names), expected, "{name}");
        }
    }
}
