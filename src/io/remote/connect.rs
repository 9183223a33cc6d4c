//! Opening a service from options. For S3: the names that AWS tools use, with or without `aws_`; `others` has the rest.

use crate::error::{Error, Result};
use crate::io::access::Access;
use crate::io::address::Service;
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

pub fn open(service: Service, bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>> {
    match service {
        Service::S3 => s3(bucket, access),
        #[cfg(feature = "gcs")]
        Service::Gcs => super::others::gcs(bucket, access),
        #[cfg(feature = "azure")]
        Service::Azure => super::others::azure(bucket, access),
        #[cfg(not(all(feature = "gcs", feature = "azure")))]
        _ => Err(Error::internal("an address of a service that this build can't reach")),
    }
}

/// What all services have in common. Attempts and their time are bounded by `retry`, bodies of any size included.
pub fn client() -> (ClientOptions, RetryConfig) {
    let client = ClientOptions::new().with_timeout_disabled().with_connect_timeout(Duration::from_secs(10));
    (client, RetryConfig { max_retries: 0, ..RetryConfig::default() })
}

/// The options that are meant for the service whose names begin with `own`, in the order in which they win; `true` where
/// an unknown one is an error. Options of other services may stand beside them, for a source elsewhere.
pub fn options<'a>(access: &'a Access, own: &str) -> impl Iterator<Item = (&'a str, &'a str, bool)> {
    let others: Vec<&str> = ["aws_", "google_", "azure_"].into_iter().filter(|start| *start != own).collect();
    let environment = access.environment.iter().map(|(name, value)| (name.as_str(), value.as_str(), false));
    let given = access.given.iter().map(|(name, value)| (name.as_str(), value.as_str(), true));
    let meant = move |(name, _, _): &(&str, &str, bool)| {
        *name != RETRY_SECONDS && !others.iter().any(|other| name.starts_with(other))
    };
    environment.chain(given).filter(meant)
}

fn s3(bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>> {
    let (client, retry) = client();
    let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry).with_bucket_name(bucket);
    // Objects are removed one by one, which every service can; replies to removing many differ from service to service.
    builder = builder.with_disable_bulk_delete(true);
    for (name, value, is_given) in options(access, "aws_") {
        match key(name) {
            Some(key) => builder = with(builder, key, value)?,
            None if !is_given => {}
            None if name.ends_with("profile") => return Err(keys::unread(value)),
            None => {
                return Err(Error::invalid(format!(
                    "{name:?} is no option of S3; expected one such as aws_region, aws_endpoint_url, aws_allow_http, \
                     aws_virtual_hosted_style_request or aws_skip_signature"
                )));
            }
        }
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    // A plain http endpoint that someone names is meant.
    if endpoint.is_some_and(|endpoint| is_plain_http(&endpoint)) {
        builder = builder.with_allow_http(true);
    }
    let built = keys::settle(access, builder)?.with_http_connector(Connector).build().map_err(|e| {
        Error::invalid("cannot use S3 with these options; check AWS_* and --storage-option").caused_by(e)
    })?;
    Ok(Arc::new(built))
}

pub fn is_plain_http(endpoint: &str) -> bool {
    endpoint.to_ascii_lowercase().starts_with("http://")
}

/// The builder with an option whose value it can take: it builds URLs and headers of them unchecked.
fn with(builder: AmazonS3Builder, key: AmazonS3ConfigKey, value: &str) -> Result<AmazonS3Builder> {
    use AmazonS3ConfigKey::{AccessKeyId, DefaultRegion, Endpoint, Region, SecretAccessKey, Token};
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    match key {
        Endpoint => check_endpoint(value, "AWS_ENDPOINT_URL or aws_endpoint_url")?,
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

/// `option`: what gives it.
pub fn check_endpoint(endpoint: &str, option: &str) -> Result<()> {
    let url = Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // The service's own parser must take it, too, which wants it as it is written.
    let odd = |c: char| !c.is_ascii_graphic() || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}');
    let written = endpoint.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/') && !rest.contains(odd));
    let holds_keys = |url: &Url| !url.username().is_empty() || url.password().is_some();
    if url.as_ref().is_some_and(holds_keys) || endpoint.contains('@') {
        // Not shown: what stands before the @ would be a secret.
        return Err(Error::invalid(
            "the endpoint's URL holds credentials; leave them out and give the keys by their own variables or options",
        ));
    }
    if !written || url.is_none_or(|url| url.query().is_some() || url.fragment().is_some()) {
        return Err(Error::invalid(format!(
            "{endpoint:?} is no endpoint; expected http://HOST:PORT or https://HOST:PORT ({option})"
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
