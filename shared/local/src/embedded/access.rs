//! Requests that the emulated S3 rejects, as S3 does or because objects are files.

use std::path::{Component, Path, PathBuf};

use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{
    CopyObjectInput, CopySource, DeleteBucketInput, DeleteObjectsInput, PostObjectInput, UploadPartCopyInput,
};
use s3s::path::S3Path;
use s3s::{S3Request, S3Result, s3_error};

use crate::files;

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

    /// Rejects forms, because any web page can make a browser send one.
    async fn post_object(&self, _: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        Err(s3_error!(NotImplemented, "uploads by HTML forms are not served on one machine: use PUT"))
    }

    /// Rejects buckets that are not empty. The emulator would delete them.
    async fn delete_bucket(&self, request: &mut S3Request<DeleteBucketInput>) -> S3Result<()> {
        match files::existing(holds_files(&self.folder.join(&request.input.bucket))) {
            Ok(Some(true)) => Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty")),
            Ok(_) => Ok(()),
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
    if let CopySource::Bucket { key, .. } = source { check_key(key) } else { Ok(()) }
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
