//! A library that says it speaks version 99 of the plugin ABI, and exports nothing else.

/// The version.
#[unsafe(no_mangle)]
pub extern "C" fn contexture_abi_version() -> u32 {
    99
}
