//! The versions of a plugin that a reference allows.

use semver::Version;

/// Parses a version. A prefix `v` and missing minor and patch numbers are allowed: `v1.0` is `1.0.0`.
pub fn version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let missing = match numbers.split('.').count() {
        1 => ".0.0",
        2 => ".0",
        _ => "",
    };
    Version::parse(&format!("{numbers}{missing}{rest}")).ok()
}

/// The versions that `NAME@VERSION` allows: one version, or all with the given first numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VersionRange {
    /// `1.2.3`.
    Exact(Version),
    /// `1.2`.
    Minor(u64, u64),
    /// `1`.
    Major(u64),
}

impl VersionRange {
    /// Parses a version or its first numbers. A prefix `v` is allowed. A pre-release or build is one version: `2.1-rc.1` is
    /// `2.1.0-rc.1`.
    pub fn parse(text: &str) -> Option<Self> {
        let version = version(text)?;
        Some(match text.matches('.').count() {
            _ if text.contains(['-', '+']) => Self::Exact(version),
            0 => Self::Major(version.major),
            1 => Self::Minor(version.major, version.minor),
            _ => Self::Exact(version),
        })
    }

    /// Returns true if a reference with this range can use a version.
    pub fn allows(&self, version: &Version) -> bool {
        match self {
            Self::Exact(exact) => version == exact,
            Self::Minor(major, minor) => (version.major, version.minor) == (*major, *minor),
            Self::Major(major) => version.major == *major,
        }
    }

    /// Returns the version if no other is allowed.
    pub fn exact(&self) -> Option<&Version> {
        let Self::Exact(exact) = self else { return None };
        Some(exact)
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(version) => version.fmt(f),
            Self::Minor(major, minor) => write!(f, "{major}.{minor}"),
            Self::Major(major) => major.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::rows;

    #[test]
    fn versions_are_canonical() {
        for (text, expected) in rows::<(String, Option<String>)>("versions_are_canonical") {
            assert_eq!(version(&text).map(|v| v.to_string()), expected, "{text}");
            assert_eq!(VersionRange::parse(&text).is_none(), expected.is_none(), "{text}");
        }
    }

    #[test]
    fn a_part_of_a_version_is_a_range() {
        type Row = (String, String, Vec<Version>, Vec<Version>);
        for (text, expected, allowed, other) in rows::<Row>("a_part_of_a_version_is_a_range") {
            let range = VersionRange::parse(&text).unwrap();
            assert_eq!(range.to_string(), expected, "{text}");
            let allows = |version: &Version| range.allows(version);
            assert!(allowed.iter().all(allows) && !other.iter().any(allows), "{text}");
        }
    }
}
