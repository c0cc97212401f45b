//! The host's side: a library opened, checked and turned into an [`EngineFactory`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::{
    CheckingGlobals, check_layout_compatibility_with_globals,
};
use abi_stable::library::{LibHeader, lib_header_from_path};
use abi_stable::prefix_type::WithMetadata;
use abi_stable::std_types::{RResult, RSlice, RStr};
use libloading::Library;

use super::exit::note_loaded;
use super::export::{AnswerToCall, CreateMessage, DeliveryMessage, EngineDescription, OpenMessage};
use super::tables::{
    EngineObject, EngineTableRef, FactoryObject, PluginModuleRef, ServicesObject, ServicesTable,
    ServicesTableRef,
};
use super::{ABI_VERSION, Answer, from_answer, guarded, read, read_error, rstr, to_answer, write};
use crate::background::BackgroundCall;
use crate::compaction::{Compaction, CompressRequest, Outcome};
use crate::delivery::Delivery;
use crate::engine::{ContextEngine, EngineFactory, FactoryRequest};
use crate::error::EngineError;
use crate::message::{MessageId, MessageView, Observed};
use crate::model::{ModelAnswer, ModelFailure, ModelRequest};
use crate::services::{HostServices, LogLevel, OpenRequest};
use crate::store::StoreCommand;
use crate::tool::{ToolCall, ToolSpec};
use crate::window::{Decision, Usage, WindowState};

/// Why a library is not a plugin that this host can use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be opened as a library.
    #[error("{path}: cannot be opened as a library: {cause}")]
    Open {
        /// The library.
        path: PathBuf,
        /// What the system said.
        cause: String,
    },
    /// The file ends before what its header promises.
    #[error(
        "{path}: is cut short (its header promises {promised} bytes, it has {found}); build or copy it again"
    )]
    CutShort {
        /// The library.
        path: PathBuf,
        /// What its header promises, in bytes.
        promised: u64,
        /// What it has, in bytes.
        found: u64,
    },
    /// The library is no plugin.
    #[error(
        "{path}: exports no `{symbol}`, so it is no Contexture plugin; a plugin crate is a cdylib that \
         says `export_engine!`"
    )]
    NotAPlugin {
        /// The library.
        path: PathBuf,
        /// What was looked for.
        symbol: &'static str,
    },
    /// Another major version of the ABI.
    #[error(
        "{path}: was built for version {found} of the plugin ABI and this host speaks version \
         {ABI_VERSION}; rebuild it with contexture-engine-api {ABI_VERSION}.x"
    )]
    AbiVersion {
        /// The library.
        path: PathBuf,
        /// The version that it answered.
        found: u32,
    },
    /// The same version, but another layout.
    #[error(
        "{path}: its types do not have the layout that this host expects: {difference}; rebuild \
             it with the host's version of contexture-engine-api"
    )]
    Layout {
        /// The library.
        path: PathBuf,
        /// The first difference, in a line or a few.
        difference: String,
        /// Everything the layout check said, for a log: it can be 40 KB.
        report: String,
    },
    /// The library failed while its module was made.
    #[error("{path}: failed while loading: {cause}")]
    Init {
        /// The library.
        path: PathBuf,
        /// What happened.
        cause: String,
    },
}

/// A plugin whose library is loaded and fits. It is never unloaded.
pub struct Plugin {
    description: EngineDescription,
    module: PluginModuleRef,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plugin")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

impl Plugin {
    /// Opens a library, checks its ABI version and then its layout, and reads what it says of itself.
    /// Opening runs the library's constructors: check a pinned hash before.
    ///
    /// # Errors
    /// [`LoadError`], for each way in which it does not fit.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::load_copy(path, path)
    }

