//! What tests of sessions share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contexture::config::Config;
use contexture::engines::Engines;
use contexture::providers::{ModelClient, NoModel, Resolved};

/// The engines of a home directory with a `config.yaml`, and no model that writes summaries.
pub(crate) fn engines_in(home: &Path) -> Arc<Engines> {
    let text = home.to_str().unwrap().to_owned();
    let env = move |name: &str| (name == "CONTEXTURE_HOME").then(|| text.clone().into());
    let loaded = Config::load(Some(&home.join("config.yaml")), &env).unwrap();
    let none = Resolved::NoModel(NoModel::Configured);
    let client = ModelClient::new(none, Duration::from_secs(1), |text| text.into());
    Engines::new(loaded, client).unwrap()
}
