//! Stores records as Secrets in the relay's namespace. Every write is conditional on the version that was read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;

use ebb_protocol::{Callback, ReasonCode, SecretDocument, TaskId};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};

use crate::names::{self, CONTINUED, FINALIZER, INSTANCE, NAMESPACE, NAMESPACES, PART, PHASE, RECORD, TARGET, UNIT};
use crate::{AppliedObject, ObjectRef, ReconcileError, Result, TaskPhase, TaskRecord, TaskSpec, lock, now_ms, status};

const OF_RECORD: &str = "record";
const OF_RESULT: &str = "result";
const OF_KEPT: &str = "sinceMs";
const OF_DOCUMENTS: &str = "documents";
/// Bytes of a result in one Secret. Kubernetes allows 1 MiB for all values together.
const PART_BYTES: usize = 700 << 10;
/// Bytes of a record without its result.
const MAX_RECORD: usize = 300 << 10;
/// Bytes by which a record may grow, in addition to its applied objects.
const RECORD_RESERVE: usize = 16 << 10;
const UID: &str = "00000000-0000-0000-0000-000000000000";
const PAGE: u32 = 50;

#[derive(Clone, Debug)]
pub(crate) struct VersionedRecord {
    pub(crate) record: TaskRecord,
    /// A [`Callback`] as JSON.
    pub(crate) result: Option<Vec<u8>>,
    /// True if this relay has recorded the outcome of every request for the task's objects.
    pub(crate) confirmed: bool,
    uid: String,
    resource_version: String,
}

impl VersionedRecord {
    /// Returns true if the outcome of a request may be unknown: the relay was killed or got no response.
    pub(crate) fn may_be_in_flight(&self) -> bool {
        self.record.phase == TaskPhase::Starting && !self.record.is_queued() && !self.confirmed
    }

    /// Returns the result, or an error if it is missing or cannot be read.
    pub(crate) fn result(&self) -> Result<Callback> {
        let bytes = self.result.as_deref().unwrap_or_default();
        serde_json::from_slice(bytes).map_err(|error| damaged(&names::record_name(&self.record.name), &error))
    }

    pub(crate) fn set_result(&mut self, result: Callback) {
        // Serialization cannot fail: all maps have text keys.
        self.result = Some(serde_json::to_vec(&result.fit()).unwrap_or_default());
    }

    /// Removes everything except the name and the objects that must still be deleted.
    pub(crate) fn make_tombstone(&mut self) {
        self.result = None;
        self.record.phase = TaskPhase::Tombstone { since_ms: now_ms() };
        if self.record.is_kept() {
            self.record.removed.get_or_insert_default();
        }
        if self.record.spec.as_ref().is_some_and(|spec| spec.applied.is_empty()) {
            self.record.spec = None;
        }
    }
}

pub(crate) type RecordPage = (Vec<TaskRecord>, Option<String>);

pub(crate) struct RecordStore {
    secrets: Api<Secret>,
    /// The versions of starting tasks that are confirmed. A version that another relay has written is not.
    confirmed: Mutex<HashMap<TaskId, String>>,
    /// Namespaces whose Secret this relay has written.
    output_namespaces: Mutex<BTreeSet<String>>,
}