    /// As [`load`](Self::load), from a copy of the library at `path`, which is what messages call it.
    ///
    /// # Errors
    /// As there.
    pub fn load_copy(path: &Path, copy: &Path) -> Result<Self, LoadError> {
        note_loaded(path);
        check_complete(path, copy)?;
        check_abi_version(path, copy)?;
        let header = lib_header_from_path(copy).map_err(|error| LoadError::Init {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        check_layout(path, header)?;
        // SAFETY: the layout was checked just above.
        let module: PluginModuleRef = unsafe { header.init_root_module_with_unchecked_layout() }
            .map_err(|error| LoadError::Init {
                path: path.to_owned(),
                cause: error.to_string(),
            })?;
        let description = read(module.describe()().as_str()).map_err(|error| LoadError::Init {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        Ok(Self {
            description,
            module,
        })
    }

    /// What the plugin says of itself.
    pub fn description(&self) -> &EngineDescription {
        &self.description
    }

    /// Makes the engine's factory.
    ///
    /// # Errors
    /// As [`EngineFactory::create`], and [`EngineError::Panicked`].
    pub fn create(
        &self,
        request: &FactoryRequest<'_>,
    ) -> Result<Box<dyn EngineFactory>, EngineError> {
        let request = write(&CreateMessage {
            settings: request.settings.to_owned(),
            data_dir: request.data_dir.to_owned(),
        })?;
        match self.module.create()(rstr(&request)) {
            RResult::ROk(object) => Ok(Box::new(PluginFactory(object))),
            RResult::RErr(text) => Err(read_error(text.as_str())),
        }
    }
}

/// Refuses an ELF file that ends before its section headers, which linkers put last. Opening one that
/// was cut (by a full disk, say) ends the process with a bus error instead of an error.
fn check_complete(path: &Path, copy: &Path) -> Result<(), LoadError> {
    let cannot_open = |error: std::io::Error| LoadError::Open {
        path: path.to_owned(),
        cause: error.to_string(),
    };
    let mut file = std::fs::File::open(copy).map_err(cannot_open)?;
    let found = file.metadata().map_err(cannot_open)?.len();
    let mut header = [0; 64];
    if std::io::Read::read_exact(&mut file, &mut header).is_err() {
        // Too short to be a library: the system's loader says so without harm.
        return Ok(());
    }
    const ELF_64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
    if !header.starts_with(ELF_64_LITTLE_ENDIAN) {
        return Ok(());
    }
    // `e_shoff`, and `e_shentsize` times `e_shnum`, of the ELF specification's file header.
    let number = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let promised =
        number(&header[40..48]).saturating_add(number(&header[58..60]) * number(&header[60..62]));
    if promised > found {
        return Err(LoadError::CutShort {
            path: path.to_owned(),
            promised,
            found,
        });
    }
    Ok(())
}

fn check_abi_version(path: &Path, copy: &Path) -> Result<(), LoadError> {
    const SYMBOL: &str = "contexture_abi_version";
    // SAFETY: opening a library runs its constructors. In-process plugins are trusted code, and only
    // one that the configuration names is ever opened.
    let library = unsafe { Library::new(copy) }.map_err(|error| {
        let cause = std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string);
        // The loader names what it was given, which nobody else knows.
        let given = format!("{}: ", copy.display());
        LoadError::Open {
            path: path.to_owned(),
            cause: cause.strip_prefix(&given).unwrap_or(&cause).to_owned(),
        }
    })?;
    // SAFETY: a symbol of this name has this type in every version of the ABI.
    let version = unsafe { library.get::<extern "C" fn() -> u32>(SYMBOL) }
        .map(|answer| answer())
        .map_err(|_| LoadError::NotAPlugin {
            path: path.to_owned(),
            symbol: SYMBOL,
        })?;
    // Never unloaded: what it handed out may live in any thread, and not every platform survives it.
    std::mem::forget(library);
    if version == ABI_VERSION {
        Ok(())
    } else {
        Err(LoadError::AbiVersion {
            path: path.to_owned(),
            found: version,
        })
    }
}

/// Accepts a layout that is compatible in either direction: a newer host has functions that an older
/// plugin lacks, and does without them; a newer plugin has some that an older host never calls.
fn check_layout(path: &Path, header: &'static LibHeader) -> Result<(), LoadError> {
    let Some(theirs) = header.layout() else {
        return Err(LoadError::Layout {
            path: path.to_owned(),
            difference: "it carries no description of its layout".to_owned(),
            report: String::new(),
        });
    };
    let ours = <PluginModuleRef as StableAbi>::LAYOUT;
    // Globals of its own for each check: the shared ones also hold plugins to each other, and an older
    // and a newer plugin in one process need not know each other's functions.
    let check = |interface, implementation| {
        check_layout_compatibility_with_globals(interface, implementation, &CheckingGlobals::new())
    };
    check(ours, theirs)
        .or_else(|first| check(theirs, ours).map_err(|_| first))
        .map_err(|errors| {
            let report = errors.to_string();
            LoadError::Layout {
                path: path.to_owned(),
                difference: first_difference(&report),
                report,
            }
        })
}

/// The block of a layout report that says what differs: the type that the report was inside of, and
/// its first `Error:`.
fn first_difference(report: &str) -> String {
    let Some(at) = report.find("Error:") else {
        return "the report names no difference".to_owned();
    };
    let within = report[..at]
        .rfind("Layout of expected type:")
        .and_then(|start| {
            report[start..at]
                .lines()
                .find_map(|line| line.trim().strip_prefix("type:"))
        })
        .unwrap_or("the module");
    let block: Vec<&str> = report[at..]
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("---"))
        .filter(|line| !line.is_empty())
        .take(8)
        .collect();
    format!("in `{within}`: {}", block.join(" "))
        .chars()
        .take(600)
        .collect()
}

struct PluginFactory(FactoryObject);

// SAFETY: behind the pointer is a `Box<dyn EngineFactory>`, which is `Send + Sync`.
unsafe impl Send for PluginFactory {}
// SAFETY: as for `Send`; the factory is only ever used through a shared reference.
unsafe impl Sync for PluginFactory {}

impl Drop for PluginFactory {
    fn drop(&mut self) {
        // SAFETY: this owns the object, and this is the last use of it.
        unsafe { self.0.table.drop()(self.0.data) }
    }
}

impl EngineFactory for PluginFactory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "making a plugin's factory without its library".to_owned(),
        ))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let message = write(&OpenMessage {
            session: request.session.to_owned(),
            settings: request.settings.to_owned(),
            data_dir: request.data_dir.to_owned(),
            window: request.window.clone(),
            compaction: request.compaction.cloned(),
        })?;
        let services = lend(Arc::clone(request.services.host()));
        // SAFETY: the object is alive for as long as `self`.
        match unsafe { self.0.table.open()(self.0.data, rstr(&message), services) } {
            RResult::ROk(object) => Ok(Box::new(PluginEngine(object))),
            RResult::RErr(text) => Err(read_error(text.as_str())),
        }
    }

    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        let Some(manage) = self.0.table.manage() else {
            return Err(EngineError::Unsupported(
                "keeping sessions, as far as this version of the plugin says,".to_owned(),
            ));
        };
        let command = write(command)?;
        // SAFETY: the object is alive for as long as `self`.
        from_answer(unsafe { manage(self.0.data, rstr(&command)) })
    }
}

