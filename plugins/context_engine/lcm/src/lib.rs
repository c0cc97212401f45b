//! The lossless engine as a plugin.

contexture_engine_api::export_engine!("lcm", factory contexture_lcm::Lcm);