impl RecordStore {
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        let secrets = Api::namespaced(client.clone(), namespace);
        Self { secrets, confirmed: Mutex::default(), output_namespaces: Mutex::default() }
    }

    /// Returns the time since which records are kept, in milliseconds since 1970, and stores it first.
    pub(crate) async fn kept_since(&self) -> Result<u64> {
        let now = now_ms();
        if let Some(kept) = self.secrets.get_opt(names::KEPT_SINCE).await? {
            let since = kept.data.and_then(|mut data| data.remove(OF_KEPT));
            return Ok(since.and_then(|since| String::from_utf8(since.0).ok()?.parse().ok()).unwrap_or(now));
        }
        self.create_new(&part_secret(names::KEPT_SINCE, names::KEPT, &[(OF_KEPT, now.to_string().as_bytes())])).await?;
        Ok(now)
    }

    /// Creates a Secret. Returns false if it exists.
    async fn create_new(&self, secret: &Secret) -> Result<bool> {
        match self.secrets.create(&PostParams::default(), secret).await {
            Err(error) if status(&error) == Some(409) => Ok(false),
            made => made.map(|_| true).map_err(ReconcileError::from),
        }
    }

    pub(crate) async fn get(&self, name: &TaskId) -> Result<Option<VersionedRecord>> {
        let Some(mut held) = self.head(name).await? else { return Ok(None) };
        self.read_rest(&mut held).await?;
        Ok(Some(held))
    }

    /// Returns a record with the first part of its result. Call [`read_rest`](Self::read_rest) before saving it.
    pub(crate) async fn head(&self, name: &TaskId) -> Result<Option<VersionedRecord>> {
        let Some(secret) = self.secrets.get_opt(&names::record_name(name)).await? else { return Ok(None) };
        let mut held = decode(&secret)?;
        let is_confirmed = |confirmed: &String| *confirmed == held.resource_version;
        held.confirmed = held.record.is_queued() || lock(&self.confirmed).get(name).is_some_and(is_confirmed);
        Ok(Some(held))
    }

    /// Reads the further parts of a result. A result without one of them is lost.
    ///
    /// # Errors
    /// Returns [`ReconcileError::Conflict`] if another write has changed the record.
    pub(crate) async fn read_rest(&self, held: &mut VersionedRecord) -> Result<()> {
        for part in 1..=held.record.result_parts {
            let name = names::continuation_name(&held.record.name, part);
            let Some(piece) = self.secrets.get_opt(&name).await? else {
                // A write saves the record before it deletes parts.
                let now = self.head(&held.record.name).await?;
                if now.is_none_or(|now| now.resource_version != held.resource_version) {
                    return Err(ReconcileError::Conflict);
                }
                let why = format!("the Secret {name} with a part of the result was deleted");
                held.set_result(Callback::failed(ReasonCode::Lost, &why));
                return Ok(());
            };
            let data = piece.data.unwrap_or_default().remove(OF_RESULT).unwrap_or_default();
            held.result.get_or_insert_default().extend(data.0);
        }
        Ok(())
    }

    /// Returns the records of a unit without their results. Fails if one is damaged, because its task may run.
    pub(crate) async fn list(&self, unit: &str) -> Result<Vec<TaskRecord>> {
        self.collect(Some(unit), Some).await
    }

    /// Returns `part` of every record of a unit, or of all. The records together may exceed the memory. Without a unit, a
    /// damaged record is logged and skipped.
    pub(crate) async fn collect<T>(
        &self,
        unit: Option<&str>,
        mut part: impl FnMut(TaskRecord) -> Option<T>,
    ) -> Result<Vec<T>> {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let (records, next) = self.page(unit, after.as_deref()).await?;
            all.extend(records.into_iter().filter_map(&mut part));
            if next.is_none() {
                return Ok(all);
            }
            after = next;
        }
    }

    pub(crate) async fn page(&self, unit: Option<&str>, after: Option<&str>) -> Result<RecordPage> {
        let of_unit = unit.map(|unit| format!(",{UNIT}={unit}")).unwrap_or_default();
        let mut page = ListParams::default().labels(&format!("{PART}={RECORD}{of_unit}")).limit(PAGE);
        page.continue_token = after.map(str::to_owned);
        let list = self.secrets.list(&page).await?;
        let mut records = Vec::new();
        for secret in &list.items {
            match decode(secret) {
                Ok(held) => records.push(held.record),
                Err(error) if unit.is_some() => return Err(error),
                Err(error) => tracing::error!(%error, "a damaged record is skipped"),
            }
        }
        Ok((records, list.metadata.continue_.filter(|next| !next.is_empty())))
    }

    /// Returns another instance, for people, whose objects have this use of an object.
    pub(crate) async fn other_user(&self, of: &ObjectRef, what: &str, instance: &str) -> Result<Option<String>> {
        let labels = format!("{}={what},{INSTANCE}!={instance}", of.use_label());
        let found = self.secrets.list_metadata(&ListParams::default().labels(&labels).limit(1)).await?;
        Ok(found.items.first().map(|record| names::other_instance(record.labels().get(TARGET).map(String::as_str))))
    }

    /// Creates a record.
    ///
    /// # Errors
    /// Returns [`ReconcileError::Conflict`] if it exists, and [`ReconcileError::TooLarge`] if a result would not fit.
    pub(crate) async fn create(&self, record: TaskRecord) -> Result<VersionedRecord> {
        has_room(&record)?;
        let (uid, resource_version) = (String::new(), String::new());
        let new = VersionedRecord { record, result: None, confirmed: true, uid, resource_version };
        let made = self.secrets.create(&PostParams::default(), &encode(&new)?).await;
        let made = made.map_err(|error| match status(&error) {
            // The namespace does not exist, so a repetition cannot help.
            Some(404) => ReconcileError::Api(error),
            _ => write_error(error),
        })?;
        // A new record has no objects.
        Ok(VersionedRecord { confirmed: true, ..decode(&made)? })
    }

    /// Remembers, in the memory of this relay, that this version of a starting task is confirmed, if it is.
    pub(crate) fn mark_confirmed(&self, held: &VersionedRecord) {
        if held.confirmed && held.record.phase == TaskPhase::Starting {
            lock(&self.confirmed).insert(held.record.name.clone(), held.resource_version.clone());
        }
    }

    pub(crate) fn forget(&self, name: &TaskId) {
        lock(&self.confirmed).remove(name);
    }

    /// Saves a record if its version is unchanged. Parts of a large result are written to further Secrets first.
    ///
    /// # Errors
    /// Returns [`ReconcileError::Conflict`] after another write, and [`ReconcileError::TooLarge`] if it does not fit.
    pub(crate) async fn save(&self, held: &mut VersionedRecord) -> Result<()> {
        let name = held.record.name.clone();
        let result = held.result.as_deref().unwrap_or_default();
        let parts = result.len().saturating_sub(1) / PART_BYTES;
        let before = std::mem::replace(&mut held.record.result_parts, parts);
        for (part, piece) in result.chunks(PART_BYTES).enumerate().skip(1) {
            self.write_part(held, names::continuation_name(&name, part), OF_RESULT, piece).await?;
        }
        if held.record.phase != TaskPhase::Starting {
            // Documents are deleted first, because the saved record no longer names them.
            for part in 1..=std::mem::take(&mut held.record.document_parts) {
                self.delete_part(&names::documents_name(&name, part)).await?;
            }
        }
        let saved = self.secrets.replace(&names::record_name(&name), &PostParams::default(), &encode(held)?).await;
        held.resource_version = saved.map_err(write_error)?.resource_version().unwrap_or_default();
        for part in parts + 1..=before {
            self.delete_part(&names::continuation_name(&name, part)).await?;
        }
        Ok(())
    }

    /// Stores the documents of a queued task. They are deleted when it has started.
    pub(crate) async fn save_documents(&self, held: &mut VersionedRecord, documents: &[SecretDocument]) -> Result<()> {
        let name = held.record.name.clone();
        let bytes = serde_json::to_vec(documents).map_err(|error| damaged(&names::record_name(&name), &error))?;
        for (part, piece) in (1..).zip(bytes.chunks(PART_BYTES)) {
            self.write_part(held, names::documents_name(&name, part), OF_DOCUMENTS, piece).await?;
        }
        held.record.document_parts = bytes.len().div_ceil(PART_BYTES);
        self.save(held).await
    }

    /// Returns the stored documents, or none if one is missing.
    pub(crate) async fn documents(&self, record: &TaskRecord) -> Result<Vec<SecretDocument>> {
        let mut bytes = Vec::new();
        for part in 1..=record.document_parts {
            let Some(piece) = self.secrets.get_opt(&names::documents_name(&record.name, part)).await? else {
                return Ok(Vec::new());
            };
            bytes.extend(piece.data.unwrap_or_default().remove(OF_DOCUMENTS).unwrap_or_default().0);
        }
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        serde_json::from_slice(&bytes).map_err(|error| damaged(&names::record_name(&record.name), &error))
    }

    async fn write_part(&self, held: &VersionedRecord, name: String, key: &str, piece: &[u8]) -> Result<()> {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            name: names::record_name(&held.record.name),
            uid: held.uid.clone(),
            ..OwnerReference::default()
        };
        let labels = names::secret_labels(&held.record.name, None, &[(PART, CONTINUED)]);
        let mut secret = secret(&name, labels, &[(key, piece)]);
        secret.metadata.owner_references = Some(vec![owner]);
        if !self.create_new(&secret).await? {
            // A leftover of an incomplete write is replaced, whatever its version.
            self.secrets.replace(&name, &PostParams::default(), &secret).await?;
        }
        Ok(())
    }

    /// Records that a namespace has sensitive outputs. They outlive the records of their tasks and the policy.
    pub(crate) async fn add_output_namespace(&self, namespace: &str) -> Result<()> {
        if lock(&self.output_namespaces).contains(namespace) {
            return Ok(());
        }
        self.create_new(&part_secret(&names::namespace_name(namespace), NAMESPACE, &[])).await?;
        lock(&self.output_namespaces).insert(namespace.to_owned());
        Ok(())
    }

    pub(crate) async fn output_namespaces(&self) -> Result<Vec<String>> {
        let list = self.secrets.list_metadata(&ListParams::default().labels(&format!("{PART}={NAMESPACE}"))).await?;
        let names = list.items.iter().map(|secret| secret.name_any());
        Ok(names.filter_map(|name| name.strip_prefix(NAMESPACES).map(str::to_owned)).collect())
    }

    /// Deletes a Secret that is not a record, if it exists.
    pub(crate) async fn delete_part(&self, name: &str) -> Result<()> {
        ignore_missing(self.secrets.delete(name, &DeleteParams::default()).await)
    }

    pub(crate) async fn remove(&self, held: &VersionedRecord) -> Result<()> {
        let unchanged =
            Preconditions { uid: Some(held.uid.clone()), resource_version: Some(held.resource_version.clone()) };
        let how = DeleteParams::default().preconditions(unchanged);
        ignore_missing(self.secrets.delete(&names::record_name(&held.record.name), &how).await)
    }
}

