//! The plugin's side of the ABI.
//!
//! The macro [`export_engine!`](crate::export_engine) exports a module with two functions,
//! `describe` and `create`. The factory that `create` returns opens engines. Both are objects with
//! a table of functions, and the functions in those tables are here. Read [`create`] first, then
//! `open` and `call`, in the order in which a host calls them.
//!
//! Every function runs the engine's code inside `guarded`, so a panic becomes an error and does not
//! unwind into the host. The services that the host lends are called through its own table, as a
//! [`Carrier`].

use std::sync::Arc;

use abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};
use abi_stable::prefix_type::WithMetadata;
use abi_stable::std_types::{RResult, RSlice, RStr, RString};

use super::tables::{
    EngineObject, EngineTable, EngineTableRef, FactoryObject, FactoryTable, FactoryTableRef,
    PluginModuleRef, ServicesObject,
};
use super::{Answer, from_answer, guarded, rstr, to_answer};
use crate::about::HostInfo;
use crate::definition::EngineDefinition;
use crate::engine::{ContextEngine, EngineFactory};
use crate::error::EngineError;
use crate::message::MessageView;
use crate::protocol::{Carrier, Create, LentServices, Open, read, serve, write, write_error};
use crate::services::Services;

/// Exports the module of the engine that the static `$definition` describes. Only `export_engine!`
/// calls this.
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

            // `abi_stable` looks for the header of a library under this name.
            #[unsafe(export_name = "_1as_0lib_1header_0root_bmodule_bloader")]
            static HEADER: api::LibHeader = api::lib_header(root_module);
        };
    };
}

/// Returns the header of a library whose `root_module` loads a [`PluginModuleRef`]. The host checks
/// the layout of all types in it when it loads the library.
pub const fn lib_header(root_module: extern "C" fn() -> RootModuleResult) -> LibHeader {
    // SAFETY: `__export_module!` is the only caller, and its `root_module` returns a
    // `PluginModuleRef`.
    unsafe { LibHeader::from_constructor::<PluginModuleRef>(root_module, CheckTypeLayout::Yes) }
}

/// Describes the engine to a host. Both the host's information and the result are JSON text.
pub fn describe(definition: &EngineDefinition, host: RStr<'_>) -> RString {
    // A cdylib has its own copy of the standard library, and therefore its own panic hook.
    super::show_panics_plainly();
    let described = guarded(|| write(&definition.describe(&read::<HostInfo>(host.as_str())?)));
    // If the description fails, the host cannot read this text as one and shows it in its error.
    described.unwrap_or_else(|error| error.to_string()).into()
}

/// Makes the factory of the engine from a request in JSON text.
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

/// Boxes an object and returns a pointer to it, or the error as JSON text. The receiver drops it
/// through its table.
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

/// Drops an object that this side made.
///
/// # Safety
/// `data` must come from `Box::into_raw(Box<T>)` and must not be used again.
unsafe extern "C" fn drop_object<T>(data: *mut ()) {
    let dropped = guarded(|| {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(data.cast::<T>()) });
        Ok(())
    });
    // If a destructor panics, there is nobody to tell.
    drop(dropped);
}

/// Opens the engine of a session from a request in JSON text.
///
/// # Safety
/// `data` must come from `create` and must still be alive.
unsafe extern "C" fn open(
    data: *mut (),
    request: RStr<'_>,
    services: ServicesObject,
) -> RResult<EngineObject, RString> {
    let services = Services::new(Arc::new(LentServices(services)));
    object(guarded(|| {
        // SAFETY: guaranteed by the caller. A factory is only used through a shared reference.
        let factory = unsafe { &*data.cast::<Factory>() };
        let message: Open = read(request.as_str())?;
        factory.open(&message.request(services))
    }))
    .map(|data| EngineObject {
        data,
        table: EngineTableRef(ENGINE_TABLE.static_as_prefix()),
    })
}

/// Answers a store command. Both the command and the answer are JSON text.
///
/// # Safety
/// `data` must come from `create` and must still be alive.
unsafe extern "C" fn manage(data: *mut (), command: RStr<'_>) -> Answer {
    to_answer(guarded(|| {
        // SAFETY: guaranteed by the caller. A factory is only used through a shared reference.
        let factory = unsafe { &*data.cast::<Factory>() };
        write(&factory.manage(&read(command.as_str())?)?)
    }))
}

/// Calls a method of an engine by its name.
///
/// # Safety
/// `data` must come from `open` and must still be alive, and no other call on it may be in
/// progress.
unsafe extern "C" fn call(
    data: *mut (),
    method: RStr<'_>,
    argument: RStr<'_>,
    messages: RSlice<'_, MessageView<'_>>,
) -> Answer {
    to_answer(guarded(|| {
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: the object lives as long as `self`. The same holds for the calls below.
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
