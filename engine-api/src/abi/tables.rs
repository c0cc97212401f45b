//! The tables of functions that both sides agree on. A new function goes last in its table, and the
//! side that calls it does without where the other lacks it.

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::package_version_strings;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RResult, RSlice, RStr, RString};

use super::Answer;
use super::view::MessageView;

/// What a plugin's library exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef)))]
#[sabi(missing_field(option))]
pub struct PluginModule {
    /// Name, version and description, as JSON.
    pub describe: extern "C" fn() -> RString,
    /// Makes the factory, from a request as JSON.
    #[sabi(last_prefix_field)]
    pub create: extern "C" fn(RStr<'_>) -> RResult<FactoryObject, RString>,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "contexture_engine";
    const NAME: &'static str = "contexture_engine";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// A factory, owned by whoever holds this and dropped through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct FactoryObject {
    /// A `Box<dyn EngineFactory>`, boxed once more.
    pub data: *mut (),
    /// What can be done with it.
    pub table: FactoryTableRef,
}

/// What can be done with a factory.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = FactoryTableRef)))]
#[sabi(missing_field(option))]
pub struct FactoryTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    /// Opens a session's engine, from a request as JSON.
    #[sabi(last_prefix_field)]
    pub open:
        unsafe extern "C" fn(*mut (), RStr<'_>, ServicesObject) -> RResult<EngineObject, RString>,

    pub manage: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
}

/// One session's engine, owned by whoever holds this and dropped through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct EngineObject {
    pub data: *mut (),
    pub table: EngineTableRef,
}

/// One function for each method of `ContextEngine`: what an engine must have comes first, what has a
/// default body may be missing.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineTableRef)))]
#[sabi(missing_field(option))]
pub struct EngineTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    pub should_compress: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    #[sabi(last_prefix_field)]
    pub compress: unsafe extern "C" fn(*mut (), RSlice<'_, MessageView<'_>>, RStr<'_>) -> Answer,

    pub observed_through: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub observe: unsafe extern "C" fn(*mut (), RSlice<'_, MessageView<'_>>, RStr<'_>) -> Answer,
    pub update_usage: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub should_compress_preflight: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub defers_preflight_to_reported_usage: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub has_content_to_compress:
        unsafe extern "C" fn(*mut (), RSlice<'_, MessageView<'_>>, RStr<'_>) -> Answer,
    pub prune_tool_results:
        unsafe extern "C" fn(*mut (), RSlice<'_, MessageView<'_>>, RStr<'_>) -> Answer,
    pub selects: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub select: unsafe extern "C" fn(*mut (), RSlice<'_, MessageView<'_>>, RStr<'_>) -> Answer,
    pub committed: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub discarded: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub recall: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub tools: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub call_tool: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub turn_complete: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub background: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub background_done: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub model_changed: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub reset: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub end: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
    pub status: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
}

/// The host's services, owned by whoever holds this and dropped through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct ServicesObject {
    pub data: *mut (),
    pub table: ServicesTableRef,
}

/// One function for each method of `HostServices`.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = ServicesTableRef)))]
#[sabi(missing_field(option))]
pub struct ServicesTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    pub model: unsafe extern "C" fn(*const ()) -> Answer,
    pub complete: unsafe extern "C" fn(*const (), RStr<'_>) -> Answer,
    pub complete_many: unsafe extern "C" fn(*const (), RStr<'_>) -> Answer,
    pub count_tokens: unsafe extern "C" fn(*const (), RStr<'_>) -> u64,
    pub log: unsafe extern "C" fn(*const (), RStr<'_>, RStr<'_>),
    pub is_cancelled: unsafe extern "C" fn(*const ()) -> bool,
    #[sabi(last_prefix_field)]
    pub now_ms: unsafe extern "C" fn(*const ()) -> i64,
}
