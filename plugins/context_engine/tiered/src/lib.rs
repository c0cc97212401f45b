//! The engine `tiered` as a plugin. The engine itself is in the crate `contexture-tiered`.

contexture_engine_api::export_engine!("tiered", contexture_tiered::Tiered);
