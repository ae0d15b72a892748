use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl From<Duration> for Millis {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Adds `millis`, up to the largest time.
    pub fn plus(self, millis: Millis) -> Self {
        Self(self.0.saturating_add(millis.0))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_saturate() {
        let plus = [(5, 3), (u64::MAX - 1, 3)].map(|(at, millis)| Timestamp(at).plus(Millis(millis)).0);
        assert_eq!(plus, [8, u64::MAX]);
        let since = [(8, 5), (5, 5), (5, 8)].map(|(at, earlier)| Timestamp(at).since(Timestamp(earlier)).0);
        assert_eq!(since, [3, 0, 0]);
    }
}
