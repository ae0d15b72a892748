//! `cargo xtask cluster check`: checks in a running cluster what tests of the relay need.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::folder::{self, until};
use super::images::{BUSYBOX, DEBIAN};
use super::kubectl::{apply, output_of, ready, serves};
use super::netns::ClusterNetns;
use super::servers::ClusterServer;
use super::up;

/// Starts the cluster, runs all checks, prints the time of each, and deletes their namespaces.
pub(crate) fn all() -> anyhow::Result<()> {
    step("up", || up::all(&[]))?;
    let netns = ClusterNetns::find().context("the cluster is up")?;
    output_of(&["delete", "namespace", "check", "refusing", "--ignore-not-found"])?;
    apply(include_str!("../../../cluster/check.yaml"))?;
    let checked = step("a job, and its log through the API server", || {
        job("hello", BUSYBOX, "echo hello from $(hostname)", "hello from hello-")
    })
    .and_then(|()| step("psql in Debian", || job("psql", DEBIAN, "psql --version", "psql (PostgreSQL)")))
    .and_then(|()| step("a pod's token, and RBAC", rights))
    .and_then(|()| step("a service from a pod and from the machine", service))
    .and_then(|()| step("the machine from a pod", || machine(&netns)))
    .and_then(|()| step("no privileged pod where that is refused", admission))
    .and_then(|()| step("an image of a folder", || image(&netns)))
    .and_then(|()| {
        step("an image that is not there, and too little memory", || {
            reason("missing", &["ErrImagePull", "ImagePullBackOff"])?;
            reason("hungry", &["OOMKilled"])
        })
    })
    .and_then(|()| step("each server killed and started", || killed(&netns)))
    .and_then(|()| step("a job after that", || job("again", BUSYBOX, "echo again", "again")));
    output_of(&["delete", "namespace", "check", "refusing", "--ignore-not-found"])?;
    checked
}

fn step(name: &str, action: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let began = Instant::now();
    let done = action();
    let result = if done.is_ok() { "passed" } else { "FAILED" };
    println!("== {name}: {result} in {:.1} s", began.elapsed().as_secs_f64());
    done.with_context(|| name.to_owned())
}

/// Runs a script in a Job and checks that its log contains `expected`.
fn job(name: &str, image: &str, script: &str, expected: &str) -> anyhow::Result<()> {
    let job = serde_json::json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name, "namespace": "check" },
        "spec": { "backoffLimit": 0, "template": { "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": image, "command": ["sh", "-c", script] }],
        } } },
    });
    apply(&job.to_string())?;
    let it = format!("job/{name}");
    let status = "jsonpath={.status.conditions[?(@.status==\"True\")].type}";
    let mut ended = String::new();
    until(
        &it,
        60,
        || {
            ended = output_of(&["--namespace=check", "get", &it, "--output", status]).unwrap_or_default();
            ["Complete", "Failed"].iter().any(|end| ended.split(' ').any(|its| its == *end))
        },
        || Ok(()),
    )
    .with_context(|| output_of(&["--namespace=check", "describe", "pods"]).unwrap_or_default())?;
    let log = output_of(&["--namespace=check", "logs", &it])?;
    ensure!(ended.contains("Complete") && log.contains(expected), "{it} is {ended} and its log is {log:?}");
    Ok(())
}

