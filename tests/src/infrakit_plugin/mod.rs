//! An InfraKit plugin for tests. It makes networks, volumes and instances as folders on this machine.
//!
//! It has InfraKit's interface `Instance/0.6.1`, and responds as InfraKit's server does.

mod folders;
mod rpc;

use std::io;
use std::path::Path;

/// Returns the routes of a plugin that keeps its state in `dir`. A later plugin with the same folder continues with it.
///
/// # Errors
/// Returns an error if the folder cannot be created or read.
pub fn router(dir: &Path) -> io::Result<axum::Router> {
    Ok(rpc::router(folders::InfraFolders::open(dir)?))
}
