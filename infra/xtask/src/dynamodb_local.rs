//! Amazon's DynamoDB Local, fetched from Maven Central.

use std::fs;

use anyhow::Context as _;

use crate::packages;
use crate::run::{command, retry, root};

/// The version that the tests expect.
const VERSION: &str = "2.6.1";
/// The pinned plugin: the default of an old Maven cannot copy native libraries.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Returns the folder in which the tests look for it.
fn folder() -> std::path::PathBuf {
    root().join("target/dynamodb-local")
}

/// Returns true if the expected version is complete.
fn present() -> bool {
    fs::read_to_string(folder().join("complete")).is_ok_and(|version| version == VERSION)
}

/// Fetches DynamoDB Local (51 MB) unless it is present. Installs Java and Maven if they are missing.
pub(crate) fn fetch() -> anyhow::Result<()> {
    packages::install(&["default-jre-headless"])?;
    if present() {
        return Ok(());
    }
    packages::install(&["maven"])?;
    eprintln!("fetching DynamoDB Local {VERSION}");
    let folder = folder();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    // Java would load libraries of an earlier version or of an interrupted fetch as well.
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    write("pom.xml", &project())?;
    retry(|| {
        let mut maven = command("mvn");
        maven.args(["--batch-mode", "--quiet", "--file"]).arg(folder.join("pom.xml")).arg(COPY);
        maven.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", folder.join("lib").display()));
        maven
    })?;
    write("complete", VERSION)
}

/// Returns a Maven project with DynamoDB Local as its only dependency.
fn project() -> String {
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.ebb</groupId>
  <artifactId>dynamodb-local</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.amazonaws</groupId>
      <artifactId>DynamoDBLocal</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"
    )
}
