//! Scripts as containers of their image, by Podman.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::{fs, io};

use tempfile::TempDir;

use crate::prelude::*;
use crate::workdir::shared_folder;

/// An image with a shell and the small tools.
const IMAGE: &str = "ebb.test/busybox:1";
const TOOLS: [&str; 9] = ["sh", "cat", "head", "mkdir", "nc", "printf", "sleep", "true", "test"];

/// A Podman with a storage of its own.
pub(crate) struct PodmanEngine {
    folder: TempDir,
}

impl PodmanEngine {
    fn new() -> Self {
        let engine = Self { folder: shared_folder() };
        let path = engine.folder.path().display();
        // Nothing of it is shared with another one, and no journal is needed. Its own limits are too high for runc here.
        // Plain folders: a mount would hold this one.
        let conf = format!(
            "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=4096:4096\"]\n\
             [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
             lock_type = \"file\"\ntmp_dir = \"{path}/tmp\"\n"
        );
        let storage =
            format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{path}/root\"\nrunroot = \"{path}/runroot\"\n");
        let [(_, containers_conf), (_, storage_conf)] = engine.variables();
        fs::write(containers_conf, conf).unwrap();
        fs::write(storage_conf, storage).unwrap();
        let root = engine.folder.path().join("image");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
        TOOLS.iter().for_each(|tool| symlink("busybox", root.join("bin").join(tool)).unwrap());
        let archive = engine.folder.path().join("image.tar");
        let tar = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".").status();
        assert!(tar.unwrap().success());
        engine.said(&["import", archive.to_str().unwrap(), IMAGE]);
        engine
    }

    /// The variables that select this Podman.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [("CONTAINERS_CONF", "containers.conf"), ("CONTAINERS_STORAGE_CONF", "storage.conf")]
            .map(|(name, file)| (name, self.folder.path().join(file)))
    }

    fn podman(&self, arguments: &[&str]) -> io::Result<Output> {
        Command::new("podman").args(arguments).envs(self.variables()).output()
    }

    /// What a command of Podman's prints.
    fn said(&self, arguments: &[&str]) -> String {
        let said = self.podman(arguments);
        let said =
            said.expect("podman starts: install it (Debian: podman and runc), as `cargo xtask verify scripts` does");
        assert!(said.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    }

    /// Names and states of all containers.
    fn containers(&self) -> Vec<String> {
        let list = self.said(&["ps", "--all", "--format", "{{.Names}} {{.State}}"]);
        list.lines().map(str::to_owned).collect()
    }
}

impl Drop for PodmanEngine {
    fn drop(&mut self) {
        let _ = self.podman(&["rm", "--all", "--force", "--time", "0"]);
    }
}

const PLUGIN: &str = r##"
apiVersion: ebb.dev/v1
kind: Plugin
name: boxed@1.0.0
params: {port: {type: string}}
runners: {shell: {image: "ebb.test/busybox:1"}}
preStart:
  make:
    pod: {script: "#!/bin/sh -eu\nmkdir -p /data\nprintf %s \"$EBB_KEY\" >/data/name\nprintf 'a secret' >/data/secret"}
    outputs: {name: {file: /data/name}, secret: {file: /data/secret, sensitive: true}}
  wait:
    pod:
      script: |
        #!/bin/sh -eu
        test "$(cat /in/secret)" = 'a secret'
        test ! -e /data
        test ! -e /var
        echo "for $NAME"
        until nc 127.0.0.1 "$PORT" </dev/null 2>/dev/null; do sleep 0.05; done
        printf over >/tmp/said
    inputs:
      name: ${units.make.outputs.name}
      secret: {value: "${units.make.outputs.secret}", path: /in/secret}
      port: ${params.port}
    outputs: {said: {file: /tmp/said}}
postStop:
  drop: {undoes: make, pod: {script: "#!/bin/sh\ntest -n \"$NAME\""}, inputs: {name: "${units.make.outputs.name}"}}
outputs: {name: "${units.make.outputs.name}", said: "${units.wait.outputs.said}"}
---
apiVersion: ebb.dev/v1
kind: Plugin
name: deaf@1.0.0
runners: {shell: {image: "ebb.test/busybox:1"}}
preStart:
  deaf: {pod: {script: "#!/bin/sh\ntrap '' TERM\necho begun\nwhile true; do sleep 1; done"}}
---
apiVersion: ebb.dev/v1
kind: Plugin
name: large@1.0.0
runners: {shell: {image: "ebb.test/busybox:1"}}
preStart:
  large:
    pod: {script: "#!/bin/sh\nhead -c 1048577 /dev/zero >/large"}
    outputs: {large: {file: /large}}
