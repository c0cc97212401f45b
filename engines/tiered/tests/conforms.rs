//! What every engine is held to.
#![allow(missing_docs)]

contexture_testkit::conforms!(contexture_engine_api::define_engine!(
    "tiered",
    contexture_tiered::Tiered
));
