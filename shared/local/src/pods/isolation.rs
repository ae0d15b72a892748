//! The isolation of a script that is a process of this machine.
//!
//! * The script has its own root in its own mount namespace. The contents of the machine's root are mounted there, so
//!   programs, `/proc`, `/dev` and the network are those of the machine.
//! * `/tmp` and the working folder, which is also `HOME`, are empty and private.
//! * Every file that is declared as input or output is private. Its folder is created if the machine does not have it.
//!   If the machine has it, existing files in the folder are those of the machine, and new ones are private.
//! * The state of the relay is hidden.
//!
//! Root can always isolate a script. Other users need user namespaces, which some distributions disable
//! (`kernel.apparmor_restrict_unprivileged_userns`, `user.max_user_namespaces`). Without user namespaces, scripts
//! without declared files still run, with `TMPDIR` and `HOME` in private folders. Other scripts cannot be started.
//!
//! The isolation separates units from each other. It does not protect the machine from a malicious script.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use ebb_script::check_path;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid, pivot_root};
use serde::{Deserialize, Serialize};

use crate::files;

/// The folder of the script, in its root.
pub(super) const OWN: &str = "/ebb-unit";
const TMP: &str = "/tmp";
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];
/// An argument of a mount that has no effect on it.
const NONE: Option<&str> = None;

/// A private root and the files that are not mounted in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RootLayout {
    root: PathBuf,
    state: PathBuf,
    /// Folders of declared files, not below `/tmp`, free of symbolic links.
    folders: BTreeSet<PathBuf>,
    /// Declared files, in the same form.
    files: BTreeSet<PathBuf>,
}

#[derive(Debug)]
pub(super) enum IsolationError {
    /// This machine cannot isolate scripts.
    Unavailable(String),
    /// This layout cannot be mounted.
    Failed(String),
}

impl RootLayout {
    /// Creates the private folders below `root`. `state` is hidden from the script.
    pub(super) fn create(root: &Path, state: &Path) -> io::Result<Self> {
        let folder = |path: PathBuf, mode: u32| -> io::Result<()> {
            fs::DirBuilder::new().recursive(true).create(&path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        };
        folder(root.to_owned(), 0o755)?;
        folder(below(root, Path::new(TMP)), 0o1777)?;
        folder(below(root, Path::new(OWN)), 0o755)?;
        folder(below(root, &Path::new(OWN).join("home")), 0o755)?;
        let state = fs::canonicalize(state)?;
        Ok(Self { root: root.to_owned(), state, folders: BTreeSet::new(), files: BTreeSet::new() })
    }

    /// Declares a file by its path in the private root, and creates its folder.
    ///
    /// # Errors
    /// Returns the reason if the path cannot be used.
    pub(super) fn declare(&mut self, path: &str) -> Result<(), String> {
        check_path(path)?;
        // Without `//` and `.`.
        let path: PathBuf = Path::new(path).components().collect();
        if path.components().any(|part| part == Component::ParentDir) {
            return Err("the path has `..`".to_owned());
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err("it is a folder".to_owned());
        };
        let folder = resolve(folder)?;
        let file = folder.join(name);
        if let Some(kernel) = KERNEL.into_iter().find(|kernel| file.starts_with(kernel)) {
            return Err(format!("{kernel} belongs to the kernel"));
        }
        if file.starts_with(OWN) || file == Path::new(TMP) {
            return Err(format!("{} is taken", file.display()));
        }
        if !folder.starts_with(TMP) {
            if fs::symlink_metadata(&file).is_ok_and(|found| found.is_dir()) {
                return Err("this machine has a folder there".to_owned());
            }
            self.files.insert(file.clone());
            self.folders.insert(folder.clone());
        }
        let backing = below(&self.root, &folder);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(backing).map_err(|error| error.to_string())
    }

    /// Moves this process into the private root. The process must not have other threads.
    pub(super) fn enter(&self) -> Result<(), IsolationError> {
        let unavailable =
            |what: &'static str| move |error: nix::Error| IsolationError::Unavailable(format!("{what}: {error}"));
        let (uid, gid) = (getuid(), getgid());
        if uid.is_root() {
            unshare(CloneFlags::CLONE_NEWNS).map_err(unavailable("no mount namespace"))?;
        } else {
            unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUSER).map_err(unavailable("no user namespace"))?;
            let map = |file: &str, text: String| {
                fs::write(format!("/proc/self/{file}"), text)
                    .map_err(|error| IsolationError::Unavailable(format!("/proc/self/{file}: {error}")))
            };
            map("setgroups", "deny".to_owned())?;
            map("uid_map", format!("{uid} {uid} 1"))?;
            map("gid_map", format!("{gid} {gid} 1"))?;
        }
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
            .map_err(unavailable("no private mounts"))?;
        mount(Some(&self.root), &self.root, NONE, MsFlags::MS_BIND, NONE).map_err(unavailable("no bind mounts"))?;
        // Without this, the mount of the parent folder would repeat all of these mounts.
        mount(NONE, &self.root, NONE, MsFlags::MS_UNBINDABLE, NONE).map_err(unavailable("no unbindable mounts"))?;
        self.mount_folder(Path::new("/")).map_err(|error| IsolationError::Failed(format!("private root: {error}")))?;
        self.hide_state().map_err(|error| IsolationError::Failed(format!("hiding the state: {error}")))?;
        let turn = || -> nix::Result<()> {
            nix::unistd::chdir(&self.root)?;
            // Both roots are in one place. The old root covers the new one until it is unmounted.
            pivot_root(".", ".")?;
            umount2(".", MntFlags::MNT_DETACH)?;
            nix::unistd::chdir("/")
        };
        turn().map_err(unavailable("no change of root"))
    }

