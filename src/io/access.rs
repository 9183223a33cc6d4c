//! What reaching a store takes that isn't in its URL: options and credentials, and local space. Collected by the caller,
//! since nothing here reads the environment. Secrets are never shown.

use super::TierOptions;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone)]
pub struct Access {
    /// Options of the service, by lower-case name (`aws_region`, `endpoint`, …); credentials among them.
    pub given: BTreeMap<String, String>,
    /// The environment's variables that a service's tools heed (`aws_…`), where no option says otherwise; others of
    /// that kind are passed over.
    pub environment: BTreeMap<String, String>,
    /// Files with AWS profiles, where they are there: not read, but named where keys are missing.
    pub aws_credentials: Option<PathBuf>,
    pub aws_config: Option<PathBuf>,
    /// A directory on a local disk for what is on its way to or from a remote store; made when it is needed.
    pub scratch: PathBuf,
    /// Where parts of remote stores are kept, so that they are fetched once; `None`: nowhere.
    pub tier: Option<TierOptions>,
    /// How long one request may be tried again.
    pub patience: Duration,
    /// The pause before it is tried again for the first time; later ones are longer.
    pub first_pause: Duration,
}

impl Default for Access {
    /// No options; what is on its way lies under the system's temporary directory.
    fn default() -> Self {
        Access {
            given: BTreeMap::new(),
            environment: BTreeMap::new(),
            aws_credentials: None,
            aws_config: None,
            scratch: PathBuf::from("/tmp"),
            tier: None,
            patience: Duration::from_secs(120),
            first_pause: Duration::from_millis(100),
        }
    }
}

impl Access {
    /// Adds options that aren't given.
    pub fn with_defaults(mut self, options: &BTreeMap<String, String>) -> Access {
        for (name, value) in options {
            self.given.entry(name.clone()).or_insert_with(|| value.clone());
        }
        self
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.given.keys().chain(self.environment.keys()).collect();
        f.debug_struct("Access").field("options", &names).field("scratch", &self.scratch).finish()
    }
}
