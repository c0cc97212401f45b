//! The host's side of the ABI.
//!
//! [`Plugin::load`] opens a library and checks it in three steps: whether the file is complete,
//! whether it has the same ABI version, and whether its types have the expected layout. Only then
//! does it ask the engine to describe itself. Each step has its own [`LoadError`], so that a
//! message can say exactly why a plugin does not fit.
//!
//! [`Plugin::create`] makes the engine's factory. From then on the plugin is used through
//! [`EngineFactory`] and [`ContextEngine`](crate::ContextEngine) like a linked engine. A library is
//! never unloaded, because code or data of it may still be in use in any thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use abi_stable::StableAbi;
use abi_stable::abi_stability::abi_checking::{
    CheckingGlobals, check_layout_compatibility_with_globals,
};
use abi_stable::library::{LibHeader, lib_header_from_path};
use abi_stable::prefix_type::WithMetadata;
use abi_stable::std_types::{RSlice, RStr, RString};
use libloading::Library;

use super::exit::note_loading;
use super::tables::{
    EngineObject, FactoryObject, PluginModuleRef, ServicesObject, ServicesTable, ServicesTableRef,
};
use super::{ABI_VERSION, Answer, from_answer, guarded, rstr, to_answer};
use crate::about::{EngineDescription, HostInfo};
use crate::engine::{ContextEngine, EngineFactory, FactoryRequest};
use crate::error::EngineError;
use crate::message::MessageView;
use crate::protocol::{Carrier, Create, Open, RemoteEngine, read, serve_services, write};
use crate::services::{HostServices, OpenRequest};
use crate::store::StoreCommand;

/// Why a library is not a plugin that this host can use. Each message begins with the path of the
/// library.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be opened as a library, for example because it does not exist or is built
    /// for another system.
    #[error("{path}: cannot be opened as a library: {cause}")]
    Open {
        /// The path of the library.
        path: PathBuf,
        /// The reason that the system gave.
        cause: String,
    },
    /// The file is shorter than its header says. A copy or a build was probably interrupted.
    #[error(
        "{path}: is cut short (its header promises {promised} bytes, it has {found}); build or copy it again"
    )]
    CutShort {
        /// The path of the library.
        path: PathBuf,
        /// The length that the header promises, in bytes.
        promised: u64,
        /// The length of the file, in bytes.
        found: u64,
    },
    /// The library is not a Contexture plugin.
    #[error(
        "{path}: exports no `{symbol}`, so it is not a Contexture plugin; a plugin crate is a cdylib that calls \
         `export_engine!`"
    )]
    NotAPlugin {
        /// The path of the library.
        path: PathBuf,
        /// The symbol that the library does not export.
        symbol: &'static str,
    },
    /// The plugin was built for another major version of the ABI.
    #[error(
        "{path}: was built for version {found} of the plugin ABI, but this host speaks version {ABI_VERSION}; \
         rebuild it with contexture-engine-api {ABI_VERSION}.x"
    )]
    AbiVersion {
        /// The path of the library.
        path: PathBuf,
        /// The version that the library reported.
        found: u32,
    },
    /// The ABI version is the same, but the types have another layout.
    #[error(
        "{path}: its types do not have the layout that this host expects: {difference}; rebuild \
             it with the host's version of contexture-engine-api"
    )]
    Layout {
        /// The path of the library.
        path: PathBuf,
        /// The first difference, in a few lines at most.
        difference: String,
        /// Everything that the layout check reported, for a log. It can be 40 KB long.
        report: String,
    },
    /// The library failed while its module was initialised, or its description could not be read.
    #[error("{path}: failed while loading: {cause}")]
    Init {
        /// The path of the library.
        path: PathBuf,
        /// The reason of the failure.
        cause: String,
    },
}