/// Checks that the API server authenticates a pod by its token, and grants only the rights of its role.
fn rights() -> anyhow::Result<()> {
    let script = "
        own=/var/run/secrets/kubernetes.io/serviceaccount
        call() { curl -s -o /tmp/said -w '%{http_code} ' --cacert $own/ca.crt \"$@\"; }
        api=https://$KUBERNETES_SERVICE_HOST/api/v1/namespaces/check
        call $api/configmaps
        call -H \"Authorization: Bearer $(cat $own/token)\" $api/configmaps
        call -H \"Authorization: Bearer $(cat $own/token)\" $api/secrets
        cat /tmp/said";
    job("rights", DEBIAN, script, "401 200 403 ")
}

/// Checks that the address of a service leads to its pod, from a pod and from the machine.
fn service() -> anyhow::Result<()> {
    output_of(&["--namespace=check", "wait", "--for=condition=Ready", "pod/web", "--timeout=60s"])?;
    let address = output_of(&["--namespace=check", "get", "service", "web", "--output=jsonpath={.spec.clusterIP}"])?;
    let served = |text: &str| text.contains("served by web");
    // kube-proxy learns about the pod after this program does.
    until("the service", 30, || fetched(&address).is_ok_and(|text| served(&text)), || Ok(()))?;
    job("client", BUSYBOX, &format!("wget -q -O - http://{address}/"), "served by web")
}

fn fetched(address: &str) -> anyhow::Result<String> {
    let to = SocketAddr::new(address.parse()?, 80);
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
    write!(stream, "GET / HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Checks that a pod reaches a server of the machine, with its own address as source.
fn machine(netns: &ClusterNetns) -> anyhow::Result<()> {
    let listener = TcpListener::bind((netns.network.host(), 0))?;
    let port = listener.local_addr()?.port();
    let server = std::thread::spawn(move || -> anyhow::Result<String> {
        let (mut stream, from) = listener.accept()?;
        let _ = stream.read(&mut [0; 1024])?;
        write!(stream, "HTTP/1.0 200 OK\r\n\r\nthis is the machine")?;
        Ok(from.ip().to_string())
    });
    let url = format!("http://{}:{port}/", netns.network.host());
    job("outward", BUSYBOX, &format!("hostname -i; wget -q -O - {url}"), "this is the machine")?;
    let Ok(from) = server.join() else { bail!("the server of this check failed") };
    let log = output_of(&["--namespace=check", "logs", "job/outward"])?;
    let from = from?;
    ensure!(log.starts_with(&from), "a pod came from {from} and has {log:?}");
    Ok(())
}

fn admission() -> anyhow::Result<()> {
    let run = ["--namespace=refusing", "run", "bad", "--image", BUSYBOX, "--privileged", "--restart=Never"];
    match output_of(&run) {
        Ok(output) => bail!("the pod was accepted: {output}"),
        Err(error) if format!("{error:#}").contains("violates PodSecurity \"restricted:latest\": privileged") => Ok(()),
        Err(error) => Err(error),
    }
}

/// Checks an image that holds one program.
fn image(netns: &ClusterNetns) -> anyhow::Result<()> {
    let name = "ebb.test/check:1";
    let root = folder::state().join("check");
    folder::remove(&root)?;
    std::fs::create_dir_all(root.join("bin"))?;
    std::fs::copy("/bin/busybox", root.join("bin/sh"))?;
    super::images::import(netns, name, &root, &["/bin/sh".to_owned()])?;
    folder::remove(&root)?;
    job("image", name, "echo nothing else: /bin/*", "nothing else: /bin/sh")
}

/// Waits until the only container of a pod has one of the reasons.
fn reason(pod: &str, reasons: &[&str]) -> anyhow::Result<()> {
    let state = "jsonpath={.status.containerStatuses[0].state.*.reason}";
    let mut actual = String::new();
    let found = || {
        actual = output_of(&["--namespace=check", "get", "pod", pod, "--output", state]).unwrap_or_default();
        reasons.contains(&actual.as_str())
    };
    until(&format!("{pod} to be {}", reasons.join(" or ")), 20, found, || Ok(()))
        .with_context(|| format!("its reason is {actual:?}"))
}

/// Kills and starts each server. Checks that the cluster works again and that the running pod was not restarted.
fn killed(netns: &ClusterNetns) -> anyhow::Result<()> {
    let web = || {
        let container = "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].ready}";
        output_of(&["--namespace=check", "get", "pod", "web", "--output", container])
    };
    let pod = web()?;
    for server in ClusterServer::FIRST.into_iter().chain(ClusterServer::SECOND) {
        let before = server.running(netns);
        server.kill(netns, "KILL")?;
        server.start(netns)?;
        let after = server.running(netns);
        ensure!(after.is_some() && before != after, "{} was {before:?} and is {after:?}", server.name());
    }
    until("the API server", 60, serves, || Ok(()))?;
    up::start(netns)?;
    until("the node", 60, ready, || Ok(()))?;
    let pod_after = web()?;
    ensure!(pod == pod_after && pod.ends_with(" true"), "the pod was {pod} and is {pod_after}");
    Ok(())
}
