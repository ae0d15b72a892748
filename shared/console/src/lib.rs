//! The pages of the console: types of the API in, HTML out.
//!
//! - `maud` escapes every value, in texts and in attributes. Nothing is marked as escaped that is not.
//! - A URL of a page is a path that [`paths`] makes of encoded parts. No value of others is a URL.
//! - A page is complete without scripts. `live.js` renews its `main` while it is visible.
//! - A page has no styles or scripts of its own, only those of [`assets`].

pub mod assets;
mod bulk_pages;
mod cluster_pages;
mod diagnosis;
mod frame;
mod history_page;
mod log_pages;
mod messages;
pub mod paths;
mod plugin_pages;
mod run_graph;
mod run_pages;
mod source_pages;
mod subscription_pages;
mod target_list;
mod target_page;
#[cfg(test)]
mod tests;
mod texts;
mod timeline;
mod waiting_page;

pub use bulk_pages::{
    BACK, BulkAction, BulkEntry, bulk_confirmation, bulk_consequences, bulk_outcomes, early_start, failed_run,
    no_deletion, selected_target,
};
pub use cluster_pages::{cluster, clusters};
pub use frame::{ConsoleViewer, FORM_TOKEN};
pub use history_page::{history, history_entry};
pub use log_pages::{UnitLogView, log, log_text, rendering};
pub use messages::{FailureView, failure, logged_in, login, sign_in, signed_out};
pub use plugin_pages::{PluginComparison, PluginParam, PluginView, plugin, plugin_comparison, plugins};
pub use run_pages::{RunUnitsView, run};
pub use source_pages::{SourceTrial, TrialEffect, source, sources};
pub use subscription_pages::{subscription, subscriptions};
pub use target_list::{TargetListFilter, TargetListView, targets};
pub use target_page::target;
pub use timeline::unit_counts;
pub use waiting_page::{WaitingView, waiting};

pub(crate) use frame::PageRenewal;
