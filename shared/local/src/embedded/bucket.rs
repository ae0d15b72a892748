//! S3 in this process.

use std::path::Path;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Region};
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;

use super::access::LocalAccess;
use super::{ACCESS_KEY, EmbeddedError, REGION, SECRET_KEY, credentials, make_folder};

/// Opens buckets.
#[derive(Clone, Copy, Debug)]
pub struct Bucket;

impl Bucket {
    /// A client of the buckets kept in `folder`, which is made if it is not there. Makes no bucket.
    ///
    /// Keys become paths: no key may be the folder of another (`a` and `a/b`) or have a segment `.` or `..`, and a key has
    /// at most about 150 bytes.
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
    builder.set_access(LocalAccess { folder: folder.to_owned() });
    Ok(builder.build())
}
