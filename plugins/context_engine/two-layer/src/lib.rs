//! The engine `two-layer` as a plugin. The engine itself is in the crate `contexture-two-layer`.

contexture_engine_api::export_engine!("two-layer", contexture_two_layer::TwoLayer);
