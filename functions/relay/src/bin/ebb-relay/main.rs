//! `ebb-relay`: executes batches of the control plane in a cluster and accepts the reports of entrypoints.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context as _;
use args::KeySource;
use axum::Router;
use clap::Parser as _;
use ebb_relay::{ClusterPolicy, LeaderAddress, Relay, RelayLease};
use futures::future::{try_join, try_join_all};
use kube::Client;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

mod args;
mod attached;

/// Lines that are not logged: the client's own for each request that fails, which name neither object nor task. The relay
/// logs an outage of the API server once per 10 s.
const UNNAMED: &str = "kube_client::client::builder=off";

#[tokio::main]
async fn main() -> ExitCode {
    let Err(error) = run(args::RelayArgs::parse()).await else { return ExitCode::SUCCESS };
    // The parent program shows the last line of standard error. Causes that the message already contains are omitted.
    let why = error
        .chain()
        .map(ToString::to_string)
        .reduce(|said, cause| if said.contains(&cause) { said } else { format!("{said}: {cause}") });
    let _ = writeln!(std::io::stderr(), "error: {}", why.unwrap_or_default());
    ExitCode::FAILURE
}

async fn run(options: args::RelayArgs) -> anyhow::Result<()> {
    let wanted = std::env::var("EBB_LOG").unwrap_or_default();
    let wanted = EnvFilter::try_new(format!("{UNNAMED},{wanted}")).ok().filter(|_| !wanted.is_empty());
    let filter = wanted.unwrap_or_else(|| EnvFilter::new(format!("{UNNAMED},info")));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    if options.attached {
        log.with_ansi(false).with_target(false).init()
    } else {
        log.json().init()
    }
    let policy = options.policy()?;
    // Process 1 of a container ends by a signal only if it handles it. The API server may not respond yet.
    let end = signal(SignalKind::terminate())?;
    let Some(pod) = options.pod.clone() else { return Box::pin(work(options, policy, end)).await };
    let Some(mut lease) = wait_for_lease(&options, &policy, &pod).await? else { return Ok(()) };
    let worked = tokio::select! {
        worked = Box::pin(work(options, policy, end)) => worked,
        // The tasks of this process must end now.
        why = lease.kept() => return Err(anyhow::Error::msg(why)),
    };
    lease.given_up().await;
    worked
}

/// Stands by until the relay of a pod has its lease, or until `SIGTERM`. A relay that could not work does not become ready.
async fn wait_for_lease(
    options: &args::RelayArgs,
    policy: &ClusterPolicy,
    pod: &str,
) -> anyhow::Result<Option<RelayLease>> {
    options.key_source()?;
    options.control_plane()?;
    let (leader, client, settings) = (LeaderAddress::default(), options.client().await?, options.settings());
    let taken = async {
        // A relay that ends during an outage of the API server would be restarted after growing pauses.
        while client.apiserver_version().await.is_err() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let units = &settings.default_namespace;
        ebb_relay::check_admission(&client, units, policy.level(units)).await.map_err(anyhow::Error::msg)?;
        anyhow::Ok(Some(RelayLease::taken(&client, &settings.own_namespace, pod, leader.clone()).await))
    };
    let ports = [Some(options.listen), options.listen_reports].into_iter().flatten();
    let ports = ports.map(async |address| {
        let (listener, ended) = (listening(address).await?, terminated()?);
        anyhow::Ok(ebb_relay::stand_by(listener, leader.clone(), ended).await?)
    });
    tokio::select! {
        taken = taken => taken,
        ended = try_join_all(ports) => ended.map(|_| None),
    }
}

async fn work(options: args::RelayArgs, policy: ClusterPolicy, mut end: Signal) -> anyhow::Result<()> {
    let (source, control_plane) = (options.key_source()?, options.control_plane()?);
    let (client, relay) = tokio::select! {
        opened = open(&options, policy) => opened?,
        _ = end.recv() => return Ok(()),
    };
    let (uid, reports) = (relay.cluster_uid().to_owned(), ebb_relay::http::reports(relay.clone()));
    // An attached relay listens on all addresses of a personal machine, so it serves no probes and no metrics.
    let mut routes = match options.attached {
        true => Router::new(),
        false => ebb_relay::http::monitoring(relay.clone()),
    };
    let registered = Arc::new(OnceLock::new());
    if control_plane.is_none() {
        routes = routes.merge(ebb_relay::http::batches(relay.clone(), Arc::clone(&registered)));
    }
    // The relay serves probes and reports while it registers.
    let working = Box::pin(async {
        let keys = match source {
            KeySource::Given(keys) => keys,
            KeySource::Bootstrap(bootstrap) => tokio::select! {
                keys = ebb_relay::registered_keys(&client, &uid, &bootstrap) => keys?,
                _ = end.recv() => return anyhow::Ok(()),
            },
        };
        match control_plane {
            Some((url, cluster)) => ebb_relay::poll(relay, &url, cluster, keys, end.recv()).await?,
            None => {
                registered.get_or_init(|| keys);
            }
        }
        Ok(())
    });
    let listener = listening(options.listen).await?;
    // Tests and `ebb dev` read the port and the cluster from the first line, whatever the level of the log is.
    let line = format!("listening on {} in cluster {uid}", listener.local_addr()?);
    if options.attached {
        writeln!(std::io::stdout(), "{line}")?;
    } else {
        // The log of a pod has both streams, so this line is JSON, too.
        let stdout = tracing_subscriber::fmt().json().with_writer(std::io::stdout).finish();
        tracing::subscriber::with_default(stdout, || tracing::info!("{line}"));
    }
    let serving = async {
        let Some(address) = options.listen_reports else {
            return serve(listener, routes.merge(reports)).await;
        };
        let (routes, reports) = (serve(listener, routes), serve(listening(address).await?, reports));
        tokio::try_join!(routes, reports).map(drop)
    };
    // Given secrets are set before the first request.
    try_join(working, serving).await.map(drop)
}

async fn open(options: &args::RelayArgs, policy: ClusterPolicy) -> anyhow::Result<(Client, Relay)> {
    let (client, settings) = (options.client().await?, options.settings());
    if options.attached {
        attached::prepare(&client, &settings, &policy).await?;
    }
    let (units, level) = (&settings.default_namespace, policy.level(&settings.default_namespace));
    ebb_relay::check_admission(&client, units, level).await.map_err(anyhow::Error::msg)?;
    let opened = Relay::open(client.clone(), settings, policy).await;
    Ok((client, opened.context("cannot open the relay")?))
}

async fn listening(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

async fn serve(listener: TcpListener, routes: Router) -> anyhow::Result<()> {
    Ok(axum::serve(listener, routes).with_graceful_shutdown(terminated()?).await?)
}

fn terminated() -> anyhow::Result<impl Future<Output = ()>> {
    let mut end = signal(SignalKind::terminate())?;
    Ok(async move {
        end.recv().await;
    })
}
