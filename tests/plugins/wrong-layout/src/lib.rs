//! A library with the right ABI version whose module has another layout than the host expects.

use abi_stable::library::RootModule;
use abi_stable::prefix_type::PrefixTypeTrait;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::RString;
use abi_stable::{StableAbi, export_root_module};

/// The version that this library lies about.
#[unsafe(no_mangle)]
pub extern "C" fn contexture_abi_version() -> u32 {
    1
}

/// Not the module of a plugin.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef)))]
pub struct PluginModule {
    /// A number where the host looks for a function.
    pub describe: u64,
    /// A function of another type.
    #[sabi(last_prefix_field)]
    pub create: extern "C" fn(u32) -> RString,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "contexture_engine";
    const NAME: &'static str = "contexture_engine";
    const VERSION_STRINGS: VersionStrings = abi_stable::package_version_strings!();
}

extern "C" fn create(_number: u32) -> RString {
    RString::new()
}

/// What `abi_stable` looks for.
#[export_root_module]
pub fn module() -> PluginModuleRef {
    PluginModule {
        describe: 7,
        create,
    }
    .leak_into_prefix()
}
