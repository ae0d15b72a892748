//! A value that is created from a source and recreated when the source changes.
//!
//! Clients, certificates and the secret take most of the time of a start. They are created at the first event. An error
//! there is retried at the next event, but an error before the first event ends the function.
//!
//! A function instance under load runs for hours, while operators rotate keys and connect clusters.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// The value of the last valid source.
pub(crate) struct ReloadingValue<S, T>(Mutex<Option<LoadedValue<S, T>>>);

struct LoadedValue<S, T> {
    source: S,
    value: T,
    checked: Instant,
}

impl<S, T> Default for ReloadingValue<S, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: PartialEq, T: Clone> ReloadingValue<S, T> {
    /// Returns the value of a source that was read at most five minutes before `now`.
    ///
    /// If the source cannot be read or has no value, the previous value stays, the error is logged, and the next check
    /// follows after another five minutes.
    ///
    /// # Errors
    /// Returns an error if there is no previous value.
    pub(crate) async fn get<F, E: Display>(
        &self,
        now: Instant,
        read: impl Fn() -> F,
        make: impl Fn(&S) -> Result<T, E>,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<S, E>>,
    {
        let mut loaded = self.0.lock().await;
        let Some(last) = loaded.as_mut() else {
            let source = read().await?;
            let value = make(&source)?;
            *loaded = Some(LoadedValue { source, value: value.clone(), checked: now });
            return Ok(value);
        };
        if now.duration_since(last.checked) >= REFRESH_INTERVAL {
            last.checked = now;
            let changed = match read().await {
                Ok(source) if source == last.source => return Ok(last.value.clone()),
                Ok(source) => make(&source).map(|value| (value, source)),
                Err(error) => Err(error),
            };
            match changed {
                Ok((value, source)) => {
                    tracing::info!("the secret has changed");
                    (last.value, last.source) = (value, source);
                }
                Err(error) => tracing::error!(%error, "the function keeps its previous configuration"),
            }
        }
        Ok(last.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn a_changed_source_is_read_after_the_interval() {
        let (source, reads) = (Cell::new(Err("locked")), Cell::new(0));
        let current = ReloadingValue::<u8, String>::default();
        let begun = Instant::now();
        let get = |times| {
            let read = || async {
                reads.set(reads.get() + 1);
                source.get()
            };
            let make = |source: &u8| if *source == 0 { Err("nothing") } else { Ok(format!("of {source}")) };
            current.get(begun + REFRESH_INTERVAL * times, read, make)
        };
        assert_eq!(get(0).await, Err("locked"));
        source.set(Ok(1));
        assert_eq!(get(0).await.unwrap(), "of 1");
        source.set(Ok(2));
        assert_eq!(get(0).await.unwrap(), "of 1");
        assert_eq!(reads.get(), 2);
        assert_eq!(get(1).await.unwrap(), "of 2");
        // An invalid source changes nothing, and is not read again at each event.
        for (times, broken) in [(2, Ok(0)), (3, Err("gone"))] {
            source.set(broken);
            let before = reads.get();
            for _ in 0..2 {
                assert_eq!(get(times).await.unwrap(), "of 2");
            }
            assert_eq!(reads.get(), before + 1);
        }
    }
}
