//! The plugin's side: an engine behind a table of guarded functions.

use std::sync::Arc;

use abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};
use abi_stable::prefix_type::WithMetadata;
use abi_stable::std_types::{RResult, RSlice, RStr, RString};

use super::tables::{
    EngineObject, EngineTable, EngineTableRef, FactoryObject, FactoryTable, FactoryTableRef,
    PluginModuleRef, ServicesObject,
};
use super::view::MessageView;
use super::{Answer, from_answer, guarded, rstr, to_answer};
use crate::about::HostInfo;
use crate::definition::EngineDefinition;
use crate::engine::{ContextEngine, EngineFactory};
use crate::error::EngineError;
use crate::protocol::{Carrier, Create, LentServices, Open, read, serve, write, write_error};
use crate::services::Services;

/// Exports the module of the engine that the static `$definition` describes. Said by `export_engine!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __export_module {
    ($definition:ident) => {
        const _: () = {
            use $crate::__private as api;

            #[unsafe(no_mangle)]
            extern "C" fn contexture_abi_version() -> u32 {
                api::ABI_VERSION
            }

            extern "C" fn describe(host: api::RStr<'_>) -> api::RString {
                api::describe(&$definition, host)
            }

            extern "C" fn create(
                request: api::RStr<'_>,
            ) -> api::RResult<api::FactoryObject, api::RString> {
                api::create(&$definition, request)
            }

            const MODULE: &api::WithMetadata<api::PluginModule> =
                &api::WithMetadata::new(api::PluginModule { describe, create });

            fn module() -> api::PluginModuleRef {
                api::PluginModuleRef(MODULE.static_as_prefix())
            }

            extern "C" fn root_module() -> api::RootModuleResult {
                api::__call_root_module_loader(module)
            }

            // The name under which `abi_stable` looks for the header of a library.
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            static HEADER: api::LibHeader = api::lib_header(root_module);
        };
    };
}

/// The header of a library whose `root_module` loads a [`PluginModuleRef`].
pub const fn lib_header(root_module: extern "C" fn() -> RootModuleResult) -> LibHeader {
    // SAFETY: `__export_module!` is the only caller, and its `root_module` answers a `PluginModuleRef`.
    unsafe { LibHeader::from_constructor::<PluginModuleRef>(root_module, CheckTypeLayout::Yes) }
}

/// What the plugin says of itself to a host that is this, both as JSON.
pub fn describe(definition: &EngineDefinition, host: RStr<'_>) -> RString {
    // A library has a standard library of its own, and so a panic hook.
    super::show_panics_plainly();
    let described = guarded(|| write(&definition.describe(&read::<HostInfo>(host.as_str())?)));
    // What is no description is shown as what it is.
    described.unwrap_or_else(|error| error.to_string()).into()
}

/// Makes the engine's factory, from a request as JSON.
pub fn create(definition: &EngineDefinition, request: RStr<'_>) -> RResult<FactoryObject, RString> {
    object(guarded(|| {
        let message: Create = read(request.as_str())?;
        definition.create(&message.request())
    }))
    .map(|data| FactoryObject {
        data,
        table: FactoryTableRef(FACTORY_TABLE.static_as_prefix()),
    })
}

/// An object as it is handed out.
fn object<T>(made: Result<T, EngineError>) -> RResult<*mut (), RString> {
    match made {
        Ok(object) => RResult::ROk(Box::into_raw(Box::new(object)).cast()),
        Err(error) => RResult::RErr(write_error(&error).into()),
    }
}

type Factory = Box<dyn EngineFactory>;
type Engine = Box<dyn ContextEngine>;

const FACTORY_TABLE: &WithMetadata<FactoryTable> = &WithMetadata::new(FactoryTable {
    drop: drop_object::<Factory>,
    open,
    manage,
});

const ENGINE_TABLE: &WithMetadata<EngineTable> = &WithMetadata::new(EngineTable {
    drop: drop_object::<Engine>,
    call,
});

/// # Safety
/// `data` came from `Box::into_raw(Box<T>)` and is not used again.
unsafe extern "C" fn drop_object<T>(data: *mut ()) {
    let dropped = guarded(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(data.cast::<T>()) });
        Ok(())
    });
    // A destructor that panics has nobody to tell.
    drop(dropped);
}

/// # Safety
/// `data` came from `create` and is still alive.
unsafe extern "C" fn open(
    data: *mut (),
    request: RStr<'_>,
    services: ServicesObject,
) -> RResult<EngineObject, RString> {
    let services = Services::new(Arc::new(LentServices(services)));
    object(guarded(|| {
        // SAFETY: the caller's promise; factories are only ever used through a shared reference.
        let factory = unsafe { &*data.cast::<Factory>() };
        let message: Open = read(request.as_str())?;
        factory.open(&message.request(services))
    }))
    .map(|data| EngineObject {
        data,
        table: EngineTableRef(ENGINE_TABLE.static_as_prefix()),
    })
}

/// # Safety
/// As [`open`].
unsafe extern "C" fn manage(data: *mut (), command: RStr<'_>) -> Answer {
    to_answer(guarded(|| {
        // SAFETY: the caller's promise; factories are only ever used through a shared reference.
        let factory = unsafe { &*data.cast::<Factory>() };
        write(&factory.manage(&read(command.as_str())?)?)
    }))
}

/// # Safety
/// `data` came from `open`, is still alive, and no other call on it is under way.
unsafe extern "C" fn call(
    data: *mut (),
    method: RStr<'_>,
    argument: RStr<'_>,
    messages: RSlice<'_, MessageView<'_>>,
) -> Answer {
    to_answer(guarded(|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { &mut *data.cast::<Engine>() };
        serve(
            engine.as_mut(),
            method.as_str(),
            argument.as_str(),
            messages.as_slice(),
        )
    }))
}

impl Carrier for ServicesObject {
    fn call(
        &self,
        method: &str,
        argument: &str,
        _messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        // SAFETY: the object lives as long as `self`; so below.
        from_answer(unsafe { self.table.call()(self.data, rstr(method), rstr(argument)) })
            .map(RString::into_string)
    }

    fn count_tokens(&self, text: &str) -> Option<u64> {
        // SAFETY: see `call`.
        Some(unsafe { self.table.count_tokens()(self.data, rstr(text)) })
    }

    fn is_cancelled(&self) -> Option<bool> {
        // SAFETY: see `call`.
        Some(unsafe { self.table.is_cancelled()(self.data) })
    }
}
