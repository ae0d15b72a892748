//! Why an object is not ready, has failed or is refused, found by further reads.
mod causes;
pub(crate) mod dependents;
pub(crate) mod logs;
mod refusals;
mod warnings;