/// A session's engine on the other side of the boundary.
struct PluginEngine(EngineObject);

// SAFETY: behind the pointer is a `Box<dyn ContextEngine>`, which is `Send`; every call takes the
// engine's lock on the host's side, so there is one at a time.
unsafe impl Send for PluginEngine {}

impl Drop for PluginEngine {
    fn drop(&mut self) {
        // SAFETY: this owns the object, and this is the last use of it.
        unsafe { self.0.table.drop()(self.0.data) }
    }
}

type JsonFunction = unsafe extern "C" fn(*mut (), RStr<'_>) -> Answer;
type MessageFunction =
    unsafe extern "C" fn(*mut (), RSlice<'_, MessageView<'_>>, RStr<'_>) -> Answer;

impl PluginEngine {
    fn table(&self) -> EngineTableRef {
        self.0.table
    }

    /// Calls a function of the table. One that this plugin is too old to have is `None`, and gets the
    /// answer of the method's default body.
    fn ask<A: serde::Serialize, T: serde::de::DeserializeOwned>(
        &self,
        function: Option<JsonFunction>,
        argument: &A,
        default: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let Some(function) = function else {
            return default();
        };
        let argument = write(argument)?;
        // SAFETY: the object is alive for as long as `self`, and the host makes one call at a time.
        from_answer(unsafe { function(self.0.data, rstr(&argument)) })
    }

    fn ask_with<A: serde::Serialize, T: serde::de::DeserializeOwned>(
        &self,
        function: Option<MessageFunction>,
        messages: &[MessageView<'_>],
        argument: &A,
        default: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let Some(function) = function else {
            return default();
        };
        let argument = write(argument)?;
        let messages = RSlice::from_slice(messages);
        // SAFETY: the object is alive for as long as `self`, and the host makes one call at a time.
        from_answer(unsafe { function(self.0.data, messages, rstr(&argument)) })
    }

    /// For methods that cannot answer with an error: a broken answer becomes a panic, which the host's
    /// supervision catches as it catches one in an engine that is linked in.
    fn must<T>(&self, answer: Result<T, EngineError>) -> T {
        // Not a panic of this program's own, which would be shown twice.
        answer.unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error)))
    }
}

