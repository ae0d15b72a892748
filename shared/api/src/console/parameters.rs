//! The parameters of a page.

use crate::{HttpResult, Path, Query};

/// The names in a path, or the problem that a page shows.
pub(super) type PathOf<T> = HttpResult<Path<T>>;
/// The parameters of a query, or the problem that a page shows.
pub(super) type QueryOf<T> = HttpResult<Query<T>>;
