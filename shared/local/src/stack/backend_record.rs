//! The file `backend.json`: the part that has run the units of the living targets. Another one would undo nothing and
//! report a success.

use std::path::Path;

use ebb_engine::TargetPhase;
use ebb_protocol::id::TargetKey;
use ebb_store::{Store, StoreResult, TargetList};

use super::stack_error::StackError;
use crate::files;

/// Records the part of this start, such as `--kubeconfig of the cluster UID`, in the folder `state`.
///
/// # Errors
/// Returns [`StackError::OtherBackend`] if a target lives and another part is recorded.
pub(super) async fn keep(state: &Path, store: &Store, new: String) -> Result<(), StackError> {
    let file = state.join("backend.json");
    let last = files::read_json::<String>(&file)?.unwrap_or_else(|| new.clone());
    if last != new
        && let Some(living) = living(store).await.map_err(StackError::part("the table"))?
    {
        return Err(StackError::OtherBackend { state: state.to_owned(), file, last, new, living });
    }
    Ok(files::write_json(&file, &new)?)
}

/// Returns a target that is not gone, or that cannot be read.
async fn living(store: &Store) -> StoreResult<Option<String>> {
    let mut after = None;
    loop {
        let from = after.as_ref().map(|(kind, name): &(String, String)| TargetKey::new(kind, name));
        let page = store.list_page(TargetList::Active, None, from, 10).await?;
        let living = page.targets.iter().find(|target| target.phase != TargetPhase::Gone);
        let name = living.map(|target| format!("{}/{}", target.kind, target.name));
        if page.next.is_none() || name.is_some() || !page.damaged.is_empty() {
            return Ok(name.or(page.damaged.into_iter().next()));
        }
        after = page.next;
    }
}
