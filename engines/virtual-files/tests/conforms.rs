//! What every engine is held to.
#![allow(missing_docs)]

contexture_testkit::conforms!(contexture_engine_api::define_engine!(
    "virtual-files",
    contexture_virtual_files::VirtualFiles
));
