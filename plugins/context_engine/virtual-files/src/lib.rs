//! The engine of virtual files as a plugin.

contexture_engine_api::export_engine!("virtual-files", contexture_virtual_files::VirtualFiles);
