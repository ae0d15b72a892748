//! The pages of the console: types of the API in, HTML out.
//!
//! - `maud` escapes every value, in texts and in attributes. Nothing is marked as escaped that is not.
//! - A URL of a page is a path that [`paths`] makes of encoded parts. A value of others is one only by `texts::is_web`.
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
mod overview;
pub mod paths;
mod plugin_pages;
mod source_pages;
mod subscription_pages;
mod target_filter;
mod target_list;
mod target_page;
mod target_view;
#[cfg(test)]
mod tests;
mod texts;
mod unit_panel;
mod waterfall;

pub use bulk_pages::{
    BACK, BulkAction, BulkEntry, REASON, bulk_confirmation, bulk_consequences, bulk_outcome, bulk_outcomes,
    early_start, no_deletion, selected_target,
};
pub use cluster_pages::{cluster, clusters};
pub use frame::{ConsoleViewer, FORM_TOKEN};
pub use history_page::{history, history_entry};
pub use log_pages::{AttemptLogView, LogQuery, LogView, MAX_LOGS, RUN_LOG, log, log_text};
pub use messages::{FailureView, failure, logged_in, login, sign_in, signed_out};
pub use overview::{OverviewView, overview};
pub use plugin_pages::{PluginParam, PluginUsers, PluginView, plugin, plugins};
pub use source_pages::{SourceTrial, TrialEffect, source, sources};
pub use subscription_pages::{subscription, subscriptions};
pub use target_filter::TargetListFilter;
pub use target_list::{TargetListView, targets};
pub use target_page::target;
pub use target_view::{SelectedRun, SelectedUnit, TargetView};

pub(crate) use frame::PageRenewal;
