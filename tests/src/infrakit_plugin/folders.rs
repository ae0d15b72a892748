//! Networks, volumes and instances as folders `DIR/TYPE/ID`, which hold all state:
//!
//! | file | content |
//! |---|---|
//! | `description.json` | the description, as in `DescribeInstances` |
//! | `cidr` | addresses of a network |
//! | `image` | sparse file of a volume |
//! | `init` | boot script of an instance |
//! | `uses/ID` | links to the networks and volumes of an instance |
//!
//! A folder is incomplete while its name begins with a full stop.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The largest volume, in bytes.
const MAX_SIZE: u64 = 1 << 40;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InfraType {
    Instance,
    Network,
    Volume,
}

/// The parameter `Spec` of `Provision`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ProvisionSpec {
    properties: Value,
    tags: Option<BTreeMap<String, String>>,
    init: Option<String>,
    #[serde(rename = "LogicalID")]
    logical_id: Option<String>,
    attachments: Option<Vec<VolumeAttachment>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeAttachment {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Type")]
    type_name: String,
}

impl InfraType {
    pub(super) const ALL: [Self; 3] = [Self::Instance, Self::Network, Self::Volume];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Instance => "instance",
            Self::Network => "network",
            Self::Volume => "volume",
        }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Checks the properties that the plugin reads. Further ones are stored.
    pub(super) fn validate(self, properties: &Value) -> Result<(), String> {
        match self {
            Self::Instance => used(properties).map(drop),
            Self::Network => network(properties).map(drop),
            Self::Volume => match member(properties, "size")? {
                1..=MAX_SIZE => Ok(()),
                size => Err(format!("size: expected 1 to {MAX_SIZE} bytes, got {size}")),
            },
        }
    }
}

fn member<T: DeserializeOwned>(properties: &Value, name: &str) -> Result<T, String> {
    T::deserialize(&properties[name]).map_err(|error| format!("{name}: {error}"))
}

fn network(properties: &Value) -> Result<ipnet::Ipv4Net, String> {
    let cidr: String = member(properties, "cidr")?;
    cidr.parse().map_err(|error| format!("cidr: {error}: {cidr:?}"))
}

/// Returns the network and the volume that an instance uses.
fn used(properties: &Value) -> Result<Vec<(InfraType, String)>, String> {
    let [network, volume]: [Option<String>; 2] = [member(properties, "network")?, member(properties, "volume")?];
    let network = network.map(|id| (InfraType::Network, id));
    Ok(network.into_iter().chain(volume.map(|id| (InfraType::Volume, id))).collect())
}

pub(super) struct InfraFolders(PathBuf);

