//! `ebb dev`: runs the control plane on this machine.

use std::path::PathBuf;
use std::time::Duration;

use ebb_local::embedded::StateDurability;
use ebb_local::{ExternalTable, StackSettings};
use tracing_subscriber::EnvFilter;
use url::Url;

use crate::{BackendArgs, Exit, InterruptCount, LocalServer, Result, output, server};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, clap::Args)]
pub(crate) struct DevArgs {
    /// Port of the API, on the address of --listen
    #[arg(long, value_name = "PORT", default_value_t = 7878)]
    port: u16,
    /// Port of the S3 service for scripts
    #[arg(long, value_name = "PORT", default_value_t = 7879)]
    s3_port: u16,
    /// Folder for state, secrets and logs
    #[arg(long, value_name = "DIR", default_value = server::STATE)]
    state: PathBuf,
    /// URL to post notifications to, as signed CloudEvents
    #[arg(long, value_name = "URL")]
    platform_url: Option<Url>,
    /// DynamoDB endpoint for the table, such as DynamoDB Local; it must accept any signature. By default the table is a
    /// file in --state
    #[arg(long, value_name = "URL")]
    dynamodb: Option<Url>,
    /// Name of the table there; created if missing, used by one server only
    #[arg(long, value_name = "NAME", default_value = "ebb", requires = "dynamodb")]
    table: String,
    /// Failures that do not lose acknowledged events: of the process, or with `full` of the power, too; writes then wait
    /// for the disk
    #[arg(long, value_parser = ["process", "full"], default_value = "process", conflicts_with = "dynamodb")]
    durability: String,
    /// Days to keep runs, outputs and logs of gone targets; 0 keeps them forever
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    retention_days: u32,
    /// Run an issuer too, where everyone of this machine signs in as anyone, for trials; by default on port 7877
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "7877")]
    issuer: Option<u16>,
    /// Issuers of identity tokens, a JSON list of {issuer, name, display, audience, rules, signIn}
    #[arg(
        long,
        env = "EBB_OIDC",
        value_name = "JSON",
        default_value = "",
        hide_default_value = true,
        hide_env_values = true
    )]
    oidc: String,
    #[command(flatten)]
    backend: BackendArgs,
}

impl DevArgs {
    pub(crate) async fn run(self) -> Result<Exit> {
        log_to_stderr();
        let interrupts = InterruptCount::listen()?;
        let machine = LocalServer::start(StackSettings {
            state: self.state,
            port: Some(self.port),
            s3_port: Some(self.s3_port),
            oidc: self.oidc,
            issuer: self.issuer,
            platform: self.platform_url.map(|url| url.to_string()),
            retention: (self.retention_days > 0).then(|| DAY.saturating_mul(self.retention_days)),
            dynamodb: self.dynamodb.map(|url| ExternalTable { endpoint: url.to_string(), table: self.table }),
            durability: if self.durability == "full" { StateDurability::Full } else { StateDurability::Process },
            ..self.backend.settings().await?
        })
        .await?;
        let issuer = machine.stack.issuer();
        let issuer = issuer.map(|url| format!("issuer  {url}, for `ebb login`: everyone signs in as anyone\n"));
        output::print(&format!(
            "server  {}/\nconsole {} (signs in once)\n{}S3      {}\nsecrets in {}: token (API), webhookSecret (lifecycle webhooks), platformSecret (notifications)\nstop with Ctrl-C\n",
            machine.stack.url(),
            machine.stack.sign_in_url(),
            issuer.unwrap_or_default(),
            machine.stack.s3_url(),
            machine.file.display()
        ))?;
        interrupts.more_than(0).await;
        tokio::select! {
            _ = machine.stack.stop() => {}
            () = interrupts.more_than(1) => return Ok(Exit::Interrupted),
        }
        Ok(Exit::Done)
    }
}

/// Logs to standard error. `RUST_LOG` sets the filter.
fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new("warn,ebb=info,ebb_api=info,ebb_flow=info,ebb_local=info,ebb_relay_client=info")
    });
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(console::colors_enabled_stderr())
        .with_target(false)
        // Without this, the subscriber would report a closed standard error to standard error and panic.
        .log_internal_errors(false)
        .init();
}
