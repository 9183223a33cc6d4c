//! Opening a service from options: the names that AWS tools use, with or without `aws_`.

use crate::error::{Error, Result};
use crate::io::access::Access;
use crate::io::remote::answer::Connector;
use crate::io::remote::keys;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

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

pub fn is_patience_given(access: &Access) -> bool {
    access.given.contains_key(RETRY_SECONDS)
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
            builder = with(builder, key, value)?;
        }
    }
    for (name, value) in access.given.iter().filter(|(name, _)| *name != RETRY_SECONDS) {
        if name.ends_with("profile") {
            return Err(keys::unread(value));
        }
        let key = key(name).ok_or_else(|| {
            Error::invalid(format!(
                "{name:?} is no option of S3; expected one such as aws_region, aws_endpoint_url, aws_allow_http, \
                 aws_virtual_hosted_style_request or aws_skip_signature"
            ))
        })?;
        builder = with(builder, key, value)?;
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    // A plain http endpoint that someone names is meant.
    if endpoint.is_some_and(|endpoint| endpoint.to_ascii_lowercase().starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    let built = keys::settle(access, builder)?.with_http_connector(Connector).build().map_err(|e| {
        Error::invalid("cannot use S3 with these options; check AWS_* and --storage-option").caused_by(e)
    })?;
    Ok(Arc::new(built))
}

/// The builder with an option whose value it can take: it builds URLs and headers of them unchecked.
fn with(builder: AmazonS3Builder, key: AmazonS3ConfigKey, value: &str) -> Result<AmazonS3Builder> {
    use AmazonS3ConfigKey::{AccessKeyId, DefaultRegion, Endpoint, Region, SecretAccessKey, Token};
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match key {
        Endpoint => check_endpoint(value)?,
        Region | DefaultRegion if !value.chars().all(plain) => {
            return Err(Error::invalid(format!("{value:?} is no region; expected one such as eu-west-1 (AWS_REGION)")));
        }
        AccessKeyId | SecretAccessKey | Token if !value.chars().all(|c| c.is_ascii_graphic()) => {
            let name = match key {
                AccessKeyId => "AWS_ACCESS_KEY_ID",
                SecretAccessKey => "AWS_SECRET_ACCESS_KEY",
                _ => "AWS_SESSION_TOKEN",
            };
            return Err(Error::invalid(format!(
                "{name} has a space, a line break or another character that none has: look at how it is set"
            )));
        }
        _ => {}
    }
    Ok(builder.with_config(key, value))
}

fn check_endpoint(endpoint: &str) -> Result<()> {
    let url = Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // The service's own parser must take it, too, which wants it as it is written.
    let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}');
    let written = endpoint.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/') && !rest.contains(odd));
    let holds_keys = |url: &Url| !url.username().is_empty() || url.password().is_some();
    if url.as_ref().is_some_and(holds_keys) || endpoint.contains('@') {
        // Not shown: what stands before the @ would be a secret.
        return Err(Error::invalid(
            "the endpoint's URL holds credentials; leave them out and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ));
    }
    if !written || url.is_none_or(|url| url.query().is_some() || url.fragment().is_some()) {
        return Err(Error::invalid(format!(
            "{endpoint:?} is no endpoint; expected http://HOST:PORT or https://HOST:PORT (AWS_ENDPOINT_URL or \
             aws_endpoint_url)"
        )));
    }
    Ok(())
}

/// The builder's name of an option or variable.
fn key(name: &str) -> Option<AmazonS3ConfigKey> {
    match name {
        "endpoint_url" | "aws_endpoint_url_s3" => Some(AmazonS3ConfigKey::Endpoint),
        name => name.parse().ok(),
    }
}
