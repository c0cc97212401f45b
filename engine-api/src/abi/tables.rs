//! The tables of functions that both sides agree on. What an engine and a host say to each other goes through
//! `call`, by name; a function of its own has only what must not wait for JSON. A new one goes last in its table,
//! and the side that calls it does without where the other lacks it.

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
    /// What the engine is, for a host that is this: both as JSON.
    pub describe: extern "C" fn(RStr<'_>) -> RString,
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
    pub open:
        unsafe extern "C" fn(*mut (), RStr<'_>, ServicesObject) -> RResult<EngineObject, RString>,
    /// Answers a store command, both as JSON.
    #[sabi(last_prefix_field)]
    pub manage: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
}

/// One session's engine, owned by whoever holds this and dropped through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct EngineObject {
    pub data: *mut (),
    pub table: EngineTableRef,
}

/// What can be done with an engine.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineTableRef)))]
#[sabi(missing_field(option))]
pub struct EngineTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    /// Calls a method by its name, with an argument as JSON and the messages that it is about.
    #[sabi(last_prefix_field)]
    pub call:
        unsafe extern "C" fn(*mut (), RStr<'_>, RStr<'_>, RSlice<'_, MessageView<'_>>) -> Answer,
}

/// The host's services, owned by whoever holds this and dropped through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct ServicesObject {
    pub data: *mut (),
    pub table: ServicesTableRef,
}

/// What can be done with the host's services.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = ServicesTableRef)))]
#[sabi(missing_field(option))]
pub struct ServicesTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    /// Calls a service by its name, with an argument as JSON.
    pub call: unsafe extern "C" fn(*const (), RStr<'_>, RStr<'_>) -> Answer,
    pub count_tokens: unsafe extern "C" fn(*const (), RStr<'_>) -> u64,
    #[sabi(last_prefix_field)]
    pub is_cancelled: unsafe extern "C" fn(*const ()) -> bool,
}

/// Has an object dropped by the side that made it.
macro_rules! dropped_through_table {
    ($($object:ident: $behind:literal;)*) => {$(
        #[doc = concat!("Behind the pointer is a ", $behind, ".")]
        impl Drop for $object {
            fn drop(&mut self) {
                // SAFETY: this owns the object, and this is the last use of it.
                unsafe { self.table.drop()(self.data) }
            }
        }

        // SAFETY: what is behind the pointer is `Send`.
        unsafe impl Send for $object {}
    )*};
}

dropped_through_table! {
    FactoryObject: "`Box<dyn EngineFactory>`";
    EngineObject: "`Box<dyn ContextEngine>`; the host makes one call at a time";
    ServicesObject: "`Arc<dyn HostServices>`";
}

// SAFETY: an `EngineFactory` is `Sync`, and is only ever used through a shared reference.
unsafe impl Sync for FactoryObject {}
// SAFETY: `HostServices` are `Sync`.
unsafe impl Sync for ServicesObject {}
