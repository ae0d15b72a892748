//! `ebb`, the command line and the control plane of one machine.

mod backend;
#[cfg(test)]
mod book;
mod bulk;
mod client;
mod cluster_policy;
mod commands;
mod confirmation;
mod documents;
mod drawing;
mod dry_run;
mod exit;
mod interrupt;
mod lifecycle;
mod local_server;
mod logins;
mod many_waits;
mod offline;
mod output;
mod pretend;
mod progress;
#[cfg(test)]
mod reference;
mod refusal;
mod selector;
mod server;
mod silence;
mod target;
mod timing;
mod why;

use std::process::ExitCode;

use clap::FromArgMatches as _;

pub(crate) use backend::BackendArgs;
pub(crate) use bulk::{TargetsCommand, YesArgs};
pub(crate) use client::{ApiClient, connect, is_local, list_command};
pub(crate) use confirmation::{accept_loss, confirm};
pub(crate) use documents::{DocumentSource, FileArgs, SetArgs, divided, target_of, unexpected};
pub(crate) use dry_run::{ChangeKind, DocumentChange, DryRunArgs};
pub(crate) use exit::{CliError, Exit, Result};
pub(crate) use interrupt::InterruptCount;
pub(crate) use lifecycle::{WaitArgs, named, wait, watched};
pub(crate) use local_server::LocalServer;
pub(crate) use output::{OutputArgs, joined_lines, printable};
pub(crate) use progress::follow::{
    FollowEnd, FollowGoal, FollowLimits, PollPauses, WatchedInstance, follow, waiting_line,
};
pub(crate) use progress::labels;
pub(crate) use progress::screen::ProgressScreen;
pub(crate) use refusal::{in_document, refused};
pub(crate) use selector::{CommandTargets, SelectorArgs};
pub(crate) use server::{AddressOrigin, ServerAccess, ServerArgs};
pub(crate) use silence::{LONGEST_SILENCE, ServerSilence};
pub(crate) use target::{KindArgs, TargetArgs, TargetCommandArgs, TargetRef, check_names, fresh_uid};

/// Under load, it takes less time than the allocator of the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The supervisor of a unit is this program. It forks, which requires a single thread.
    ebb_local::pods::supervise_if_asked();
    let arguments = commands::EbbCli::described().get_matches();
    let format = output::selected_format(&arguments);
    let ebb = commands::EbbCli::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = exit::CliError::broken("cannot start the threads of the program").with_causes(&error);
            return output::report(&error, None).into();
        }
    };
    let exit: Exit = runtime.block_on(ebb.run()).unwrap_or_else(|error| output::report(&error, format));
    // Tasks that still run do not delay the exit.
    runtime.shutdown_background();
    exit.into()
}
