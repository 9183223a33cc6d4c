//! Opening a service from options: the names that AWS tools use, with or without `aws_`.

use crate::error::{Error, Result};
use crate::io::access::Access;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// The one option that is ours: how long a request may be tried again.
const RETRY_SECONDS: &str = "retry_seconds";

/// How long a request may be tried again, as the option says or else `access`.
pub fn patience(access: &Access) -> Result<Duration> {
    let Some(text) = access.given.get(RETRY_SECONDS) else { return Ok(access.patience) };
    let seconds = text.parse::<u32>().map_err(|_| {
        Error::invalid(format!("{RETRY_SECONDS} is {text:?}; expected a whole number of seconds, such as 120"))
    })?;
    Ok(Duration::from_secs(seconds.into()))
}

pub fn s3(bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>> {
    // Attempts and their time are bounded by `retry`, bodies of any size included.
    let client = ClientOptions::new().with_timeout_disabled().with_connect_timeout(Duration::from_secs(10));
    let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(once).with_bucket_name(bucket);
    // Objects are removed one by one, which every service can; replies to removing many differ from service to service.
    builder = builder.with_disable_bulk_delete(true);
    for (name, value) in &access.environment {
        if let Some(key) = key(name) {
            builder = builder.with_config(key, value);
        }
    }
    for (name, value) in access.given.iter().filter(|(name, _)| *name != RETRY_SECONDS) {
        let key = key(name).ok_or_else(|| {
            Error::invalid(format!(
                "{name:?} is no option of S3; expected one such as aws_region, aws_endpoint_url, aws_allow_http, \
                 aws_virtual_hosted_style_request or aws_skip_signature"
            ))
        })?;
        builder = builder.with_config(key, value);
    }
    profiles(access, &builder)?;
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    // A plain http endpoint that someone names is meant.
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    let built = builder.build().map_err(|e| {
        Error::invalid("cannot use S3 with these options; check AWS_* and --storage-option").caused_by(e)
    })?;
    Ok(Arc::new(built))
}

/// The builder's name of an option or variable.
fn key(name: &str) -> Option<AmazonS3ConfigKey> {
    match name {
        "endpoint_url" | "aws_endpoint_url_s3" => Some(AmazonS3ConfigKey::Endpoint),
        name => name.parse().ok(),
    }
}

/// A profile is asked for by name, and nothing here reads one: better refused than taken for other credentials.
fn profiles(access: &Access, builder: &AmazonS3Builder) -> Result<()> {
    let keys = builder.get_config_value(&AmazonS3ConfigKey::AccessKeyId).is_some();
    let anonymous = builder.get_config_value(&AmazonS3ConfigKey::SkipSignature).is_some_and(|skip| skip == "true");
    match access.environment.get("aws_profile") {
        Some(profile) if !keys && !anonymous => Err(Error::invalid(format!(
            "AWS_PROFILE={profile} is set, but profiles of ~/.aws aren't read; unset it and set AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY (`aws configure export-credentials --format env` prints them)"
        ))),
        _ => Ok(()),
    }
}
