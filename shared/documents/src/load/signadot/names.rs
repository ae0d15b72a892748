//! Names in Signadot's documents.

use crate::load::names::{MAX_SIGNADOT_NAME, NameSyntax};
use crate::load::reader::DocumentReader;
use crate::model::At;

/// Checks the name of a step, an input, an output or a target.
pub(super) fn short_name(reader: &DocumentReader<'_>, name: &At<String>, what: &str) {
    reader.check_name(name, what, NameSyntax::Signadot, MAX_SIGNADOT_NAME);
}