/// A plugin whose library was loaded and fits this host. Dropping it does not unload the library.
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
    /// Opens a library, checks its ABI version and its layout, and asks it for its description.
    /// Opening a library runs its constructors, so if a hash is pinned, check it before.
    ///
    /// # Errors
    /// Returns a [`LoadError`] that says why the library does not fit.
    pub fn load(path: &Path, host: &HostInfo) -> Result<Self, LoadError> {
        Self::load_copy(path, path, host)
    }

    /// Loads a plugin as [`load`](Self::load) does, but from the file `copy`. Messages still name
    /// the library `path`, because that is what the user knows.
    ///
    /// # Errors
    /// Returns an error as [`load`](Self::load) does.
    pub fn load_copy(path: &Path, copy: &Path, host: &HostInfo) -> Result<Self, LoadError> {
        note_loading(path);
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
        let described = write(host).and_then(|host| {
            let said = module.describe()(rstr(&host));
            read(said.as_str())
        });
        let description = described.map_err(|error| LoadError::Init {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        Ok(Self {
            description,
            module,
        })
    }

    /// Returns what the plugin said about itself when it was loaded.
    pub fn description(&self) -> &EngineDescription {
        &self.description
    }

    /// Makes the factory of the engine.
    ///
    /// # Errors
    /// Returns an error as [`EngineFactory::create`] does, and [`EngineError::Panicked`] if the
    /// plugin panicked.
    pub fn create(
        &self,
        request: &FactoryRequest<'_>,
    ) -> Result<Box<dyn EngineFactory>, EngineError> {
        let request = write(&Create::of(request))?;
        let factory = from_answer(self.module.create()(rstr(&request)))?;
        Ok(Box::new(PluginFactory(factory)))
    }
}

/// Refuses an ELF file that ends before its section headers, which linkers write last. If a
/// truncated file is opened, for example after a full disk, the process ends with a bus error
/// instead of an error that can be reported.
fn check_complete(path: &Path, copy: &Path) -> Result<(), LoadError> {
    let cannot_open = |error: std::io::Error| LoadError::Open {
        path: path.to_owned(),
        cause: error.to_string(),
    };
    let mut file = std::fs::File::open(copy).map_err(cannot_open)?;
    let found = file.metadata().map_err(cannot_open)?.len();
    let mut header = [0; 64];
    if std::io::Read::read_exact(&mut file, &mut header).is_err() {
        // The file is too short to be a library. The system's loader reports that without harm.
        return Ok(());
    }
    const ELF_64_LITTLE_ENDIAN: &[u8] = b"\x7fELF\x02\x01";
    if !header.starts_with(ELF_64_LITTLE_ENDIAN) {
        return Ok(());
    }
    // These are `e_shoff`, and `e_shentsize` times `e_shnum`, in the file header of the ELF
    // specification.
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
    // SAFETY: opening a library runs its constructors. In-process plugins are trusted code, and a
    // library is opened only if the configuration names it.
    let library = unsafe { Library::new(copy) }.map_err(|error| {
        let cause = std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string);
        // The loader names the copy that it was given, but the user only knows the original path.
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
    // A library is never unloaded. Data of it may be in use in any thread, and not every platform
    // supports unloading.
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

/// Accepts a layout that is compatible in one of two directions. A newer host has functions that an
/// older plugin lacks, and does without them. A newer plugin has functions that an older host never
/// calls.
fn check_layout(path: &Path, header: &'static LibHeader) -> Result<(), LoadError> {
    let Some(theirs) = header.layout() else {
        return Err(LoadError::Layout {
            path: path.to_owned(),
            difference: "it carries no description of its layout".to_owned(),
            report: String::new(),
        });
    };
    let ours = <PluginModuleRef as StableAbi>::LAYOUT;
    // Each check gets its own globals. Shared ones would also compare plugins with each other, and
    // two plugins of different versions in one process do not have to know each other's functions.
    let check = |interface, implementation| {
        check_layout_compatibility_with_globals(interface, implementation, &CheckingGlobals::new())
    };
    check(ours, theirs)
        // The error of our own direction is reported, because it names what this host expects.
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

/// Returns the part of a layout report that says what differs: the type that the report was about,
/// and its first `Error:`.
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

impl EngineFactory for PluginFactory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "making a plugin's factory without its library".to_owned(),
        ))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let message = write(&Open::of(request))?;
        let services = lend(Arc::clone(request.services.host()));
        // SAFETY: the object is alive as long as `self`.
        let opened = unsafe { self.0.table.open()(self.0.data, rstr(&message), services) };
        Ok(Box::new(RemoteEngine(from_answer(opened)?)))
    }

    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        let command = write(command)?;
        // SAFETY: the object is alive as long as `self`.
        let answer = unsafe { self.0.table.manage()(self.0.data, rstr(&command)) };
        read(from_answer(answer)?.as_str())
    }
}

impl Carrier for EngineObject {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        let messages = RSlice::from_slice(messages);
        // SAFETY: the object is alive as long as `self`, and the host makes one call at a time.
        let answer =
            unsafe { self.table.call()(self.data, rstr(method), rstr(argument), messages) };
        from_answer(answer).map(RString::into_string)
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
    call,
    count_tokens,
    is_cancelled,
});

/// Drops the services that were lent.
///
/// # Safety
/// `data` must come from `lend` and must not be used again.
unsafe extern "C" fn drop_services(data: *mut ()) {
    let dropped = guarded(|| {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { Box::from_raw(data.cast::<Lent>()) });
        Ok(())
    });
    // If the destructor of the services panics, there is nobody to tell.
    drop(dropped);
}

/// Runs a service so that a panic in the host does not unwind into the plugin.
///
/// # Safety
/// `data` must come from `lend` and must still be alive.
unsafe fn serve<T>(
    data: *const (),
    run: impl FnOnce(&dyn HostServices) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    guarded(|| {
        // SAFETY: guaranteed by the caller.
        let services = unsafe { &*data.cast::<Lent>() };
        run(services.as_ref())
    })
}

/// Calls a service by its name. The two functions below it do the same for one service each,
/// without JSON.
///
/// # Safety
/// `data` must come from `lend` and must still be alive. The same holds for the functions below.
unsafe extern "C" fn call(data: *const (), method: RStr<'_>, argument: RStr<'_>) -> Answer {
    let answer =
        |services: &dyn HostServices| serve_services(services, method.as_str(), argument.as_str());
    // SAFETY: guaranteed by the caller.
    to_answer(unsafe { serve(data, answer) })
}

unsafe extern "C" fn count_tokens(data: *const (), text: RStr<'_>) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { serve(data, |services| Ok(services.count_tokens(text.as_str()))) }
        .unwrap_or(text.len() as u64 / 4)
}

unsafe extern "C" fn is_cancelled(data: *const ()) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { serve(data, |services| Ok(services.is_cancelled())) }.unwrap_or(true)
}
