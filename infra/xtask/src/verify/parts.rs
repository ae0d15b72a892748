//! The parts of `cargo xtask verify`.

use std::sync::LazyLock;

use super::part::{PartRun, VerifyPart};
use super::rules;
use crate::cluster;
use crate::run::{cargo, command, folder, root, run};
use crate::{aws, chart, console, dynamodb_local, entrypoint, images, python, tools};

pub(super) type PartCode = fn(&mut PartRun<'_>) -> anyhow::Result<()>;

/// All parts, the quick ones first.
pub(super) static PARTS: LazyLock<Vec<VerifyPart>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("parts.yaml")).expect("the parts are readable"));

pub(super) const CODES: &[(&str, PartCode)] = &[
    ("deny", |this| {
        // The default features support the database of advisories, which is not used.
        tools::install("cargo-deny", &["--version"], tools::CARGO_DENY, &["--no-default-features"])?;
        // `cargo deny` would also need the folder of installed programs in PATH.
        this.run(command("cargo-deny").args(["check", "bans", "licenses", "sources"]))
    }),
    ("docs", |this| {
        this.run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
        e2e(this, &["book::"], &[])?;
        chart::check()?;
        this.tests += 1;
        this.test("-p xtask", &[])
    }),
    ("dynamodb-local", |this| {
        dynamodb_local::fetch()?;
        let table = [("EBB_TEST_TABLE", "dynamodb-local".to_owned())];
        this.test("-p ebb-store --test it", &table)
    }),
    ("simulation", |this| {
        let instances = this.pick("3000", "100000");
        program(this, "simulate", &["--instances", instances, "--seed", "1"])?;
        if this.options.is_empty() {
            let more = [("EBB_RACE_TURNS", "10".to_owned()), ("EBB_SIM_CASES", "640".to_owned())];
            let simulation = "-p ebb-tests --profile verify --features verify --test simulation --test long";
            this.test(simulation, &more)?;
        }
        Ok(())
    }),
    ("model", |this| {
        let large: &[&str] = this.pick(&[], &["--large"]);
        program(this, "model", large)
    }),
    ("rules", |this| this.run(command(rules::build()?).arg("--rules").args(this.options))),
    ("api", |this| {
        python::PythonTools::Api.install()?;
        let mut dashboard = python::PythonTools::Api.program("python");
        this.run(dashboard.arg(root().join("infra/grafana/check.py")))?;
        run(cargo().args(["build", "-p", "ebb"]))?;
        let script = |name: &str| {
            let mut script = python::PythonTools::Api.program("python");
            script.arg(root().join("infra/api").join(name)).arg("--ebb").arg(folder().join("debug/ebb"));
            script
        };
        this.run(&mut script("github_life.py"))?;
        this.run(&mut script("github_day.py"))?;
        this.run(&mut script("mishaps.py"))?;
        let mut conformance = script("conformance.py");
        conformance.args(["--examples", this.pick("200", "2000"), "--seed", "1", "--workers", "1"]);
        this.run(conformance.args(this.options))
    }),
    ("console", |this| {
        run(cargo().args(["build", "-p", "ebb"]))?;
        let mut check = console::check()?;
        check.arg("--ebb").arg(folder().join("debug/ebb")).args(["--memory-seconds", this.pick("60", "600")]);
        this.run(check.args(this.options))
    }),
    ("mcp", |this| {
        let tools = root().join("target/mcp");
        tools::node(&root().join("infra/mcp"), &tools)?;
        run(cargo().args(["build", "-p", "ebb"]))?;
        let mut check = command("node");
        check.arg(tools.join("agents.mjs")).arg("--ebb").arg(folder().join("debug/ebb"));
        check.arg("--repository").arg(root());
        this.run(check.args(this.options))
    }),
    ("scripts", |this| {
        tools::packages(tools::TEST_PACKAGES)?;
        entrypoint::all()?;
        this.test("-p ebb-entrypoint --bins --test it", &[])?;
        e2e(this, &["containers::", "postgres::"], &[])
    }),
    ("opentofu", |this| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(cluster::programs("opentofu")?).chain(std::env::split_paths(&paths));
        let paths = std::env::join_paths(paths)?.into_string();
        let paths = paths.map_err(|paths| anyhow::anyhow!("PATH is not UTF-8: {}", paths.display()))?;
        e2e(this, &["opentofu::"], &[("PATH", paths)])
    }),
    ("fuzz", |this| {
        let seconds = this.pick("40", "600");
        this.run(command("tests/fuzz/fuzz.sh").arg(seconds).args(this.options))
    }),
    ("kills", |this| {
        tools::packages(tools::TEST_PACKAGES)?;
        dynamodb_local::fetch()?;
        entrypoint::all()?;
        let _cluster = cluster::ClusterGuard::up()?;
        for (tests, kills) in [("kill_databases::", this.pick("20", "100")), ("kill_cluster::", this.pick("6", "100"))]
        {
            e2e(this, &[tests], &[("EBB_KILLS", kills.to_owned())])?;
        }
        Ok(())
    }),
    ("cluster", |this| {
        tools::packages(tools::TEST_PACKAGES)?;
        entrypoint::all()?;
        let _cluster = cluster::ClusterGuard::up()?;
        cluster::programs("opentofu")?;
        this.test("-p ebb-relay --test it", &[])?;
        let elsewhere = ["book::", "containers::", "postgres::", "kill", "opentofu::"];
        e2e(this, &elsewhere.map(|tests| ["--skip", tests]).concat(), &[])?;
        if this.pick(false, true) {
            many_tasks(this)?;
        }
        Ok(())
    }),
    ("aws", |this| aws::all(&mut this.tests)),
    ("mutants", |this| {
        let some: &[&str] = this.pick(&["--shard", "0/16"], &[]);
        tools::install("cargo-mutants", &["mutants", "--version"], tools::CARGO_MUTANTS, &[])?;
        this.run_with(&mut command("infra/dev/cargo-mutants.sh"), some)
    }),
];

/// Builds a program of the tests in the profile `verify` and runs it, with the options of the command line or
/// `default`.
fn program(this: &mut PartRun, name: &str, default: &[&str]) -> anyhow::Result<()> {
    let build = ["build", "-p", "ebb-tests", "--profile", "verify", "--bin", name, "--features", "verify"];
    run(cargo().args(build))?;
    this.run_with(&mut command(folder().join("verify").join(name)), default)
}

/// Runs end-to-end tests, which start `ebb` and the relay.
fn e2e(this: &mut PartRun, chosen: &[&str], variables: &[(&str, String)]) -> anyhow::Result<()> {
    run(cargo().args(["build", "-p", "ebb", "-p", "ebb-relay"]))?;
    this.test(&format!("-p ebb-tests --features infrakit-plugin --test e2e -- {}", chosen.join(" ")), variables)
}

/// Sends many tasks at once to a release build of the relay.
fn many_tasks(this: &mut PartRun) -> anyhow::Result<()> {
    let relay = images::relay()?;
    let number = |name, value: &str| (name, value.to_owned());
    let variables = [
        ("EBB_RELAY", relay.display().to_string()),
        number("EBB_TASKS", "500"),
        number("EBB_MAX_CONCURRENT_TASKS", "20"),
        number("EBB_ROUNDS", "3"),
        number("EBB_TASKS_AGAIN", "200"),
    ];
    let test = "fair_queue::many_tasks_share_few_slots";
    this.test(&format!("-p ebb-relay --test it -- --exact --nocapture {test}"), &variables)
}
