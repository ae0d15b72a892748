//! Items and objects as files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_flow::ports::Clock as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::WRITE;
use crate::world::{TABLE, World};

/// Begins what is no text.
const SEALED: &str = "base64:";

pub(crate) type Item = Map<String, Value>;

/// What a version has left.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// Items, as DynamoDB's JSON.
    pub(crate) table: Vec<Item>,
    /// Objects by key: text, or [`SEALED`] and base64.
    pub(crate) bucket: BTreeMap<String, String>,
    pub(crate) outside: Outside,
}

/// What others know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outside {
    /// When all this was, in milliseconds since 1970.
    pub(crate) at: u64,
    /// Tokens of callbacks, by target and unit.
    pub(crate) tokens: BTreeMap<String, String>,
}

fn pretty<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

impl Stored {
    /// # Panics
    /// There is no such folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let text = |name: &str| {
            let file = folder.join(name);
            std::fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("{}: {error}; this writes it: {WRITE}", file.display()))
        };
        Self {
            table: serde_json::from_str(&text("table.json")).unwrap(),
            bucket: serde_json::from_str(&text("bucket.json")).unwrap(),
            outside: serde_json::from_str(&text("outside.json")).unwrap(),
        }
    }

    /// Writes a new folder: that of a release that is out stays as it is. It gets its name once it is whole, because other
    /// tests read what is there.
    ///
    /// # Panics
    /// The folder is there.
    pub(crate) fn write(&self, folder: &Path) {
        assert!(!folder.exists(), "{} is there: delete it if that release is not out", folder.display());
        let all = folder.parent().unwrap();
        std::fs::create_dir_all(all).unwrap();
        let readable = Permissions::from_mode(0o755);
        let mut begun = tempfile::Builder::new();
        let begun = begun.prefix(".stored").permissions(readable).tempdir_in(all.parent().unwrap()).unwrap();
        for (name, text) in [
            ("table.json", pretty(&self.table)),
            ("bucket.json", pretty(&self.bucket)),
            ("outside.json", pretty(&self.outside)),
        ] {
            std::fs::write(begun.path().join(name), text).unwrap();
        }
        std::fs::rename(begun.keep(), folder).unwrap();
    }

    /// What a world holds.
    pub(crate) async fn of(world: &World) -> Self {
        let found = world.store.dynamo.client().scan().table_name(TABLE).send().await.unwrap();
        let mut table: Vec<Item> = found.items().iter().map(written).collect();
        table.sort_by_key(|item| (item["pk"].to_string(), item["sk"].to_string()));
        let mut bucket = BTreeMap::new();
        for key in world.store.bucket.list("").await.unwrap() {
            let bytes = world.store.bucket.get_object(&key).await.unwrap().unwrap();
            let text = String::from_utf8(bytes);
            let text = text.unwrap_or_else(|bytes| SEALED.to_owned() + &STANDARD.encode(bytes.as_bytes()));
            bucket.insert(key, text);
        }
        Self { table, bucket, outside: Outside { at: world.clock.now().0, tokens: world.outside.tokens() } }
    }

    /// Puts all of it into an empty world.
    pub(crate) async fn put(&self, world: &World) {
        for item in &self.table {
            let item = item.iter().map(|(name, value)| (name.clone(), read(value))).collect();
            let put = world.store.dynamo.client().put_item().table_name(TABLE).set_item(Some(item));
            put.send().await.unwrap();
        }
        for (key, text) in &self.bucket {
            let bytes = text.strip_prefix(SEALED).map(|text| STANDARD.decode(text).unwrap());
            let bytes = bytes.unwrap_or_else(|| text.clone().into_bytes());
            world.store.bucket.put_object(key, bytes).await.unwrap();
        }
    }
}

fn written(item: &HashMap<String, AttributeValue>) -> Item {
    let sorted: BTreeMap<_, _> = item.iter().collect();
    sorted.into_iter().map(|(name, value)| (name.clone(), value_written(value))).collect()
}

fn value_written(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::B(bytes) => json!({"B": STANDARD.encode(bytes)}),
        AttributeValue::Bool(flag) => json!({"BOOL": flag}),
        AttributeValue::Ss(texts) => json!({"SS": texts.iter().collect::<BTreeSet<_>>()}),
        AttributeValue::Ns(numbers) => json!({"NS": numbers.iter().collect::<BTreeSet<_>>()}),
        AttributeValue::L(values) => json!({"L": values.iter().map(value_written).collect::<Vec<_>>()}),
        other => panic!("{other:?} is stored, and not known here"),
    }
}

fn read(value: &Value) -> AttributeValue {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    let text = || value.as_str().unwrap().to_owned();
    let texts = || value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    match kind.as_str() {
        "S" => AttributeValue::S(text()),
        "N" => AttributeValue::N(text()),
        "B" => AttributeValue::B(Blob::new(STANDARD.decode(text()).unwrap())),
        "BOOL" => AttributeValue::Bool(value.as_bool().unwrap()),
        "SS" => AttributeValue::Ss(texts()),
        "NS" => AttributeValue::Ns(texts()),
        "L" => AttributeValue::L(value.as_array().unwrap().iter().map(read).collect()),
        other => panic!("{other} is no type of an attribute"),
    }
}