fn ignore_missing<T>(response: kube::Result<T>) -> Result<()> {
    match response {
        Err(error) if status(&error) != Some(404) => Err(write_error(error)),
        _ => Ok(()),
    }
}

fn write_error(error: kube::Error) -> ReconcileError {
    match status(&error) {
        Some(404 | 409) => ReconcileError::Conflict,
        Some(413 | 422) => ReconcileError::TooLarge(format!("the record is too large: {error}")),
        _ => ReconcileError::Api(error),
    }
}

/// Returns the error of a damaged record. The text of `error` itself may contain a value.
fn damaged(record: &str, error: &serde_json::Error) -> ReconcileError {
    let (line, column) = (error.line(), error.column());
    ReconcileError::Internal(format!("the record {record} cannot be read: line {line}, column {column}"))
}

fn decode(secret: &Secret) -> Result<VersionedRecord> {
    let bytes = |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| &*bytes.0);
    let record = serde_json::from_slice(bytes(OF_RECORD).unwrap_or_default())
        .map_err(|error| damaged(&secret.name_any(), &error))?;
    Ok(VersionedRecord {
        record,
        result: bytes(OF_RESULT).map(<[u8]>::to_vec),
        confirmed: false,
        uid: secret.uid().unwrap_or_default(),
        resource_version: secret.resource_version().unwrap_or_default(),
    })
}

