//! The errors of SQLite: those that stay, and those that can pass.

use ebb_store::StoreError;
use rusqlite::ErrorCode;

/// A problem of the file can pass, for example a full disk. An item or a page that is damaged stays.
pub(super) fn failed(operation: &'static str, error: &rusqlite::Error) -> StoreError {
    let reason = error.to_string();
    match is_broken_item(error) || is_damaged_file(error) {
        true => StoreError::Broken { operation, reason },
        false => StoreError::Retryable { operation, reason },
    }
}

/// Returns true if an item cannot be decoded or encoded.
pub(super) fn is_broken_item(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(error, E::FromSqlConversionFailure(..) | E::ToSqlConversionFailure(_) | E::InvalidColumnType(..))
}

pub(super) fn is_damaged_file(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
