//! The engine `virtual-files` as a plugin. The engine itself is in the crate
//! `contexture-virtual-files`.

contexture_engine_api::export_engine!("virtual-files", contexture_virtual_files::VirtualFiles);