fn bytes_of(record: &TaskRecord) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|error| damaged(&names::record_name(&record.name), &error))
}

/// Checks that a new record will still fit when all objects are applied and recorded.
fn has_room(record: &TaskRecord) -> Result<()> {
    let mut grown = record.clone();
    if let Some(spec) = &mut grown.spec {
        let refs = spec.object_refs();
        spec.applied =
            refs.map(|(object_ref, document)| AppliedObject { object_ref, uid: UID.to_owned(), document }).collect();
    }
    let size = bytes_of(&grown)?.len() + RECORD_RESERVE;
    if size > MAX_RECORD {
        let why = format!("manifests and rules have {size} bytes with their record; {MAX_RECORD} is the limit");
        return Err(ReconcileError::TooLarge(why));
    }
    Ok(())
}

fn encode(held: &VersionedRecord) -> Result<Secret> {
    let TaskRecord { name, phase, spec, .. } = &held.record;
    let instance = spec.as_ref().map(|spec| spec.objects.instance.as_str());
    let finalizers = if held.record.is_needed() { vec![FINALIZER.to_owned()] } else { vec![] };
    let mut labels = names::secret_labels(name, instance, &[(PART, RECORD), (PHASE, phase.label())]);
    labels.extend(spec.as_ref().map(|spec| names::name_labels(&spec.names)).unwrap_or_default());
    let has_objects = |spec: &&TaskSpec| phase.is_open() || !spec.applied.is_empty();
    labels.extend(spec.iter().filter(has_objects).flat_map(|spec| spec.uses.clone()));
    let record = bytes_of(&held.record)?;
    if record.len() > MAX_RECORD {
        let size = record.len();
        return Err(ReconcileError::TooLarge(format!("its record has {size} bytes; {MAX_RECORD} is the limit")));
    }
    let mut data = vec![(OF_RECORD, record.as_slice())];
    data.extend(held.result.as_ref().map(|result| (OF_RESULT, &result[..result.len().min(PART_BYTES)])));
    let mut secret = secret(&names::record_name(name), labels, &data);
    secret.metadata.finalizers = Some(finalizers);
    secret.metadata.resource_version = Some(held.resource_version.clone()).filter(|version| !version.is_empty());
    Ok(secret)
}

