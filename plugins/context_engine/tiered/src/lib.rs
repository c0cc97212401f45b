//! The engine of three tiers as a plugin.

contexture_engine_api::export_engine!("tiered", contexture_tiered::Tiered);
