//! Amazon's DynamoDB Local, fetched from Maven Central.

use crate::run::{command, retry, root};
use crate::tools::{installed, packages};

/// The plugin is pinned, because the default of an old Maven cannot copy native libraries.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Fetches DynamoDB Local (51 MB) unless it is present, into the folder that the tests use. Installs Java and Maven if
/// they are missing.
pub(crate) fn fetch() -> anyhow::Result<()> {
    packages(&["default-jre-headless"])?;
    let (project, folder) = (root().join("infra/dev/dynamodb-local.xml"), root().join("target/dynamodb-local"));
    // Java would load libraries of an earlier version as well.
    installed(&project, &folder, || {
        packages(&["maven"])?;
        let mut maven = command("mvn");
        maven.args(["--batch-mode", "--quiet", "--file"]).arg(&project).arg(COPY).arg("-DincludeScope=runtime");
        retry(maven.arg(format!("-DoutputDirectory={}", folder.join("lib").display())))
    })
}
