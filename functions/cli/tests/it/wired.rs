//! The example `wired`: a resource uses another one and is deleted before it.

use std::fs;
use std::time::Duration;

use ebb_protocol::{OutputValue, TargetDetail};
use tempfile::TempDir;

use crate::kill::{KillTarget, KillWorld, kill_each, seed};
use crate::workdir::{Workdir, example, shared_folder};

const SETTINGS: &str = "greeter-pr-3-files/greeter-pr-3/settings.toml";

/// The example on the embedded table.
struct WiredWorld {
    workdir: Workdir,
    root: TempDir,
    document: String,
}

impl KillWorld for WiredWorld {
    const MAX_PAUSE: Duration = Duration::from_millis(200);

    fn workdir(&self) -> &Workdir {
        &self.workdir
    }

    fn begin(&self) -> (String, String, Option<String>) {
        ("greeter-pr-3".to_owned(), self.document.clone(), None)
    }

    fn assert_created(&self, target: &TargetDetail) {
        let OutputValue::Value(settings) = &target.resources["users"].outputs["settings"] else { panic!("{target:?}") };
        let settings = settings.as_str().unwrap();
        assert_eq!(settings, self.root.path().join(SETTINGS).to_str().unwrap());
        assert_eq!(fs::read_to_string(settings).unwrap(), "greeting = \"good evening\"\n");
        assert_eq!(fs::read_dir(self.root.path()).unwrap().count(), 1);
    }

    async fn assert_nothing_remains(&self, _: &TargetDetail, _: &[KillTarget]) {
        assert_eq!(fs::read_dir(self.root.path()).unwrap().count(), 0);
        self.workdir.no_script_runs().await;
    }
}

#[tokio::test]
async fn resources_on_the_embedded_table_outlive_kills() {
    let (workdir, root) = (Workdir::new(), shared_folder());
    let dev = workdir.dev().await;
    for plugin in ["wired/store.yaml", "wired/tenant.yaml"] {
        workdir.ebb(&["apply", "-f", &example(plugin)]).await.done();
    }
    let document = fs::read_to_string(example("wired/sandbox.yaml")).unwrap();
    let document = document.replace("@{root}", root.path().to_str().unwrap());
    let world = WiredWorld { workdir, root, document };
    kill_each("wired", &world, dev, vec![KillTarget::EbbDev; 6], 1, seed()).await;
}
