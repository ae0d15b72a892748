//! A script before it starts: its first line, its files, its environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use ebb_protocol::relay::{ScriptInput, ScriptTask};
use ebb_protocol::script::check_variable;
use ebb_protocol::value::UnitValue;
use ebb_script::interpreter;

use super::isolation::{OWN, RootLayout, below};
use super::secrets;
use super::stage::{self, LaunchError, LaunchRequest};
use super::task_folder::{SupervisorConfig, TaskFolder};

/// A script whose files are in place.
#[derive(Debug)]
pub(super) struct PreparedScript {
    layout: RootLayout,
    root: PathBuf,
    declared: Vec<String>,
    env: BTreeMap<String, Vec<u8>>,
    interpreter: String,
    argument: Option<String>,
    /// Where the output files will be for us, in the order of the request.
    pub(super) outputs: Vec<PathBuf>,
}

impl PreparedScript {
    /// How it starts with a root of its own.
    pub(super) fn isolated(&self) -> LaunchRequest {
        self.launch(Some(self.layout.clone()), Path::new("/"))
    }

    /// How it starts in the machine's root, where isolation is not to be had because of `why`.
    pub(super) fn unisolated(&mut self, why: &str) -> Result<LaunchRequest, LaunchError> {
        if let Some(path) = self.declared.first() {
            return Err(LaunchError::NotStartable(format!(
                "{path}: this machine does not let us give units private files ({why}); allow user namespaces \
                 (kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces), or run as root"
            )));
        }
        let tmp = below(&self.root, Path::new("/tmp"));
        self.env.entry("TMPDIR".to_owned()).or_insert_with(|| tmp.to_string_lossy().into_owned().into_bytes());
        Ok(self.launch(None, &self.root))
    }

    fn launch(&self, layout: Option<RootLayout>, root: &Path) -> LaunchRequest {
        let own = below(root, Path::new(OWN));
        let home = own.join("home");
        let mut env = self.env.clone();
        env.entry("HOME".to_owned()).or_insert_with(|| home.to_string_lossy().into_owned().into_bytes());
        LaunchRequest {
            layout,
            interpreter: self.interpreter.clone(),
            argument: self.argument.clone(),
            script: own.join("script"),
            folder: home,
            supervisor: nix::unistd::getpid().as_raw(),
            env: env.into_iter().collect(),
        }
    }
}

/// Checks a script and puts its files where it will look for them.
pub(super) fn prepare(
    work: &TaskFolder,
    script: &ScriptTask,
    around: &SupervisorConfig,
) -> Result<PreparedScript, LaunchError> {
    let broken = |error: std::io::Error| LaunchError::Internal(format!("{}: {error}", work.folder.display()));
    let root = work.root();
    let layout = RootLayout::create(&root, &around.state).map_err(broken)?;
    let mut prepared = PreparedScript {
        layout,
        root,
        declared: Vec::new(),
        env: BTreeMap::new(),
        interpreter: String::new(),
        argument: None,
        outputs: Vec::new(),
    };
    prepared.set("PATH", around.path.clone().into_bytes())?;
    prepared.set("LANG", b"C.UTF-8".to_vec())?;
    for (name, value) in around.extra_env.iter().chain(&script.env) {
        prepared.set(name, value.clone().into_bytes())?;
    }
    for input in &script.inputs {
        prepared.input(input, &around.state)?;
    }
    for output in &script.outputs {
        let place = prepared
            .layout
            .declare(&output.path)
            .map_err(|why| LaunchError::NotStartable(format!("output {:?}: {:?}: {why}", output.name, output.path)))?;
        prepared.declared.push(output.path.clone());
        prepared.outputs.push(place);
    }
    let (mark, value) = work.mark();
    prepared.env.insert(mark.to_owned(), value.into_bytes());
    let path = prepared.env.get("PATH").cloned().map(OsString::from_vec).unwrap_or_default();
    // A script's own `/tmp` is empty when it starts.
    let found = interpreter::find(&script.text, &path, stage::PLACE, |file| !file.starts_with("/tmp"));
    let found = found.map_err(|error| LaunchError::NotStartable(error.to_string()))?;
    prepared.interpreter = found.path.to_owned();
    prepared.argument = found.argument.map(str::to_owned);
    let file = below(&prepared.root, &Path::new(OWN).join("script"));
    write(&file, script.text.as_bytes(), 0o700).map_err(broken)?;
    Ok(prepared)
}

impl PreparedScript {
    fn set(&mut self, name: &str, value: Vec<u8>) -> Result<(), LaunchError> {
        check_variable(name, &value).map_err(|why| LaunchError::NotStartable(format!("{name:?}: {why}")))?;
        self.env.insert(name.to_owned(), value);
        Ok(())
    }

    fn input(&mut self, input: &ScriptInput, state: &Path) -> Result<(), LaunchError> {
        let named = |why: String| LaunchError::NotStartable(format!("input {:?}: {why}", input.name));
        if let Some(path) = &input.path {
            // Even without a value: a file that the machine happens to have there is not the input.
            let place = self.layout.declare(path).map_err(|why| named(format!("{path:?}: {why}")))?;
            self.declared.push(path.clone());
            if let Some(value) = value(input, state).map_err(named)? {
                write(&place, &value, 0o644).map_err(|error| named(format!("{path:?}: {error}")))?;
            }
        }
        if let Some(name) = &input.env
            && let Some(value) = value(input, state).map_err(named)?
        {
            self.set(name, value).map_err(|error| named(error.to_string()))?;
        }
        Ok(())
    }
}

/// The value of an input; that of a secret is looked up.
pub(super) fn value(input: &ScriptInput, state: &Path) -> Result<Option<Vec<u8>>, String> {
    let secret = match &input.value {
        None => return Ok(None),
        Some(UnitValue::Secret(secret)) => secret,
        Some(value) => return Ok(value.to_bytes()),
    };
    match secrets::get(state, &secret.name, &secret.key) {
        Ok(Some(value)) => Ok(Some(value)),
        Ok(None) => Err(format!("this machine has no key {:?} of secret {:?}", secret.key, secret.name)),
        Err(error) => Err(error.to_string()),
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(fs::Permissions::from_mode(mode))
}