outputs: {large: "${units.large.outputs.large}"}
"##;

fn sandbox(place: &Workdir, name: &str, params: &str) -> String {
    let text = format!(
        "apiVersion: ebb.dev/v1\nkind: Sandbox\nname: {name}\nresources: {{r: {{plugin: {name}, params: {params}}}}}\n"
    );
    place.write(&format!("{name}.yaml"), &text)
}

#[tokio::test]
async fn scripts_run_in_their_images() {
    let engine = PodmanEngine::new();
    let place = elsewhere::with_containers(&engine);
    let dev = place.dev().await;
    place.apply("plugin", PLUGIN).await;

    let deaf = sandbox(&place, "deaf", "{}");
    place.ebb(&["sandbox", "apply", "-f", &deaf, "--wait=false"]).await.done();
    let mut said = place.start(&["logs", "deaf", "--unit", "deaf", "--follow"]);
    said.says("begun").await;
    // Its grace is over before the rest of this is.
    place.ebb(&["sandbox", "delete", "deaf", "--wait=false"]).await.done();

    let large = sandbox(&place, "large", "{}");
    let failed = place.ebb(&["sandbox", "apply", "-f", &large]).await;
    assert!(failed.code == Some(1) && failed.stderr.contains("has 1048577 bytes"), "{failed:#?}");

    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let boxed = sandbox(&place, "boxed", &format!("{{port: \"{port}\"}}"));
    place.ebb(&["sandbox", "apply", "-f", &boxed, "--wait=false"]).await.done();
    let begun = until("the second container", async || {
        let log = place.ebb(&["logs", "boxed", "--unit", "wait"]).await.stdout;
        log.strip_prefix("for ").map(|key| key.trim().to_owned())
    })
    .await;
    dev.kill().await;
    let running = engine.containers();
    assert!(running.iter().any(|it| it.contains("-1-1 Up ")), "{running:?}");
    let dev = place.dev_again().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let target = place.reaches("boxed", TargetState::Ready).await;
    let outputs = serde_json::json!(target.resources["r"].outputs);
    assert_eq!((&outputs["name"]["value"], &outputs["said"]["value"]), (&begun.into(), &"over".into()));
    assert!(target.runs[0].units.iter().all(|unit| unit.attempt == 1), "{target:#?}");
    place.ebb(&["sandbox", "delete", "boxed"]).await.done();
    let gone = place.reaches("deaf", TargetState::Gone).await;
    assert_eq!(gone.runs[0].units[0].state, UnitState::Cancelled);
    assert_eq!(said.end().await.done().stdout, "begun\n");
    until("the end of all containers", async || engine.containers().is_empty().then_some(())).await;
    dev.stop().await;
}

/// A registry that takes connections and never answers, and two units with an image of it: one is cancelled, the time of
/// the other is over.
#[tokio::test]
async fn images_that_never_arrive() {
    let engine = PodmanEngine::new();
    let place = elsewhere::with_containers(&engine);
    let dev = place.dev().await;
    let registry = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = registry.local_addr().unwrap().port();
    for (name, timeout) in [("cancelled", "10m"), ("late", "3s")] {
        let plugin = format!(
            "apiVersion: ebb.dev/v1\nkind: Plugin\nname: {name}@1.0.0\n\
             runners: {{shell: {{image: \"127.0.0.1:{port}/never:1\"}}}}\n\
             preStart: {{it: {{timeout: {timeout}, retry: {{attempts: 1}}, pod: {{script: \"#!/bin/sh\\ntrue\"}}}}}}\n"
        );
        place.apply("plugin", &plugin).await;
    }
    let cancelled = sandbox(&place, "cancelled", "{}");
    place.ebb(&["sandbox", "apply", "-f", &cancelled, "--wait=false"]).await.done();
    let asked = tokio::time::timeout(WAIT_TIMEOUT, registry.accept()).await;
    let _connection = asked.expect("the image is pulled").unwrap();
    place.ebb(&["sandbox", "delete", "cancelled"]).await.done();
    let gone = place.get("cancelled").await;
    assert_eq!(gone.runs[0].units[0].state, UnitState::Cancelled, "{gone:#?}");

    let late = sandbox(&place, "late", "{}");
    let failed = place.ebb(&["sandbox", "apply", "-f", &late]).await;
    let said = "the container did not start within the 3000 ms of the unit";
    assert!(failed.code == Some(1) && failed.stderr.contains(said), "{failed:#?}");
    assert!(engine.containers().is_empty());
    dev.stop().await;
}
