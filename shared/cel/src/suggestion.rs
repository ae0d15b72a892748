//! Suggestions for misspelt names.

/// The maximum number of characters of a compared name.
const MAX_NAME: usize = 128;
/// The maximum number of compared character pairs per search: fifty names of sixty characters, or two thousand of ten.
const MAX_CELLS: u64 = 200_000;

/// Returns the candidate that is most similar to `name`, if it is similar enough.
///
/// Case, `-` and `_` are ignored. At most one mistake per three characters is allowed. The cost of a comparison is the
/// product of both lengths, so texts with more than 128 characters match nothing, and the search stops after a fixed
/// number of comparisons.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let short = |text: &str| text.chars().nth(MAX_NAME).is_none();
    let mut cells = 0;
    let mut best: Option<(usize, &'a str)> = None;
    if !short(name) {
        return None;
    }
    let wanted = plain(name);
    let length = wanted.chars().count();
    for candidate in candidates {
        // Skipped names have a small cost too.
        cells += 1;
        if cells > MAX_CELLS {
            break;
        }
        if !short(candidate) || candidate == name {
            continue;
        }
        let other = plain(candidate);
        let its = other.chars().count();
        let allowed = (length.max(its) / 3).max(1);
        if length.abs_diff(its) > allowed {
            continue;
        }
        cells += (length * its) as u64;
        if cells > MAX_CELLS {
            break;
        }
        let distance = strsim::damerau_levenshtein(&wanted, &other);
        if distance <= allowed && distance < length.max(1) && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn near_names_are_found() {
        let names = ["dsn", "queue-url", "region", "seedRows"];
        for (name, expected) in rows::<(String, Option<String>)>("near_names_are_found") {
            assert_eq!(nearest(&name, names), expected.as_deref(), "{name}");
        }
    }

    #[test]
    fn a_search_is_bounded() {
        let names = |count: usize, length: usize| -> Vec<String> {
            (0..count).map(|n| format!("{n:0>length$}")).chain([format!("{:x>length$}", "y")]).collect()
        };
        let near = |length, names: &[String]| {
            nearest(&format!("{:x>length$}", "z"), names.iter().map(String::as_str)).is_some()
        };
        assert!(near(60, &names(50, 60)) && near(10, &names(1_900, 10)));
        assert!(!near(60, &names(5_000, 60)), "the search ends before the last name");
    }
}
