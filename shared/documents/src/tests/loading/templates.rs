//! Tests directives (`@{…}`), variables (`--set`) and embedded files.

use super::super::compiling::fixtures::OneFile;
use crate::load::{self, DocumentVars, FileError, FileSource, FolderFiles};
use crate::tests::rows;

fn description(written: &str, files: &dyn FileSource, vars: &DocumentVars) -> String {
    let text = format!(
        "name: a\nspec:\n  runner: {{image: b}}\n  description: {written}\n  create: [{{name: c, script: '#!/bin/sh'}}]\n"
    );
    match load::plugins("f.yaml", &text, files, vars) {
        Ok(plugins) => plugins[0].description.clone().unwrap_or_default(),
        Err(wrong) => wrong.iter().next().unwrap().plain(),
    }
}

#[test]
fn values_are_not_expanded_again() {
    let vars = DocumentVars::parse(["a=1", "b=@{a}", "sum=1+1=2", "empty="]).unwrap();
    let file = OneFile(b"file with @{a}\n");
    for (written, expected) in rows::<(String, String)>("values_are_not_expanded_again") {
        assert_eq!(description(&written, &file, &vars), expected, "{written}");
    }
}

#[test]
fn keys_are_not_expanded() {
    let text = "name: s\nspec:\n  cluster: c\n  labels: {\"@{x}\": v}\n";
    assert_eq!(load::sandbox("f", text, &load::NoFiles, &DocumentVars::none()).unwrap().labels["@{x}"], "v");
}

#[test]
fn files_outside_of_the_folder_are_rejected() {
    let root = std::env::temp_dir().join(format!("ebb-documents-folder-{}", std::process::id()));
    let inner = root.join("inner");
    std::fs::create_dir_all(inner.join("sub")).unwrap();
    std::fs::write(root.join("secret"), "secret").unwrap();
    std::fs::write(inner.join("sub/file"), "file").unwrap();
    std::fs::write(inner.join("large"), vec![b'x'; (4 << 20) + 1]).unwrap();
    std::os::unix::fs::symlink(root.join("secret"), inner.join("out")).unwrap();
    std::os::unix::fs::symlink("sub/file", inner.join("in")).unwrap();
    let folder = FolderFiles::new(&inner);
    let read = |path: &str| folder.read(path).map(|bytes| String::from_utf8(bytes).unwrap());
    for good in ["sub/file", "./sub/file", "/sub/file", "sub/../sub/./file", "in"] {
        assert_eq!(read(good).unwrap(), "file", "{good}");
    }
    for outside in ["../secret", "sub/../../secret", "/../secret", "out", "..", "."] {
        assert!(matches!(read(outside), Err(FileError::Outside(_))), "{outside}: {:?}", read(outside));
    }
    assert!(matches!(read("nothing"), Err(FileError::Missing(_))));
    assert!(matches!(read("sub"), Err(FileError::NotAFile(_))));
    assert!(matches!(read("large"), Err(FileError::TooLarge(_))));
    std::fs::remove_dir_all(&root).unwrap();
}
