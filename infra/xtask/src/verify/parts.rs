//! The parts of `cargo xtask verify`.

use super::part::{PartRun, VerifyPart};
use super::rules;
use crate::cluster;
use crate::run::{cargo, command, folder, root, run};
use crate::{aws, chart, console, dynamodb_local, entrypoint, images, python, tools};

/// The paths that affect the execution of a run.
const PROTOCOL: &str = "shared/engine shared/flow shared/documents shared/store shared/protocol tests/model \
    tests/simulation tests/src/virtual_runtime.rs";

/// All parts, the quick ones first.
pub(super) const PARTS: &[VerifyPart] = &[
    VerifyPart {
        name: "deny",
        covers: "licences, sources and banned crates of all dependencies, by cargo-deny",
        needs: "builds cargo-deny",
        paths: "Cargo.lock Cargo.toml .deny.toml",
        run: |this| {
            // The default features support the database of advisories, which is not used.
            tools::install("cargo-deny", &["--version"], tools::CARGO_DENY, &["--no-default-features"])?;
            // `cargo deny` would also need the folder of installed programs in PATH.
            this.run(command("cargo-deny").args(["check", "bans", "licenses", "sources"]))
        },
    },
    VerifyPart {
        name: "docs",
        covers: "rustdoc without warnings, the commands and examples of the book, the relay's chart, the tests of xtask",
        needs: "Go, to build helm; Python, openssl and curl",
        paths: "docs shared functions tests/src tests/tests/e2e infra",
        run: |this| {
            this.run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
            e2e(this, &["book::"], &[])?;
            chart::check()?;
            this.tests += 1;
            this.test("-p xtask", &[])
        },
    },
    VerifyPart {
        name: "dynamodb-local",
        covers: "the conformance suite of the store on Amazon's DynamoDB Local",
        needs: "Java and Maven, by apt; DynamoDB Local from Maven Central",
        paths: "shared/store",
        run: |this| {
            dynamodb_local::fetch()?;
            let table = [("EBB_TEST_TABLE", "dynamodb-local".to_owned())];
            this.test("-p ebb-store --test it", &table)
        },
    },
    VerifyPart {
        name: "simulation",
        covers: "3,000 instances of random targets in simulations with random faults, ten times the random cases and races of `cargo test` (--full: 100,000 instances)",
        needs: "nothing",
        paths: PROTOCOL,
        run: |this| {
            let instances = this.pick("3000", "100000");
            program(this, "simulate", &["--instances", instances, "--seed", "1"])?;
            if this.options.is_empty() {
                let more = [("EBB_RACE_TURNS", "10".to_owned()), ("EBB_SIM_CASES", "640".to_owned())];
                let simulation = "-p ebb-tests --profile verify --features verify --test simulation --test long";
                this.test(simulation, &more)?;
            }
            Ok(())
        },
    },
    VerifyPart {
        name: "model",
        covers: "every order of the steps of small graphs (--full: of large ones, too)",
        needs: "nothing",
        paths: PROTOCOL,
        run: |this| {
            let large: &[&str] = this.pick(&[], &["--large"]);
            program(this, "model", large)
        },
    },
    VerifyPart {
        name: "rules",
        covers: "the model notices each rule of the state protocol that is left out",
        needs: "nothing",
        paths: PROTOCOL,
        run: |this| this.run(command(rules::build()?).arg("--rules").args(this.options)),
    },
    VerifyPart {
        name: "api",
        covers: "the OpenAPI document by a validator, each operation by schemathesis with signed requests, events by the SDKs of Standard Webhooks and CloudEvents, the life of a pull request by GitHub's OpenAPI description, the Grafana dashboard by Grafana's SDK and a parser of its queries",
        needs: "Python with venv; tools from PyPI; GitHub's description and example events from npm",
        paths: "shared/api shared/protocol shared/documents/presets/github.yaml shared/documents/src/notification.rs \
            shared/flow/src/instance/outbox.rs functions/cli/src infra/api infra/grafana",
        run: |this| {
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
            let mut conformance = script("conformance.py");
            conformance.args(["--examples", this.pick("200", "2000"), "--seed", "1", "--workers", "1"]);
            this.run(conformance.args(this.options))
        },
    },
    VerifyPart {
        name: "console",
        covers: "every page and action of the console in Chromium, the sign-in at an issuer included: by pointer, by keys and without JavaScript, light, dark and on a narrow screen; accessibility by axe, renewal, weight, the memory of a tab for one minute (--full: ten minutes), ten repairs, the pictures of the book",
        needs: "Node.js 20 with npm; chromium and fonts-liberation, by apt; playwright-core, axe-core, oidc-provider, pixelmatch and pngjs from npm",
        paths: "shared/console shared/api/src/console shared/api/src/oidc shared/api/src/oidc.rs infra/console tests/repairs docs/src/pictures",
        run: |this| {
            run(cargo().args(["build", "-p", "ebb"]))?;
            let mut check = console::check()?;
            check.arg("--ebb").arg(folder().join("debug/ebb")).args(["--memory-seconds", this.pick("60", "600")]);
            this.run(check.args(this.options))
        },
    },
    VerifyPart {
        name: "mcp",
        covers: "the MCP server by the protocol's conformance suite, thirteen tasks of a coding agent over HTTP with at most 5 calls each",
        needs: "Node.js 20 with npm; the suite, the protocol's SDK and Node.js 22 from npm",
        paths: "shared/api infra/mcp tests/repairs",
        run: |this| {
            let tools = root().join("target/mcp");
            tools::node(&root().join("infra/mcp"), &tools)?;
            run(cargo().args(["build", "-p", "ebb"]))?;
            let mut check = command("node");
            check.arg(tools.join("agents.mjs")).arg("--ebb").arg(folder().join("debug/ebb"));
            check.arg("--repository").arg(root());
            this.run(check.args(this.options))
        },
    },
    VerifyPart {
        name: "scripts",
        covers: "the entrypoint of pods in namespaces of its own, scripts as containers of Podman, the example with PostgreSQL",
        needs: "root; busybox, curl, Podman, runc and PostgreSQL, by apt",
        paths: "functions/entrypoint shared/script shared/local tests/examples tests/tests/e2e",
        run: |this| {
            tools::packages(tools::TEST_PACKAGES)?;
            entrypoint::all()?;
            this.test("-p ebb-entrypoint --bins --test it", &[])?;
            e2e(this, &["containers::", "postgres::"], &[])
        },
    },
    VerifyPart {
        name: "opentofu",
        covers: "the example with OpenTofu: its state in a bucket, and kill -9 in the middle of an apply",
        needs: "Go, to build OpenTofu from modules",
        paths: "tests/examples/opentofu tests/tests/e2e/opentofu.rs shared/script shared/local infra/cluster/opentofu",
        run: |this| {
            let paths = std::env::var_os("PATH").unwrap_or_default();
            let paths = std::iter::once(cluster::BinarySet::Opentofu.built()?).chain(std::env::split_paths(&paths));
            let paths = std::env::join_paths(paths)?.into_string();
            let paths = paths.map_err(|paths| anyhow::anyhow!("PATH is not UTF-8: {}", paths.display()))?;
            e2e(this, &["opentofu::"], &[("PATH", paths)])
        },
    },
    VerifyPart {
        name: "fuzz",
        covers: "hostile input guided by coverage, 40 s for each target (--full: 600 s)",
        needs: "a C++ compiler",
        paths: "shared/engine shared/documents shared/protocol tests/fuzz",
        run: |this| {
            let seconds = this.pick("40", "600");
            this.run(command("tests/fuzz/fuzz.sh").arg(seconds).args(this.options))
        },
    },
    VerifyPart {
        name: "kills",
        covers: "kill -9 of `ebb dev` over the example with PostgreSQL and DynamoDB Local, 20 times, and of any part of a cluster, 6 times (--full: 100 each)",
        needs: "as `cluster`; Java, Maven and PostgreSQL, by apt",
        paths: "shared/flow shared/store shared/local functions/relay functions/cli/src",
        run: |this| {
            tools::packages(tools::TEST_PACKAGES)?;
            dynamodb_local::fetch()?;
            entrypoint::all()?;
            let _cluster = cluster::ClusterGuard::up()?;
            for (tests, kills) in
                [("kill_databases::", this.pick("20", "100")), ("kill_cluster::", this.pick("6", "100"))]
            {
                e2e(this, &[tests], &[("EBB_KILLS", kills.to_owned())])?;
            }
            Ok(())
        },
    },
    VerifyPart {
        name: "cluster",
        covers: "the relay, its chart, pods, objects, pushes and polls in a real Kubernetes (--full: 500 tasks at once)",
        needs: "root and Go; containerd, nftables and more, by apt; Kubernetes, etcd, helm, kro and OpenTofu from Go modules",
        paths: "shared/kube shared/script shared/protocol shared/relay_client \
            shared/local functions/cli/src functions/relay functions/entrypoint infra/relay infra/cluster \
            tests/tests/e2e",
        run: |this| {
            tools::packages(tools::TEST_PACKAGES)?;
            entrypoint::all()?;
            let _cluster = cluster::ClusterGuard::up()?;
            cluster::BinarySet::Opentofu.built()?;
            this.test("-p ebb-relay --test it", &[])?;
            let elsewhere = ["book::", "containers::", "postgres::", "kill", "opentofu::"];
            e2e(this, &elsewhere.map(|tests| ["--skip", tests]).concat(), &[])?;
            if this.pick(false, true) {
                many_tasks(this)?;
            }
            Ok(())
        },
    },
    VerifyPart {
        name: "aws",
        covers: "the template by SAM, cfn-lint and checkov; the functions built, deployed to MiniStack, started under Lambda's emulator; the console of that deployment in Chromium",
        needs: "root, Python with venv; iproute2, by apt; tools from PyPI; those of the part `console`",
        paths: "template.yaml functions/lambda infra/aws infra/console shared/api shared/flow tests/src/bin/aws_e2e",
        run: |this| aws::all(&mut this.tests),
    },
    VerifyPart {
        name: "mutants",
        covers: "changes of the engine and the store, one at a time: a test notices each (one of 16 of them; --full: all)",
        needs: "builds cargo-mutants",
        paths: "shared/engine shared/store/src/dynamo .cargo/mutants.toml",
        run: |this| {
            let some: &[&str] = this.pick(&["--shard", "0/16"], &[]);
            tools::install("cargo-mutants", &["mutants", "--version"], tools::CARGO_MUTANTS, &[])?;
            this.run_with(&mut command("infra/dev/cargo-mutants.sh"), some)
        },
    },
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
