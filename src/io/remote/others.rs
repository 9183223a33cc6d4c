//! Opening GCS and Azure from options, by the names that object_store has for them, which are those of their own tools where
//! these have some.

use super::answer::Connector;
use super::connect::{check_endpoint, client, is_plain_http, options};
use super::keys::Bounded;
use crate::error::{Error, Result};
use crate::io::access::Access;
use object_store::ObjectStore;
use std::sync::Arc;

fn unusable(service: &str, variables: &str, error: object_store::Error) -> Error {
    Error::invalid(format!("cannot use {service} with these options; check {variables} and --storage-option"))
        .caused_by(error)
}

/// A bucket of Google Cloud Storage.
#[cfg(feature = "gcs")]
pub fn gcs(bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>> {
    use object_store::ClientConfigKey;
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    let ((client, retry), unusable) = (client(), |e| unusable("GCS", "GOOGLE_*", e));
    let mut builder =
        GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry).with_bucket_name(bucket);
    for (name, value, is_given) in options(access, "google_") {
        match name.parse::<GoogleConfigKey>() {
            Ok(GoogleConfigKey::BaseUrl) => {
                check_endpoint(value, "google_base_url")?;
                // A plain http endpoint that someone names is meant.
                if is_plain_http(value) {
                    builder = builder.with_config(GoogleConfigKey::Client(ClientConfigKey::AllowHttp), "true");
                }
                builder = builder.with_config(GoogleConfigKey::BaseUrl, value);
            }
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) if !is_given => {}
            Err(_) => {
                return Err(Error::invalid(format!(
                    "{name:?} is no option of GCS; expected one such as google_application_credentials, \
                     google_service_account or google_skip_signature"
                )));
            }
        }
    }
    let found = builder.clone().build().map_err(unusable)?;
    let advice = "there are no credentials for GCS: set GOOGLE_APPLICATION_CREDENTIALS (`gcloud auth \
                  application-default login` makes a file for it), or give google_skip_signature=true for a bucket that \
                  anyone may read";
    let credentials = Bounded::over(found.credentials().clone(), advice.to_owned());
    let built = builder.with_credentials(credentials).with_http_connector(Connector).build().map_err(unusable)?;
    Ok(Arc::new(built))
}

/// A container of Azure Blob Storage.
#[cfg(feature = "azure")]
pub fn azure(container: &str, access: &Access) -> Result<Arc<dyn ObjectStore>> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    let ((client, retry), unusable) = (client(), |e| unusable("Azure", "AZURE_*", e));
    let mut builder =
        MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry).with_container_name(container);
    for (name, value, is_given) in options(access, "azure_") {
        // Those of the az command.
        let key = match name {
            "azure_storage_account" => Ok(AzureConfigKey::AccountName),
            "azure_storage_key" => Ok(AzureConfigKey::AccessKey),
            name => name.parse::<AzureConfigKey>(),
        };
        match key {
            Ok(AzureConfigKey::Endpoint) => {
                check_endpoint(value, "AZURE_STORAGE_ENDPOINT or azure_storage_endpoint")?;
                builder = builder.with_endpoint(value.to_owned());
                // A plain http endpoint that someone names is meant.
                if is_plain_http(value) {
                    builder = builder.with_allow_http(true);
                }
            }
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) if !is_given => {}
            Err(_) => {
                return Err(Error::invalid(format!(
                    "{name:?} is no option of Azure; expected one such as azure_storage_account_name, \
                     azure_storage_account_key, azure_storage_sas_token or azure_storage_endpoint"
                )));
            }
        }
    }
    if builder.get_config_value(&AzureConfigKey::AccountName).is_none() {
        return Err(Error::invalid(
            "which account of Azure is meant isn't said: set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY with \
             it (AZURE_STORAGE_CONNECTION_STRING, in which they stand, isn't read)",
        ));
    }
    let found = builder.clone().build().map_err(unusable)?;
    let advice = "there are no credentials for Azure: set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, give \
                  azure_use_azure_cli=true to ask the az command, or azure_skip_signature=true for a container that \
                  anyone may read";
    let credentials = Bounded::over(found.credentials().clone(), advice.to_owned());
    let built = builder.with_credentials(credentials).with_http_connector(Connector).build().map_err(unusable)?;
    Ok(Arc::new(built))
}