impl InfraFolders {
    /// Opens a folder with all that is in it, and removes what is incomplete.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let this = Self(dir.canonicalize()?);
        for folder in InfraType::ALL.map(|it| this.folder(it)) {
            fs::create_dir_all(&folder)?;
            for name in names(&folder)?.iter().filter(|name| name.starts_with('.')) {
                fs::remove_dir_all(folder.join(name))?;
            }
        }
        Ok(this)
    }

    fn folder(&self, infra_type: InfraType) -> PathBuf {
        self.0.join(infra_type.name())
    }

    /// Returns the folder of something that exists. An ID cannot lead to another folder.
    fn existing(&self, infra_type: InfraType, id: &str) -> Result<PathBuf, String> {
        let digits = id.strip_prefix(infra_type.name()).and_then(|rest| rest.strip_prefix('-'));
        if !digits.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return Err(format!("{id:?} is not the ID of a {}", infra_type.name()));
        }
        let path = self.folder(infra_type).join(id);
        if path.is_dir() { Ok(path) } else { Err(format!("open {}: no such file or directory", path.display())) }
    }

    /// Creates a thing and returns its ID. A second call creates a second thing.
    pub(super) fn provision(&self, infra_type: InfraType, spec: &ProvisionSpec) -> Result<String, String> {
        infra_type.validate(&spec.properties)?;
        let mut uses = if infra_type == InfraType::Instance { used(&spec.properties)? } else { vec![] };
        for VolumeAttachment { id, type_name } in spec.attachments.iter().flatten() {
            let of = InfraType::parse(type_name).filter(|_| infra_type == InfraType::Instance);
            uses.push((of.ok_or_else(|| format!("cannot attach {id:?} of type {type_name:?}"))?, id.clone()));
        }
        uses.iter().try_for_each(|(of, id)| self.existing(*of, id).map(drop))?;
        let id = format!("{}-{:016x}", infra_type.name(), rand::random::<u64>());
        self.create(infra_type, &id, spec, &uses).map_err(|error| format!("{id}: {error}"))?;
        Ok(id)
    }

    fn create(
        &self,
        infra_type: InfraType,
        id: &str,
        spec: &ProvisionSpec,
        uses: &[(InfraType, String)],
    ) -> io::Result<()> {
        let folder = self.folder(infra_type);
        let (new, path) = (folder.join(format!(".{id}")), folder.join(id));
        fs::create_dir(&new)?;
        let mut properties = spec.properties.clone();
        match infra_type {
            InfraType::Instance => {
                fs::write(new.join("init"), spec.init.as_deref().unwrap_or_default())?;
                fs::create_dir(new.join("uses"))?;
                for (of, used) in uses {
                    symlink(Path::new("../../..").join(of.name()).join(used), new.join("uses").join(used))?;
                }
            }
            InfraType::Network => {
                let network = network(&properties).map_err(io::Error::other)?;
                fs::write(new.join("cidr"), network.to_string())?;
                if properties["gateway"].is_null() {
                    properties["gateway"] = json!(network.hosts().next());
                }
            }
            InfraType::Volume => {
                let size = properties["size"].as_u64().unwrap_or_default();
                File::create(new.join("image"))?.set_len(size)?;
                properties["path"] = json!(path.join("image"));
            }
        }
        let ProvisionSpec { logical_id, tags, .. } = spec;
        write(&new, &json!({"ID": id, "LogicalID": logical_id, "Tags": tags, "Properties": properties}))?;
        fs::rename(new, path)
    }

    /// Returns the descriptions of all that has these tags, in the order of their IDs.
    pub(super) fn describe(
        &self,
        infra_type: InfraType,
        tags: &BTreeMap<String, String>,
        with_properties: bool,
    ) -> Result<Vec<Value>, String> {
        let folder = self.folder(infra_type);
        let mut found = Vec::new();
        for name in names(&folder).map_err(|error| error.to_string())? {
            let mut description = read(&folder.join(name))?;
            if tags.iter().all(|(name, value)| description["Tags"][name] == *value) {
                if !with_properties {
                    description.as_object_mut().map(|members| members.remove("Properties"));
                }
                found.push(description);
            }
        }
        Ok(found)
    }

    /// Deletes a thing. Fails if it does not exist, or if an instance uses it.
    pub(super) fn destroy(&self, infra_type: InfraType, id: &str) -> Result<(), String> {
        let path = self.existing(infra_type, id)?;
        let instances = self.folder(InfraType::Instance);
        for user in names(&instances).map_err(|error| error.to_string())? {
            if instances.join(&user).join("uses").join(id).is_symlink() {
                return Err(format!("{id} is used by {user}"));
            }
        }
        let gone = path.with_file_name(format!(".{id}"));
        let removed = fs::rename(&path, &gone).and_then(|()| fs::remove_dir_all(gone));
        removed.map_err(|error| format!("remove {}: {error}", path.display()))
    }
}

/// Returns the names in a folder, in order.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn read(folder: &Path) -> Result<Value, String> {
    let text = fs::read(folder.join("description.json")).map_err(|error| error.to_string());
    text.and_then(|text| serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", folder.display())))
}

fn write(folder: &Path, description: &impl Serialize) -> io::Result<()> {
    let new = folder.join("description.new");
    fs::write(&new, serde_json::to_vec(description)?)?;
    fs::rename(new, folder.join("description.json"))
}