impl ContextEngine for PluginEngine {
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "opening a plugin's engine without its factory".to_owned(),
        ))
    }

    fn should_compress(&self, window: &WindowState) -> Decision {
        self.must(self.ask(Some(self.table().should_compress()), window, || {
            Ok(Decision::No(String::new()))
        }))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let function = Some(self.table().compress());
        self.ask_with(function, request.messages, request.order, || {
            Ok(Outcome::NothingToDo(String::new()))
        })
    }

    fn observed_through(&self) -> Option<Observed> {
        self.must(self.ask(self.table().observed_through(), &(), || Ok(None)))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let told = DeliveryMessage {
            cut: delivery.cut,
            revisions: delivery.revisions.to_vec(),
            chain: delivery.chain,
        };
        self.ask_with(self.table().observe(), delivery.messages, &told, || Ok(()))
    }

    fn update_usage(&mut self, usage: &Usage) {
        self.must(self.ask(self.table().update_usage(), usage, || Ok(())));
    }

    fn should_compress_preflight(&self, window: &WindowState) -> Decision {
        let function = self.table().should_compress_preflight();
        self.must(self.ask(function, window, || Ok(self.should_compress(window))))
    }

    fn defers_preflight_to_reported_usage(&self, window: &WindowState) -> bool {
        let function = self.table().defers_preflight_to_reported_usage();
        self.must(self.ask(function, window, || Ok(false)))
    }

    fn has_content_to_compress(&self, messages: &[MessageView<'_>]) -> bool {
        let function = self.table().has_content_to_compress();
        self.must(self.ask_with(function, messages, &(), || Ok(true)))
    }

    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        let function = self.table().prune_tool_results();
        self.ask_with(function, request.messages, request.order, || {
            Ok(Outcome::NothingToDo(
                "this plugin is too old to prune tool results on their own".to_owned(),
            ))
        })
    }

    fn selects(&self) -> bool {
        self.must(self.ask(self.table().selects(), &(), || Ok(false)))
    }

    fn select(&mut self, request: &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError> {
        let function = self.table().select();
        self.ask_with(function, request.messages, request.order, || Ok(None))
    }

    fn committed(&mut self, compaction: u64) {
        self.must(self.ask(self.table().committed(), &compaction, || Ok(())));
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        let function = self.table().discarded();
        self.must(self.ask(function, &(compaction, reason), || Ok(())));
    }

    fn recall(&mut self, ids: &[MessageId]) -> Result<Vec<Option<String>>, EngineError> {
        self.ask(self.table().recall(), &ids, || Ok(vec![None; ids.len()]))
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.must(self.ask(self.table().tools(), &(), || Ok(Vec::new())))
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        self.ask(self.table().call_tool(), call, || {
            Err(EngineError::Unsupported(format!(
                "the tool `{}`",
                call.name
            )))
        })
    }

    fn turn_complete(&mut self) {
        self.must(self.ask(self.table().turn_complete(), &(), || Ok(())));
    }

    fn background(&mut self) -> Vec<BackgroundCall> {
        self.must(self.ask(self.table().background(), &(), || Ok(Vec::new())))
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let function = self.table().background_done();
        self.must(self.ask(function, &(id, answer), || Ok(())));
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.must(self.ask(self.table().model_changed(), window, || Ok(())));
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.ask(self.table().reset(), &(), || Ok(()))
    }

    fn end(&mut self) {
        self.must(self.ask(self.table().end(), &(), || Ok(())));
    }

    fn status(&self) -> serde_json::Value {
        let empty = || Ok(serde_json::Value::Object(serde_json::Map::new()));
        self.must(self.ask(self.table().status(), &(), empty))
    }
}

