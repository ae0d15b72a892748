//! What every operation on the table goes through, when a test puts something there.

use std::fmt::Debug;

use async_trait::async_trait;

use super::WriteFate;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableAccess {
    Read,
    Write,
}

/// Decides when operations happen.
#[async_trait]
pub trait TableGate: Send + Sync {
    /// Waits until the operation may happen. Gives what becomes of the running task after a write.
    async fn pass(&self, access: TableAccess, operation: &'static str) -> WriteFate;
    /// The operation has happened: what its caller learns.
    fn saw(&self, answer: &dyn Debug);
}