    /// Mounts the contents of the machine's `folder` in the same place below the private root.
    fn mount_folder(&self, folder: &Path) -> io::Result<()> {
        let within =
            |error: io::Error, path: &Path| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        for entry in fs::read_dir(folder).map_err(|error| within(error, folder))? {
            let entry = entry.map_err(|error| within(error, folder))?;
            let path = entry.path();
            if path == Path::new(TMP) || path == Path::new(OWN) || self.files.contains(&path) {
                continue;
            }
            // The entry may have been removed in the meantime.
            files::existing(self.mount_entry(&path)).map_err(|error| within(error, &path))?;
        }
        Ok(())
    }

    fn mount_entry(&self, path: &Path) -> io::Result<()> {
        let target = below(&self.root, path);
        let found = fs::symlink_metadata(path)?;
        if found.is_symlink() {
            return std::os::unix::fs::symlink(fs::read_link(path)?, target);
        }
        if found.is_dir() {
            if !target.exists() {
                fs::create_dir(&target)?;
            }
            if self.folders.iter().any(|folder| folder.starts_with(path)) {
                fs::set_permissions(&target, found.permissions())?;
                return self.mount_folder(path);
            }
        } else {
            fs::File::create(&target)?;
        }
        mount(Some(path), &target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).map_err(io::Error::from)
    }

    fn hide_state(&self) -> io::Result<()> {
        let target = below(&self.root, &self.state);
        if self.state.starts_with(TMP) || !target.is_dir() {
            return Ok(());
        }
        mount(Some("tmpfs"), &target, Some("tmpfs"), MsFlags::MS_RDONLY, NONE).map_err(io::Error::from)
    }
}

pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns `folder`, which may be missing, with the machine's symbolic links resolved.
fn resolve(folder: &Path) -> Result<PathBuf, String> {
    // The `/tmp` of the machine differs from that of the script.
    if folder.starts_with(TMP) {
        return Ok(folder.to_owned());
    }
    let mut known = folder;
    let mut rest = Vec::new();
    loop {
        match fs::canonicalize(known) {
            Ok(found) if !found.is_dir() => return Err(format!("{} is not a folder", known.display())),
            Ok(found) => return Ok(rest.iter().rev().fold(found, |path, name| path.join(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(known).is_ok() {
                    return Err(format!("{} is a symbolic link to nowhere", known.display()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            Err(error) => return Err(format!("{}: {error}", known.display())),
        }
        let (Some(above), Some(name)) = (known.parent(), known.file_name()) else {
            return Err(format!("{} cannot be resolved", folder.display()));
        };
        rest.push(name);
        known = above;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_files_are_created() {
        let state = tempfile::tempdir().unwrap();
        let root = state.path().join("root");
        let mut layout = RootLayout::create(&root, state.path()).unwrap();
        let rows: Vec<(String, Result<String, String>)> =
            serde_json::from_str(include_str!("../../tests/declared_files.json")).unwrap();
        for (path, expected) in rows {
            let found = layout.declare(&path);
            assert_eq!(found, expected.clone().map(drop), "{path:?}");
            assert!(expected.map_or(true, |file| root.join(file).parent().unwrap().is_dir()), "{path:?}");
        }
    }
}
