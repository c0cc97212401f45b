//! The tables of functions that both sides agree on.
//!
//! A plugin exports a [`PluginModule`]. It makes a [`FactoryObject`], which opens an
//! [`EngineObject`] for each session and receives a [`ServicesObject`] for it. Each object is a
//! pointer with a table of functions, and dropping it calls the table's `drop`, so that it is freed
//! by the side that allocated it.
//!
//! Most calls go through a single function `call` with a method name and JSON text. A function of
//! its own exists only if a call must not wait for JSON. To extend a table, add the function at its
//! end. If the other side lacks it, the caller goes on without it.

use abi_stable::StableAbi;
use abi_stable::library::RootModule;
use abi_stable::package_version_strings;
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RResult, RSlice, RStr, RString};

use super::Answer;
use crate::message::MessageView;

/// The module that a plugin's library exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = PluginModuleRef)))]
#[sabi(missing_field(option))]
pub struct PluginModule {
    /// Describes the engine to a host. The argument is the host's information and the result is the
    /// engine's description, both as JSON text.
    pub describe: extern "C" fn(RStr<'_>) -> RString,
    /// Makes the factory from a request in JSON text. If that fails, the result is an error in JSON
    /// text.
    #[sabi(last_prefix_field)]
    pub create: extern "C" fn(RStr<'_>) -> RResult<FactoryObject, RString>,
}

impl RootModule for PluginModuleRef {
    abi_stable::declare_root_module_statics! {PluginModuleRef}
    const BASE_NAME: &'static str = "contexture_engine";
    const NAME: &'static str = "contexture_engine";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// A factory. Whoever holds the object owns it and drops it through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct FactoryObject {
    /// A pointer to a `Box<dyn EngineFactory>`. The box is boxed once more, because a trait object
    /// does not fit into one pointer.
    pub data: *mut (),
    /// The functions of the factory.
    pub table: FactoryTableRef,
}

/// The functions of a factory.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = FactoryTableRef)))]
#[sabi(missing_field(option))]
pub struct FactoryTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    /// Opens the engine of a session. The arguments are the factory, a request in JSON text and the
    /// services for the session.
    pub open:
        unsafe extern "C" fn(*mut (), RStr<'_>, ServicesObject) -> RResult<EngineObject, RString>,
    /// Answers a store command. Command and answer are JSON text.
    #[sabi(last_prefix_field)]
    pub manage: unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer,
}

/// The engine of one session. Whoever holds the object owns it and drops it through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct EngineObject {
    pub data: *mut (),
    pub table: EngineTableRef,
}

/// The functions of an engine.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EngineTableRef)))]
#[sabi(missing_field(option))]
pub struct EngineTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    /// Calls a method by its name. The argument is JSON text, and the messages are borrowed until
    /// the call returns.
    #[sabi(last_prefix_field)]
    pub call:
        unsafe extern "C" fn(*mut (), RStr<'_>, RStr<'_>, RSlice<'_, MessageView<'_>>) -> Answer,
}

/// The services that a host lends for one session. The engine's side owns the object and drops it
/// through its table.
#[repr(C)]
#[derive(StableAbi)]
pub struct ServicesObject {
    pub data: *mut (),
    pub table: ServicesTableRef,
}

/// The functions of the host's services.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = ServicesTableRef)))]
#[sabi(missing_field(option))]
pub struct ServicesTable {
    pub drop: unsafe extern "C" fn(*mut ()),
    /// Calls a service by its name, with an argument in JSON text.
    pub call: unsafe extern "C" fn(*const (), RStr<'_>, RStr<'_>) -> Answer,
    // An engine may call these two many times a second, so they bypass JSON.
    pub count_tokens: unsafe extern "C" fn(*const (), RStr<'_>) -> u64,
    #[sabi(last_prefix_field)]
    pub is_cancelled: unsafe extern "C" fn(*const ()) -> bool,
}

/// Implements `Drop` for an object, so that the side that made it frees it.
macro_rules! dropped_through_table {
    ($($object:ident: $behind:literal;)*) => {$(
        #[doc = concat!("Behind the pointer is a ", $behind, ".")]
        impl Drop for $object {
            fn drop(&mut self) {
                // SAFETY: `self` owns the object, and this is its last use.
                unsafe { self.table.drop()(self.data) }
            }
        }

        // SAFETY: the value behind the pointer is `Send`.
        unsafe impl Send for $object {}
    )*};
}

dropped_through_table! {
    FactoryObject: "`Box<dyn EngineFactory>`";
    EngineObject: "`Box<dyn ContextEngine>`; the host makes one call at a time";
    ServicesObject: "`Arc<dyn HostServices>`";
}

// SAFETY: an `EngineFactory` is `Sync` and is only used through a shared reference.
unsafe impl Sync for FactoryObject {}
// SAFETY: `HostServices` is `Sync`.
unsafe impl Sync for ServicesObject {}
