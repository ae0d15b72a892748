//! Requests that the emulated S3 rejects, as S3 does or because objects are files.

use std::path::{Component, Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::TryStreamExt as _;
use s3s::access::{S3Access, S3AccessContext};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{
    Checksum, CopyObjectInput, CopySource, DeleteBucketInput, DeleteObjectsInput, PostObjectInput, PutObjectInput,
    StreamingBlob, UploadPartCopyInput,
};
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};
use tokio::io::AsyncSeekExt as _;

/// Bytes that are read from a spooled body at a time.
const CHUNK: usize = 64 << 10;

/// Allows all callers, but rejects requests that S3 rejects.
pub(super) struct LocalAccess {
    pub(super) folder: PathBuf,
}

#[async_trait::async_trait]
impl S3Access for LocalAccess {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        match context.s3_path() {
            S3Path::Object { key, .. } => check_key(key),
            S3Path::Root | S3Path::Bucket { .. } => Ok(()),
        }
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        check_source(&request.input.copy_source)
    }

    async fn upload_part_copy(&self, request: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        check_source(&request.input.copy_source)
    }

    async fn delete_objects(&self, request: &mut S3Request<DeleteObjectsInput>) -> S3Result<()> {
        request.input.delete.objects.iter().try_for_each(|object| check_key(&object.key))
    }

    /// Forms are rejected, because any web page can make a browser send one.
    async fn post_object(&self, _: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        Err(s3_error!(NotImplemented, "uploads by HTML forms are not served on one machine: use PUT"))
    }

    /// Verifies the digests of a body first: the emulator would store an object and then reject it.
    async fn put_object(&self, request: &mut S3Request<PutObjectInput>) -> S3Result<()> {
        let Some(expected) = BodyDigests::of(&request.input)? else { return Ok(()) };
        let Some(body) = request.input.body.take() else { return Ok(()) };
        request.input.body = Some(expected.verify(body).await?);
        Ok(())
    }

    /// Rejects buckets that are not empty. The emulator would delete them.
    async fn delete_bucket(&self, request: &mut S3Request<DeleteBucketInput>) -> S3Result<()> {
        match holds_files(&self.folder.join(&request.input.bucket)) {
            Ok(true) => Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty")),
            Ok(false) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(s3_error!(error, InternalError)),
        }
    }
}

/// Rejects a key that is not a path in the folder of its bucket.
fn check_key(key: &str) -> S3Result<()> {
    let path = Path::new(key);
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    // `components` skips segments that are `.` or empty.
    let is_plain = !key.split('/').any(|segment| matches!(segment, "." | ".."));
    match is_below && is_plain {
        true => Ok(()),
        false => Err(s3_error!(
            InvalidArgument,
            "on one machine a key is a path: it does not start with `/` and has no segment `.` or `..`"
        )),
    }
}

fn check_source(source: &CopySource) -> S3Result<()> {
    match source {
        CopySource::Bucket { key, .. } => check_key(key),
        _ => Ok(()),
    }
}

/// The digests of a body in the headers of its request.
struct BodyDigests {
    md5: Option<String>,
    checksum: Checksum,
}

impl BodyDigests {
    /// Returns the digests of a request; `None` if it has none.
    fn of(input: &PutObjectInput) -> S3Result<Option<Self>> {
        let md5 = input.content_md5.clone();
        if md5.as_ref().is_some_and(|md5| STANDARD.decode(md5).map_or(0, |bytes| bytes.len()) != 16) {
            return Err(s3_error!(InvalidDigest, "Content-MD5 is not the base64 of 16 bytes"));
        }
        let checksum = Checksum {
            checksum_crc32: input.checksum_crc32.clone(),
            checksum_crc32c: input.checksum_crc32c.clone(),
            checksum_crc64nvme: input.checksum_crc64nvme.clone(),
            checksum_sha1: input.checksum_sha1.clone(),
            checksum_sha256: input.checksum_sha256.clone(),
            ..Checksum::default()
        };
        Ok((md5.is_some() || checksum != Checksum::default()).then_some(Self { md5, checksum }))
    }

    /// Reads the body into a file, compares its digests, and returns the body once more.
    async fn verify(self, mut body: StreamingBlob) -> S3Result<StreamingBlob> {
        let internal = |error: std::io::Error| s3_error!(error, InternalError);
        let mut file = tokio::fs::File::from_std(tempfile::tempfile().map_err(internal)?);
        let mut md5 = Md5::new();
        let mut hasher = self.hasher();
        while let Some(bytes) = body.try_next().await.map_err(incomplete)? {
            md5.update(&bytes);
            hasher.update(&bytes);
            tokio::io::AsyncWriteExt::write_all(&mut file, &bytes).await.map_err(internal)?;
        }
        let found = STANDARD.encode(md5.finalize());
        if self.md5.is_some_and(|md5| md5 != found) {
            return Err(s3_error!(BadDigest, "Content-MD5 is not that of the body, which is {found}"));
        }
        if hasher.finalize() != self.checksum {
            return Err(s3_error!(BadDigest, "a checksum of the headers is not that of the body"));
        }
        tokio::io::AsyncWriteExt::flush(&mut file).await.map_err(internal)?;
        file.rewind().await.map_err(internal)?;
        let chunks = futures::stream::try_unfold(file, async |mut file| {
            let mut chunk = Vec::with_capacity(CHUNK);
            let count = tokio::io::AsyncReadExt::read_buf(&mut file, &mut chunk).await?;
            Ok::<_, std::io::Error>((count > 0).then(|| (chunk.into(), file)))
        });
        Ok(StreamingBlob::wrap(chunks))
    }

    fn hasher(&self) -> ChecksumHasher {
        let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, .. } =
            &self.checksum;
        ChecksumHasher {
            crc32: checksum_crc32.as_ref().map(|_| Default::default()),
            crc32c: checksum_crc32c.as_ref().map(|_| Default::default()),
            crc64nvme: checksum_crc64nvme.as_ref().map(|_| Default::default()),
            sha1: checksum_sha1.as_ref().map(|_| Default::default()),
            sha256: checksum_sha256.as_ref().map(|_| Default::default()),
        }
    }
}

fn incomplete(error: s3s::StdError) -> s3s::S3Error {
    let mut rejection = s3_error!(IncompleteBody);
    rejection.set_source(error);
    rejection
}

/// Returns true if a file is below `folder`. Deleted objects leave empty folders.
fn holds_files(folder: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || holds_files(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}
