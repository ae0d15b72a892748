//! Locks data of this function instance.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks data that is consistent after every change, so that a panic of another request is harmless.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
