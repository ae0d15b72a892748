//! Signs requests by AWS Signature Version 4.

use std::time::{Duration, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign,
};
use aws_sigv4::sign::v4;
use ebb_protocol::{SecretText, Timestamp};

use crate::HttpRequest;

/// The credential of an AWS API, and what its signatures are for.
pub struct AwsKey {
    pub access_key_id: String,
    pub secret: SecretText,
    /// The token of temporary credentials.
    pub session_token: Option<SecretText>,
    /// Such as `eu-central-1`.
    pub region: String,
    /// Such as `s3`.
    pub service: String,
}

impl AwsKey {
    /// Signs URL, host, content type, `x-amz-*` headers and body, and adds the headers of the signature. Returns the
    /// signature, or `None` for a URL that cannot be signed.
    pub fn sign(&self, request: &mut HttpRequest, now: Timestamp) -> Option<String> {
        let token = self.session_token.as_ref().map(|token| token.to_string());
        let identity = Credentials::new(&self.access_key_id, self.secret.as_str(), token, None, "ebb").into();
        let mut settings = SigningSettings::default();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        // S3 takes a path as it is.
        if self.service == "s3" {
            settings.percent_encoding_mode = PercentEncodingMode::Single;
            settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        }
        let params = v4::SigningParams::builder().identity(&identity).region(&self.region).name(&self.service);
        let params = params.time(UNIX_EPOCH + Duration::from_millis(now.0)).settings(settings).build().ok()?.into();
        let own = ["authorization", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"];
        request.headers.retain(|(name, _)| !own.contains(&name.as_str()));
        let is_signed = |name: &str| name == "content-type" || name.starts_with("x-amz-");
        let headers = request.headers.iter().filter(|(name, _)| is_signed(name));
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        // The client sends the URL in this form.
        let url = url::Url::parse(&request.url).ok()?;
        let body = SignableBody::Bytes(&request.body);
        let signable = SignableRequest::new(&request.method, url.as_str(), headers, body).ok()?;
        let (instructions, signature) = sign(signable, &params).ok()?.into_parts();
        request.headers.extend(instructions.headers().map(|(name, value)| (name.to_owned(), value.to_owned())));
        Some(signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example *GET Bucket Lifecycle* of the documentation of S3.
    #[test]
    fn a_published_request_gets_its_published_signature() {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned();
        let key = AwsKey {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: SecretText::new(secret),
            session_token: None,
            region: "us-east-1".to_owned(),
            service: "s3".to_owned(),
        };
        let url = "https://examplebucket.s3.amazonaws.com/?lifecycle";
        let headers = vec![("x-amz-date".to_owned(), "forged".to_owned()), ("ebb-attempt".to_owned(), "1".to_owned())];
        let mut request = HttpRequest::new("GET", url, headers, Vec::new(), Duration::from_secs(1));
        let signed = key.sign(&mut request, Timestamp(1_369_353_600_000));
        let signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        assert_eq!(signed.as_deref(), Some(signature));
        let values = |name: &str| -> Vec<&str> {
            let headers = request.headers.iter().filter(|(own, _)| own == name);
            headers.map(|(_, value)| value.as_str()).collect()
        };
        assert!(matches!(values("authorization")[..], [one] if one.ends_with(&format!("Signature={signature}"))));
        assert_eq!(values("x-amz-date"), ["20130524T000000Z"]);
    }
}
