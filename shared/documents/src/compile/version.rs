//! The version that a resource is bound to.

use semver::Version;

use crate::model::VersionRange;

/// Returns the highest allowed version, and a pre-release only without any other version. Without a request, all
/// versions are allowed. Returns `None` if none is published.
pub fn resolve_version<'a>(requested: Option<&VersionRange>, published: &'a [Version]) -> Option<&'a Version> {
    let allowed = || published.iter().filter(|version| requested.is_none_or(|range| range.allows(version)));
    allowed().filter(|version| version.pre.is_empty()).max().or_else(|| allowed().max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn the_highest_release_is_the_default() {
        let published: Vec<Version> =
            ["1.9.0", "1.10.0", "2.0.0-rc.1", "0.0.0"].map(|text| text.parse().unwrap()).to_vec();
        let resolved = |range: &str| {
            let found = resolve_version(Some(&VersionRange::parse(range).unwrap()), &published);
            found.map(ToString::to_string)
        };
        assert_eq!(resolve_version(None, &published).unwrap().to_string(), "1.10.0");
        for (range, expected) in rows::<(String, Option<String>)>("ranges_select_published_versions") {
            assert_eq!(resolved(&range), expected, "{range}");
        }
        assert_eq!(resolve_version(None, &published[2..3]).unwrap().to_string(), "2.0.0-rc.1");
        assert_eq!(resolve_version(None, &[]), None);
    }
}
