//! The lossless engine `lcm` as a plugin. The engine itself is in the crate `contexture-lcm`.

contexture_engine_api::export_engine!("lcm", factory contexture_lcm::Lcm);
