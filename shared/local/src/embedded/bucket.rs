//! S3 in this process.

use std::path::{Path, PathBuf};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Region};
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::SimpleAuth;
use s3s::dto::DeleteBucketInput;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3Request, S3Result, s3_error};
use s3s_fs::FileSystem;

use super::{ACCESS_KEY, EmbeddedError, REGION, SECRET_KEY, credentials, make_folder};

/// Opens buckets.
#[derive(Clone, Copy, Debug)]
pub struct Bucket;

impl Bucket {
    /// A client of the buckets kept in `folder`, which is made if it is not there. Makes no bucket.
    ///
    /// Keys become paths: no key may be the folder of another (`a` and `a/b`), and a key has at most about 150 bytes.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn open(folder: &Path) -> Result<Client, EmbeddedError> {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new(REGION))
            .credentials_provider(credentials())
            .endpoint_url("http://s3.local")
            .force_path_style(true)
            .http_client(s3s_aws::Client::from(service(folder)?))
            .build();
        Ok(Client::from_conf(config))
    }
}

/// The emulator over `folder`, for requests signed with our key pair and for unsigned ones.
pub(super) fn service(folder: &Path) -> Result<S3Service, EmbeddedError> {
    make_folder(folder)?;
    let files = FileSystem::new(folder).map_err(|error| EmbeddedError::Refused {
        what: format!("buckets in {}", folder.display()),
        reason: format!("{error:?}"),
    })?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
    builder.set_access(Everybody { folder: folder.to_owned() });
    Ok(builder.build())
}

/// Lets everybody do what S3 itself would do.
struct Everybody {
    folder: PathBuf,
}

#[async_trait::async_trait]
impl S3Access for Everybody {
    async fn check(&self, _: &mut S3AccessContext<'_>) -> S3Result<()> {
        Ok(())
    }

    /// S3 deletes empty buckets only; the emulator would delete any.
    async fn delete_bucket(&self, request: &mut S3Request<DeleteBucketInput>) -> S3Result<()> {
        match holds_files(&self.folder.join(&request.input.bucket)) {
            Ok(true) => Err(s3_error!(BucketNotEmpty, "The bucket you tried to delete is not empty")),
            Ok(false) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(s3_error!(error, InternalError)),
        }
    }
}

/// Whether there is any file below `folder`: the emulator leaves the empty folders of deleted objects.
fn holds_files(folder: &Path) -> std::io::Result<bool> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() || holds_files(&entry.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}
