//! Locks the state that tasks share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Every change leaves the state consistent, so a poisoned lock is harmless.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
