//! The plugin's side: an engine behind a table of guarded functions.

use std::path::PathBuf;
use std::sync::Arc;

use abi_stable::library::{CheckTypeLayout, LibHeader, RootModuleResult};
use abi_stable::prefix_type::WithMetadata;
use abi_stable::std_types::{RResult, RSlice, RStr, RString};
use serde::{Deserialize, Serialize};

use super::tables::{
    EngineObject, EngineTable, EngineTableRef, FactoryObject, FactoryTable, FactoryTableRef,
    PluginModuleRef, ServicesObject,
};
use super::view::MessageView;
use super::{Answer, error_text, from_answer, guarded, read, rstr, to_answer, write};
use crate::compaction::{CompressOrder, CompressRequest, CurrentCompaction};
use crate::definition::EngineDefinition;
use crate::delivery::{Cut, Delivery};
use crate::engine::{ContextEngine, EngineFactory, FactoryRequest};
use crate::error::EngineError;
use crate::message::MessageId;
use crate::model::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
use crate::services::{HostServices, LogLevel, OpenRequest, Services};
use crate::window::WindowState;

/// A plugin's description of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineDescription {
    /// The engine's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// One line on what it does.
    pub description: String,
}

/// A [`Delivery`] without its messages, which are lent.
#[derive(Serialize, Deserialize)]
pub(crate) struct DeliveryMessage {
    pub(crate) cut: Option<Cut>,
    pub(crate) revisions: Vec<(MessageId, MessageId)>,
    pub(crate) chain: u64,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct CreateMessage {
    pub(crate) settings: String,
    pub(crate) data_dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct OpenMessage {
    pub(crate) session: String,
    pub(crate) settings: String,
    pub(crate) data_dir: PathBuf,
    pub(crate) window: WindowState,
    pub(crate) compaction: Option<CurrentCompaction>,
}

pub(crate) type AnswerToCall = Result<ModelAnswer, ModelFailure>;

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

            extern "C" fn describe() -> api::RString {
                api::describe(&$definition)
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

/// What the plugin says of itself, as JSON.
pub fn describe(definition: &EngineDefinition) -> RString {
    write(&EngineDescription {
        name: definition.name.to_owned(),
        version: definition.version.to_owned(),
        description: definition.description.to_owned(),
    })
    .unwrap_or_default()
    .into()
}

/// Makes the engine's factory, from a request as JSON.
pub fn create(definition: &EngineDefinition, request: RStr<'_>) -> RResult<FactoryObject, RString> {
    // A library has a standard library of its own, and so a panic hook.
    super::show_panics_plainly();
    let made = guarded(|| {
        let message: CreateMessage = read(request.as_str())?;
        definition.create(&FactoryRequest {
            settings: &message.settings,
            data_dir: &message.data_dir,
        })
    });
    match made {
        Ok(factory) => RResult::ROk(FactoryObject {
            data: Box::into_raw(Box::new(factory)).cast(),
            table: FactoryTableRef(FACTORY_TABLE.static_as_prefix()),
        }),
        Err(error) => RResult::RErr(error_text(&error)),
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
    should_compress,
    compress,
    observed_through,
    observe,
    update_usage,
    should_compress_preflight,
    defers_preflight_to_reported_usage,
    has_content_to_compress,
    prune_tool_results,
    selects,
    select,
    committed,
    discarded,
    recall,
    tools,
    call_tool,
    turn_complete,
    background,
    background_done,
    model_changed,
    reset,
    end,
    status,
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
    let opened = guarded(|| {
        // SAFETY: the caller's promise; factories are only ever used through a shared reference.
        let factory = unsafe { &*data.cast::<Factory>() };
        let message: OpenMessage = read(request.as_str())?;
        factory.open(&OpenRequest {
            session: &message.session,
            settings: &message.settings,
            data_dir: &message.data_dir,
            services,
            window: &message.window,
            compaction: message.compaction.as_ref(),
        })
    });
    match opened {
        Ok(engine) => RResult::ROk(EngineObject {
            data: Box::into_raw(Box::new(engine)).cast(),
            table: EngineTableRef(ENGINE_TABLE.static_as_prefix()),
        }),
        Err(error) => RResult::RErr(error_text(&error)),
    }
}

/// # Safety
/// As [`open`].
unsafe extern "C" fn manage(data: *mut (), command: RStr<'_>) -> Answer {
    to_answer(guarded(|| {
        // SAFETY: the caller's promise; factories are only ever used through a shared reference.
        let factory = unsafe { &*data.cast::<Factory>() };
        factory.manage(&read(command.as_str())?)
    }))
}

/// Calls the engine at `data` and guards the call.
///
/// # Safety
/// `data` came from `open`, is still alive, and no other call on it is under way.
unsafe fn call<T: Serialize>(
    data: *mut (),
    run: impl FnOnce(&mut dyn ContextEngine) -> Result<T, EngineError>,
) -> Answer {
    to_answer(guarded(|| {
        // SAFETY: the caller's promise.
        let engine = unsafe { &mut *data.cast::<Engine>() };
        run(engine.as_mut())
    }))
}

/// Defines table functions that take JSON, with the promise of [`call`]. `_` stands for no argument.
macro_rules! json_functions {
    ($($name:ident($argument:tt $(: $type:ty)?) => |$engine:ident| $body:expr;)*) => {$(
        unsafe extern "C" fn $name(data: *mut (), argument: RStr<'_>) -> Answer {
            // SAFETY: the host calls this with an engine that it holds, one call at a time.
            unsafe {
                call(data, |$engine| {
                    json_functions!(@read argument $argument $(: $type)?);
                    $body
                })
            }
        }
    )*};
    (@read $from:ident _) => { let _ = $from; };
    (@read $from:ident $argument:ident : $type:ty) => { let $argument: $type = read($from.as_str())?; };
}

/// Defines table functions that take messages and JSON, with the promise of [`call`].
macro_rules! message_functions {
    ($($name:ident($messages:ident, $argument:ident: $type:ty) => |$engine:ident| $body:expr;)*) => {$(
        unsafe extern "C" fn $name(
            data: *mut (),
            $messages: RSlice<'_, MessageView<'_>>,
            argument: RStr<'_>,
        ) -> Answer {
            // SAFETY: the host calls this with an engine that it holds, one call at a time.
            unsafe {
                call(data, |$engine| {
                    let $argument: $type = read(argument.as_str())?;
                    let $messages = $messages.as_slice();
                    $body
                })
            }
        }
    )*};
}

message_functions! {
    compress(messages, order: CompressOrder) => |engine| engine.compress(&CompressRequest { messages, order: &order });
    prune_tool_results(messages, order: CompressOrder) => |engine| engine.prune_tool_results(&CompressRequest { messages, order: &order });
    select(messages, order: CompressOrder) => |engine| engine.select(&CompressRequest { messages, order: &order });
    observe(messages, told: DeliveryMessage) => |engine| engine.observe(
        &Delivery::new(messages, told.chain).after(told.cut).with_revisions(&told.revisions)
    );
    has_content_to_compress(messages, _nothing: ()) => |engine| Ok(engine.has_content_to_compress(messages));
}

json_functions! {
    should_compress(window: WindowState) => |engine| Ok(engine.should_compress(&window));
    should_compress_preflight(window: WindowState) => |engine| Ok(engine.should_compress_preflight(&window));
    defers_preflight_to_reported_usage(window: WindowState) => |engine| Ok(engine.defers_preflight_to_reported_usage(&window));
    selects(_) => |engine| Ok(engine.selects());
    observed_through(_) => |engine| Ok(engine.observed_through());
    update_usage(usage: crate::Usage) => |engine| { engine.update_usage(&usage); Ok(()) };
    committed(compaction: u64) => |engine| { engine.committed(compaction); Ok(()) };
    discarded(told: (u64, String)) => |engine| { engine.discarded(told.0, &told.1); Ok(()) };
    recall(ids: Vec<MessageId>) => |engine| engine.recall(&ids);
    tools(_) => |engine| Ok(engine.tools());
    call_tool(asked: crate::ToolCall) => |engine| engine.call_tool(&asked);
    turn_complete(_) => |engine| { engine.turn_complete(); Ok(()) };
    background(_) => |engine| Ok(engine.background());
    background_done(answered: (u64, AnswerToCall)) => |engine| { engine.background_done(answered.0, answered.1); Ok(()) };
    model_changed(window: WindowState) => |engine| { engine.model_changed(&window); Ok(()) };
    reset(_) => |engine| engine.reset();
    end(_) => |engine| { engine.end(); Ok(()) };
    status(_) => |engine| Ok(engine.status());
}

/// The host's services as a plugin holds them.
struct LentServices(ServicesObject);

// SAFETY: behind the pointer is an `Arc<dyn HostServices>`, and `HostServices` is `Send + Sync`.
unsafe impl Send for LentServices {}
// SAFETY: as for `Send`.
unsafe impl Sync for LentServices {}

impl Drop for LentServices {
    fn drop(&mut self) {
        // SAFETY: this owns the object, and this is the last use of it.
        unsafe { self.0.table.drop()(self.0.data) }
    }
}

fn failure(error: EngineError) -> ModelFailure {
    match error {
        EngineError::Model(failure) => failure,
        other => ModelFailure::new(FailureKind::Other, other.to_string()),
    }
}

impl HostServices for LentServices {
    fn model(&self) -> Option<ModelInfo> {
        // SAFETY: the object lives as long as `self`; so in every call below.
        from_answer(unsafe { self.0.table.model()(self.0.data) }).unwrap_or_default()
    }

    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        let request = write(request).map_err(failure)?;
        // SAFETY: see `model`.
        from_answer(unsafe { self.0.table.complete()(self.0.data, rstr(&request)) })
            .map_err(failure)
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let answers: Result<Vec<AnswerToCall>, EngineError> = write(&requests).and_then(|text| {
            // SAFETY: see `model`.
            from_answer(unsafe { self.0.table.complete_many()(self.0.data, rstr(&text)) })
        });
        match answers {
            Ok(answers) if answers.len() == requests.len() => answers,
            Ok(_) => refuse_all(requests, "the host answered another number of calls"),
            Err(error) => refuse_all(requests, &error.to_string()),
        }
    }

    fn count_tokens(&self, text: &str) -> u64 {
        // SAFETY: see `model`.
        unsafe { self.0.table.count_tokens()(self.0.data, rstr(text)) }
    }

    fn log(&self, level: LogLevel, message: &str) {
        let level = write(&level).unwrap_or_default();
        // SAFETY: see `model`.
        unsafe { self.0.table.log()(self.0.data, rstr(&level), rstr(message)) }
    }

    fn is_cancelled(&self) -> bool {
        // SAFETY: see `model`.
        unsafe { self.0.table.is_cancelled()(self.0.data) }
    }

    fn now_ms(&self) -> i64 {
        // SAFETY: see `model`.
        unsafe { self.0.table.now_ms()(self.0.data) }
    }
}

fn refuse_all(requests: &[ModelRequest], why: &str) -> Vec<AnswerToCall> {
    requests
        .iter()
        .map(|_| Err(ModelFailure::new(FailureKind::Other, why)))
        .collect()
}
