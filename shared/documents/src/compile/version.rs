//! The version that a resource is bound to.

use semver::Version;

/// Returns the requested version if it is published. Without a request, returns the highest version, and a pre-release
/// only without any other version. Returns `None` if the version is not published.
pub fn resolve_version<'a>(requested: Option<&Version>, published: &'a [Version]) -> Option<&'a Version> {
    match requested {
        Some(version) => published.iter().find(|candidate| *candidate == version),
        None => published.iter().filter(|version| version.pre.is_empty()).max().or_else(|| published.iter().max()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_release_is_the_default() {
        let published: Vec<Version> =
            ["1.9.0", "1.10.0", "2.0.0-rc.1", "0.0.0"].map(|text| text.parse().unwrap()).to_vec();
        let named: Version = "1.9.0".parse().unwrap();
        assert_eq!(resolve_version(None, &published).unwrap().to_string(), "1.10.0");
        assert_eq!(resolve_version(Some(&named), &published), Some(&named));
        assert_eq!(resolve_version(Some(&"3.0.0".parse().unwrap()), &published), None);
        assert_eq!(resolve_version(None, &published[2..3]).unwrap().to_string(), "2.0.0-rc.1");
        assert_eq!(resolve_version(None, &[]), None);
    }
}
