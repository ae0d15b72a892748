//! Lists files that programs have stored, and searches for texts in them.

use std::fs;
use std::path::{Path, PathBuf};

pub fn contains(bytes: &[u8], words: &[u8]) -> bool {
    bytes.windows(words.len()).any(|window| window == words)
}

pub fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder can be read").map(|entry| entry.expect("it can be read"));
    entries.map(|entry| entry.file_name().into_string().expect("the name is UTF-8")).collect()
}

pub fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = open.pop() {
        // A file may be deleted between the list and the read.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind) if kind.is_file() => found.push(entry.path()),
                _ => {}
            }
        }
    }
    found
}