type Lent = Arc<dyn HostServices>;

fn lend(services: Lent) -> ServicesObject {
    ServicesObject {
        data: Box::into_raw(Box::new(services)).cast(),
        table: ServicesTableRef(SERVICES_TABLE.static_as_prefix()),
    }
}

const SERVICES_TABLE: &WithMetadata<ServicesTable> = &WithMetadata::new(ServicesTable {
    drop: drop_services,
    model,
    complete,
    complete_many,
    count_tokens,
    log,
    is_cancelled,
    now_ms,
});

/// # Safety
/// `data` came from `lend` and is not used again.
unsafe extern "C" fn drop_services(data: *mut ()) {
    let dropped = guarded(|| {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(data.cast::<Lent>()) });
        Ok(())
    });
    // Services whose destructor panics have nobody to tell.
    drop(dropped);
}

/// Runs a service so that a panic in the host does not unwind into the plugin.
///
/// # Safety
/// `data` came from `lend` and is still alive.
unsafe fn serve<T>(
    data: *const (),
    run: impl FnOnce(&dyn HostServices) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    guarded(|| {
        // SAFETY: the caller's promise.
        let services = unsafe { &*data.cast::<Lent>() };
        run(services.as_ref())
    })
}

/// # Safety
/// As [`serve`]; so for every function below.
unsafe extern "C" fn model(data: *const ()) -> Answer {
    // SAFETY: the caller's promise.
    to_answer(unsafe { serve(data, |services| Ok(services.model())) })
}

unsafe extern "C" fn complete(data: *const (), request: RStr<'_>) -> Answer {
    let answer = |services: &dyn HostServices| {
        let request: ModelRequest = read(request.as_str())?;
        services.complete(&request).map_err(EngineError::Model)
    };
    // SAFETY: the caller's promise.
    to_answer(unsafe { serve(data, answer) })
}

unsafe extern "C" fn complete_many(data: *const (), requests: RStr<'_>) -> Answer {
    let answer = |services: &dyn HostServices| -> Result<Vec<AnswerToCall>, EngineError> {
        let requests: Vec<ModelRequest> = read(requests.as_str())?;
        Ok(services.complete_many(&requests))
    };
    // SAFETY: the caller's promise.
    to_answer(unsafe { serve(data, answer) })
}

unsafe extern "C" fn count_tokens(data: *const (), text: RStr<'_>) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { serve(data, |services| Ok(services.count_tokens(text.as_str()))) }
        .unwrap_or(text.len() as u64 / 4)
}

unsafe extern "C" fn log(data: *const (), level: RStr<'_>, message: RStr<'_>) {
    let write_line = |services: &dyn HostServices| {
        let level = read(level.as_str()).unwrap_or(LogLevel::Info);
        services.log(level, message.as_str());
        Ok(())
    };
    // SAFETY: the caller's promise. A log line that failed has nobody to tell.
    drop(unsafe { serve(data, write_line) });
}

unsafe extern "C" fn is_cancelled(data: *const ()) -> bool {
    // SAFETY: the caller's promise.
    unsafe { serve(data, |services| Ok(services.is_cancelled())) }.unwrap_or(true)
}

unsafe extern "C" fn now_ms(data: *const ()) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { serve(data, |services| Ok(services.now_ms())) }.unwrap_or(0)
}
