//! What a build without the feature `network` answers where a model is wanted.
#![cfg(not(feature = "network"))]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contexture::config::AuxiliaryModel;
use contexture::providers::{ModelClient, NoModel, Resolved, resolve};
use contexture_engine_api::{FailureKind, ModelRequest};

#[test]
fn a_configured_model_is_answered_for_by_the_missing_network() {
    let settings = AuxiliaryModel {
        provider: "openai".to_owned(),
        model: Some("gpt-5".into()),
        ..AuxiliaryModel::default()
    };
    // No key is asked for: it would be of no use.
    let resolved = resolve(&settings, None, false, &|_| None).unwrap();
    assert!(matches!(resolved, Resolved::NoModel(NoModel::NoNetwork)));

    let client = ModelClient::new(resolved, Duration::from_secs(1), |text| text.into());
    let request = ModelRequest::new("summary", "Summarise.", "…", 500);
    let failure = client
        .complete(&request, &AtomicBool::new(false))
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::NoProvider);
    assert!(failure.message.contains("`network`"), "{failure}");
}
