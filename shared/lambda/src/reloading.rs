//! What a function is made of, and for how long.
//!
//! Clients, certificates of authorities and the secret take longer than all else that a start does. Lambda counts a
//! start from the beginning of the program until it asks for an event; what is done after that can fail without ending
//! the function, and the next event finds it tried again.
//!
//! An instance that is never idle lives for hours, and somebody may change the secret meanwhile: a new key, a new cluster.

use std::fmt::Display;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// After this it is looked at whether the source has changed.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// What was made last of a source.
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
    /// What is made of what the source is now, or was at most five minutes ago. A source that cannot be read any more, or of
    /// which nothing can be made, changes nothing: that is logged, and tried again after as long. `now` is the time.
    ///
    /// # Errors
    /// Nothing was ever made, and cannot be.
    pub(crate) async fn get<F, E: Display>(
        &self,
        now: Instant,
        read: impl Fn() -> F,
        make: impl Fn(&S) -> Result<T, E>,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<S, E>>,
    {
        let mut kept = self.0.lock().await;
        let Some(last) = kept.as_mut() else {
            let source = read().await?;
            let made = make(&source)?;
            *kept = Some(LoadedValue { source, value: made.clone(), checked: now });
            return Ok(made);
        };
        if now.duration_since(last.checked) >= REFRESH_INTERVAL {
            last.checked = now;
            let changed = match read().await {
                Ok(source) if source == last.source => None,
                Ok(source) => Some(make(&source).map(|made| (made, source))),
                Err(error) => Some(Err(error)),
            };
            match changed {
                None => {}
                Some(Ok((made, source))) => {
                    tracing::info!("the secret has changed");
                    (last.value, last.source) = (made, source);
                }
                Some(Err(error)) => tracing::error!(%error, "the function goes on with what it knew before"),
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
    async fn a_source_that_changes_is_seen_after_a_while() {
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
        // What cannot be used changes nothing, and is not asked for by each event.
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
