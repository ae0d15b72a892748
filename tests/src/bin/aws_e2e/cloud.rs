//! The AWS emulator on this machine, and the stack in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;

use anyhow::Context as _;
use aws_sdk_secretsmanager::Client;
use aws_sdk_secretsmanager::config::{BehaviorVersion, Config, Credentials, Region};
use ebb_tests::platform::http;
use ebb_tests::wait::until;
use tokio::process::{Child, Command};

use crate::steps::{run, step};
use crate::{DeployedArgs, StackArgs, keys};

const PORT: u16 = 4566;
/// The URL of the emulator, for all services.
pub(crate) const ENDPOINT: &str = "http://127.0.0.1:4566";
pub(crate) const REGION: &str = "eu-west-1";
pub(crate) const STACK: &str = "ebb-test";
/// The settings of `sam deploy`.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../infra/aws/samconfig.toml");

/// The running emulator, which has the secret of the deployment.
pub(crate) struct CloudEmulator {
    // Killed when it is dropped.
    _emulator: Child,
    sam: PathBuf,
    address: String,
    pub(crate) secret: String,
}

fn with_emulator(name: impl AsRef<OsStr>) -> Command {
    let mut program = Command::new(name);
    program
        .env("AWS_ENDPOINT_URL", ENDPOINT)
        .env("AWS_DEFAULT_REGION", REGION)
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test");
    program
}

impl CloudEmulator {
    pub(crate) async fn start(place: &DeployedArgs) -> anyhow::Result<Self> {
        let log = File::create(&place.log).with_context(|| place.log.display().to_string())?;
        // The emulator unpacks the functions into this folder.
        std::fs::create_dir_all(place.log.with_file_name("ministack"))?;
        let mut emulator = with_emulator(place.tools.join("ministack"));
        emulator
            .env("GATEWAY_PORT", PORT.to_string())
            .env("MINISTACK_REGION", REGION)
            // The emulator starts a program for each invocation, so every start is cold.
            .env("LAMBDA_EXECUTOR", "local")
            .env("TMPDIR", place.log.with_file_name("ministack"))
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true);
        let emulator = emulator.spawn().context("cannot start ministack")?;
        let (http, health) = (http(), format!("http://127.0.0.1:{PORT}/_ministack/health"));
        let healthy = async || {
            let response = http.get(&health).send().await.ok()?;
            response.status().is_success().then_some(response)
        };
        step("start the emulator", async { Ok(until(&place.log.display().to_string(), healthy).await) }).await?;
        let secret = secret().await?;
        Ok(Self { _emulator: emulator, sam: place.tools.join("sam"), address: place.address.to_string(), secret })
    }

    pub(crate) async fn deploy(&self, name: &str, arguments: &StackArgs, parameters: &[&str]) -> anyhow::Result<()> {
        let mut deploy = with_emulator(&self.sam);
        deploy.args(["deploy", "--config-file", CONFIG, "--stack-name", STACK, "--no-confirm-changeset"]);
        deploy.arg("--template-file").arg(&arguments.template).arg("--parameter-overrides");
        step(name, run(deploy.args(parameters))).await.map(drop)
    }

    pub(crate) async fn outputs(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let mut sam = with_emulator(&self.sam);
        let printed = run(sam.args(["list", "stack-outputs", "--stack-name", STACK, "--output", "json"])).await?;
        let outputs: Vec<serde_json::Value> = serde_json::from_str(&printed)?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        Ok(outputs.iter().map(|output| (text(&output["OutputKey"]), text(&output["OutputValue"]))).collect())
    }

    pub(crate) fn http_api(&self, outputs: &BTreeMap<String, String>) -> anyhow::Result<String> {
        let url = outputs.get("HttpApiUrl").context("the stack has no output HttpApiUrl")?;
        let id = url.split("//").nth(1).and_then(|host| host.split('.').next()).context("no id")?;
        Ok(format!("http://{}:{PORT}/_aws/execute-api/{id}", self.address))
    }
}

/// Creates the secret and returns its ARN.
async fn secret() -> anyhow::Result<String> {
    let settings = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new(REGION))
        .credentials_provider(Credentials::new("test", "test", None, None, "emulator"))
        .endpoint_url(ENDPOINT);
    let client = Client::from_conf(settings.build());
    let created = client.create_secret().name("ebb").secret_string(keys::secret().to_string()).send();
    created.await?.arn.context("the secret has no ARN")
}