/// Returns a Secret of the relay that belongs to no task. `part` is its purpose.
pub(crate) fn part_secret(name: &str, part: &str, data: &[(&str, &[u8])]) -> Secret {
    secret(name, BTreeMap::from([(PART.to_owned(), part.to_owned())]), data)
}

fn secret(name: &str, labels: BTreeMap<String, String>, data: &[(&str, &[u8])]) -> Secret {
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
    Secret { metadata, data: Some(data.collect()), ..Secret::default() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ebb_protocol::{CallbackStatus, RelayResponse};
    use serde_json::Value;

    use super::*;
    use crate::test_api::{TestApi, rows};

    fn name() -> TaskId {
        TaskId { unit: "unit".to_owned(), attempt: 1 }
    }

    /// The namespace of a relay that was removed ends although objects of ended tasks are still being deleted.
    #[test]
    fn only_records_that_are_needed_have_a_finalizer() {
        let rows = rows::<(TaskPhase, bool, bool, bool)>("only_records_that_are_needed_have_a_finalizer");
        for (phase, keep, has_objects, expected) in rows {
            let mut spec = TaskSpec::example();
            spec.objects.keep = keep;
            if has_objects {
                let object_ref = ObjectRef::secret("n", "a");
                spec.applied.push(AppliedObject { object_ref, uid: "u".to_owned(), document: false });
            }
            let case = format!("{phase:?} {keep} {has_objects}");
            let record = TaskRecord::new(name(), phase, Some(spec));
            let (uid, resource_version) = (String::new(), String::new());
            let held = VersionedRecord { record, result: None, confirmed: false, uid, resource_version };
            assert_eq!(!encode(&held).unwrap().metadata.finalizers.unwrap_or_default().is_empty(), expected, "{case}");
        }
    }

    /// A confirmed version of a starting task has no open request. Other relays read it as unconfirmed.
    #[tokio::test]
    async fn only_the_relay_that_wrote_a_version_confirms_it() {
        let client = Arc::<TestApi>::default().client();
        let (first, second) = (RecordStore::new(&client, "relay"), RecordStore::new(&client, "relay"));
        let mut record =
            first.create(TaskRecord::new(name(), TaskPhase::Starting, Some(TaskSpec::example()))).await.unwrap();
        let read = async |store: &RecordStore| store.get(&name()).await.unwrap().unwrap();
        first.mark_confirmed(&record);
        assert!(!read(&first).await.may_be_in_flight() && read(&second).await.may_be_in_flight());
        // A newer version needs another confirmation.
        let mut renewed = read(&first).await;
        first.save(&mut renewed).await.unwrap();
        assert!(!renewed.may_be_in_flight() && read(&first).await.may_be_in_flight());
        first.mark_confirmed(&renewed);
        assert!(!read(&first).await.may_be_in_flight());
        second.save(&mut read(&second).await).await.unwrap();
        assert!(read(&first).await.may_be_in_flight());
        record.confirmed = false;
        assert!(record.may_be_in_flight());
    }

    /// A Secret with a part of a large result is deleted by hand.
    #[tokio::test]
    async fn a_result_without_one_of_its_parts_is_lost() {
        let server = Arc::<TestApi>::default();
        let store = RecordStore::new(&server.client(), "relay");
        let mut held =
            store.create(TaskRecord::new(name(), TaskPhase::Ended, Some(TaskSpec::example()))).await.unwrap();
        let mut result = Callback::new(CallbackStatus::Succeeded);
        result.outputs.insert("large".to_owned(), "x".repeat(PART_BYTES).into());
        held.set_result(result);
        store.save(&mut held).await.unwrap();
        let read = async || store.get(&name()).await.unwrap().unwrap();
        assert_eq!(read().await.result().unwrap().status, CallbackStatus::Succeeded);
        let mut before = store.head(&name()).await.unwrap().unwrap();
        let part = names::continuation_name(&name(), 1);
        server.objects.lock().unwrap().remove(&part).expect("the result has two parts");
        let mut lost = read().await;
        let reason = lost.result().unwrap().reason.unwrap();
        assert!(reason.code == ReasonCode::Lost && reason.message.contains(&part), "{reason:?}");
        // The part is missing because of a later write.
        store.save(&mut lost).await.unwrap();
        let read_late = store.read_rest(&mut before).await;
        assert!(matches!(read_late, Err(ReconcileError::Conflict)), "{read_late:?}");
    }

    /// A task whose record cannot be read may run, so no other attempt starts. The response has no record.
    #[tokio::test]
    async fn a_record_that_cannot_be_read_blocks_its_unit() {
        let server = Arc::<TestApi>::default();
        server.objects.lock().unwrap().extend(rows::<(String, Value)>("a_record_that_cannot_be_read_blocks_its_unit"));
        let relay = server.relay().await;
        let batch = rows("start_of_a_blocked_unit").remove(0);
        let responses = relay.batch(batch, Duration::ZERO).await.unwrap().responses;
        let [RelayResponse::Unavailable(why)] = &*responses else { panic!("{responses:?}") };
        assert!(why.contains("ebb-task.unit.1") && why.contains("line 1") && !why.contains("hunter2"), "{why}");
        assert!(relay.inner.store.collect(None, Some).await.unwrap().is_empty(), "the other units go on");
    }
}
