//! The engine of two layers as a plugin.

contexture_engine_api::export_engine!("two-layer", contexture_two_layer::TwoLayer);
