//! Where keys come from: options and variables, the files and services that containers name, and the machine's own role.
//! Profiles of `~/.aws` aren't read: better refused by name than taken for other keys. Where there are none, that is said
//! within seconds.

use crate::error::{Error, Result};
use crate::io::access::Access;
use crate::io::remote::failure::{without_urls, words};
use async_trait::async_trait;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{CredentialProvider, Error as Refusal};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// What asking for keys may take.
const LIMIT: Duration = Duration::from_secs(5);
/// So long a failure to get some stays one.
const AGAIN_AFTER: Duration = Duration::from_secs(20);

const EXPORT: &str = r#"eval "$(aws configure export-credentials --format env)""#;

/// The builder with keys, or with a way to get some; an error where that would be in vain.
pub fn settle(access: &Access, builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    let given = |key: AmazonS3ConfigKey| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let anonymous = given(AmazonS3ConfigKey::SkipSignature).is_some_and(|skip| skip.eq_ignore_ascii_case("true"));
    let keys = (given(AmazonS3ConfigKey::AccessKeyId), given(AmazonS3ConfigKey::SecretAccessKey));
    if anonymous || matches!(keys, (Some(_), Some(_))) {
        return Ok(builder);
    }
    let option = |name: &str| access.given.get(name).or_else(|| access.environment.get(name));
    if let Some(profile) = option("aws_profile").or_else(|| option("aws_default_profile")) {
        return Err(unread(profile));
    }
    match keys {
        (Some(_), None) => return Err(half("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
        (None, Some(_)) => return Err(half("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID")),
        _ => {}
    }
    let role = given(AmazonS3ConfigKey::WebIdentityTokenFile).is_some() && given(AmazonS3ConfigKey::RoleArn).is_some();
    let container = given(AmazonS3ConfigKey::ContainerCredentialsRelativeUri)
        .or_else(|| given(AmazonS3ConfigKey::ContainerCredentialsFullUri))
        .is_some();
    if !role && !container {
        if let Some(file) = &access.aws_credentials {
            return Err(Error::invalid(format!(
                "there are no keys for S3: {} isn't read; run `{EXPORT}` first, which sets AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY from it (with AWS_PROFILE for another profile than the default one), or give \
                 aws_skip_signature=true for a bucket that anyone may read",
                file.display()
            )));
        }
        if option("aws_ec2_metadata_disabled").is_some_and(|off| off.eq_ignore_ascii_case("true")) {
            return Err(Error::invalid(advice(access)));
        }
    }
    let found = builder.clone().build().map_err(|e| {
        Error::invalid("cannot use S3 with these options; check AWS_* and --storage-option").caused_by(e)
    })?;
    Ok(builder.with_credentials(Bounded::over(found.credentials().clone(), advice(access))))
}

/// What is said where a profile is asked for.
pub fn unread(profile: &str) -> Error {
    Error::invalid(format!(
        "AWS_PROFILE={profile} is set, but AWS profiles aren't read: run `{EXPORT}` first, which sets \
         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY from it"
    ))
}

fn half(there: &str, missing: &str) -> Error {
    Error::invalid(format!("{there} is given, but not {missing}: set both"))
}

/// What to do without keys for S3.
fn advice(access: &Access) -> String {
    let unread = match &access.aws_config {
        Some(file) => format!("{} isn't read; ", file.display()),
        None => String::new(),
    };
    format!(
        "there are no keys for S3: {unread}set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (where the aws command works, \
         `{EXPORT}` does), or give aws_skip_signature=true for a bucket that anyone may read"
    )
}

/// No keys are to be had.
#[derive(Debug, Clone)]
pub struct NoKeys {
    cause: String,
    /// What to do.
    pub advice: String,
}

impl fmt::Display for NoKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for NoKeys {}

/// Keys of a service that is asked within a limit, by one request at a time; the others wait for its answer.
pub struct Bounded<C> {
    inner: Arc<dyn CredentialProvider<Credential = C>>,
    state: Mutex<State>,
    advice: String,
}

#[derive(Default)]
struct State {
    /// There were some: that they can't be renewed may pass.
    had: bool,
    failed: Option<(Instant, NoKeys)>,
}

impl<C: fmt::Debug + Send + Sync> Bounded<C> {
    /// `advice`: what to do where it gives none.
    pub fn over(inner: Arc<dyn CredentialProvider<Credential = C>>, advice: String) -> Arc<Self> {
        Arc::new(Bounded { inner, state: Mutex::default(), advice })
    }
}

impl<C> fmt::Debug for Bounded<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bounded")
    }
}

#[async_trait]
impl<C: fmt::Debug + Send + Sync> CredentialProvider for Bounded<C> {
    type Credential = C;

    async fn get_credential(&self) -> object_store::Result<Arc<C>> {
        let generic = |source| Err(Refusal::Generic { store: "keys", source });
        let mut state = self.state.lock().await;
        if let Some((_, no_keys)) = state.failed.as_ref().filter(|(when, _)| when.elapsed() < AGAIN_AFTER) {
            return generic(Box::new(no_keys.clone()));
        }
        let cause = match timeout(LIMIT, self.inner.get_credential()).await {
            Ok(Ok(found)) => {
                *state = State { had: true, failed: None };
                return Ok(found);
            }
            Ok(Err(error)) => without_urls(&words(&error)),
            Err(_) => format!("no answer within {} s", LIMIT.as_secs()),
        };
        if state.had {
            return generic(format!("cannot renew the keys: {cause}").into());
        }
        let cause = format!("no role of this machine gives some: {cause}");
        let no_keys = NoKeys { cause, advice: self.advice.clone() };
        state.failed = Some((Instant::now(), no_keys.clone()));
        generic(Box::new(no_keys))
    }
}
