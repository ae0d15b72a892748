//! Items and objects as files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ebb_flow::ports::Clock as _;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::world::{BUCKET, TABLE, World};

/// Begins what is no text.
const SEALED: &str = "base64:";

type Item = Map<String, Value>;

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
    pub(crate) fn read(folder: &Path) -> Self {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        Self {
            table: serde_json::from_str(&text("table.json")).unwrap(),
            bucket: serde_json::from_str(&text("bucket.json")).unwrap(),
            outside: serde_json::from_str(&text("outside.json")).unwrap(),
        }
    }

    /// Writes a new folder: that of a release that is out stays as it is.
    pub(crate) fn write(&self, folder: &Path) {
        assert!(!folder.exists(), "{} is there: delete it if that release is not out", folder.display());
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in [
            ("table.json", pretty(&self.table)),
            ("bucket.json", pretty(&self.bucket)),
            ("outside.json", pretty(&self.outside)),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    /// What a world holds.
    pub(crate) async fn of(world: &World) -> Self {
        let found = world.store.dynamo.client().scan().table_name(TABLE).send().await.unwrap();
        let mut table: Vec<Item> = found.items().iter().map(written).collect();
        table.sort_by_key(|item| (item["pk"].to_string(), item["sk"].to_string()));
        let listed = world.s3.list_objects_v2().bucket(BUCKET).send().await.unwrap();
        let mut bucket = BTreeMap::new();
        for object in listed.contents() {
            let key = object.key().unwrap();
            let body = world.s3.get_object().bucket(BUCKET).key(key).send().await.unwrap().body;
            let bytes = body.collect().await.unwrap().to_vec();
            let text = String::from_utf8(bytes);
            let text = text.unwrap_or_else(|bytes| SEALED.to_owned() + &STANDARD.encode(bytes.as_bytes()));
            bucket.insert(key.to_owned(), text);
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
            let put = world.s3.put_object().bucket(BUCKET).key(key).body(bytes.into());
            put.send().await.unwrap();
        }
    }

    /// The same with another name for one attribute.
    pub(crate) fn renamed(&self, of: &str, attribute: &str) -> Self {
        let mut stored = self.clone();
        for item in stored.table.iter_mut().filter(|item| kind(item) == of) {
            if let Some(value) = item.remove(attribute) {
                item.insert(format!("former-{attribute}"), value);
            }
        }
        stored
    }

    /// Makes all plans those of a later format.
    pub(crate) fn plans_of_version(&mut self, version: u32) {
        let now = format!("\"v\":{version}}}");
        for (_, text) in self.bucket.iter_mut().filter(|(key, _)| key.starts_with("plans/")) {
            assert!(text.ends_with("\"v\":1}"), "{text}");
            *text = text.replace("\"v\":1}", &now);
        }
    }
}

/// `t#…` is `t`; records, heads and second results of runs are told apart.
fn kind(item: &Item) -> String {
    let part = |name: &str| item[name]["S"].as_str().unwrap_or_default().to_owned();
    let (partition, sort) = (part("pk"), part("sk"));
    let partition = partition.split('#').next().unwrap_or_default();
    let late = if sort.contains("#late#") { "#late" } else { "" };
    match partition {
        "r" => format!("r {}{late}", sort.split('#').next().unwrap_or_default()),
        other => other.to_owned(),
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
