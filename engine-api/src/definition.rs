//! How engines are defined and found.
//!
//! An [`EngineDefinition`] holds what a host needs to list and make an engine: its name, its
//! version and two functions. Engine authors do not build one by hand. They call
//! [`export_engine!`](crate::export_engine) in a cdylib, or
//! [`register_engine!`](crate::register_engine) in a crate that is linked into a program. Both take
//! the version and the description from the crate's `Cargo.toml`.
//!
//! Linked engines register themselves before `main` runs, and [`linked_engines`] lists them.
//! Plugins are not in that list, because a host finds their libraries through its configuration and
//! loads them with `Plugin`.

use std::marker::PhantomData;

use serde_json::Value;

use crate::about::{API_VERSION, About, EngineDescription, HostInfo};
use crate::engine::{ContextEngine, EngineFactory, FactoryRequest, StandaloneEngine};
use crate::error::EngineError;
use crate::protocol::Create;
use crate::services::OpenRequest;
use crate::store::StoreCommand;

type Make =
    dyn Fn(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError> + Send + Sync;
type OpenFn = dyn Fn(&OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> + Send + Sync;

/// An engine as a host lists it: its name, its origin and how to make it. Listing engines does not
/// run any of their code.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct EngineDefinition {
    /// The name that selects the engine in `context.engine`.
    pub name: &'static str,
    /// The version of the crate that defines it.
    pub version: &'static str,
    /// One line on what the engine does, from the crate's description.
    pub description: &'static str,
    /// The name of the crate that defines it.
    pub owner: &'static str,
    create: &'static Make,
    about: fn(&HostInfo) -> About,
}

/// The crate that defines an engine. The macros [`export_engine!`](crate::export_engine) and
/// [`register_engine!`](crate::register_engine) fill it in from `Cargo.toml`.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// The name of the crate.
    pub name: &'static str,
    /// The version of the crate.
    pub version: &'static str,
    /// The description of the crate, which becomes that of the engine.
    pub description: &'static str,
}

impl EngineDefinition {
    /// Defines an engine whose sessions share nothing.
    pub const fn engine<E: StandaloneEngine>(name: &'static str, owner: Owner) -> Self {
        Self::factory::<SharesNothing<E>>(name, owner)
    }

    /// Defines an engine whose sessions share what its factory holds, such as a store.
    pub const fn factory<F: EngineFactory + 'static>(name: &'static str, owner: Owner) -> Self {
        Self {
            name,
            version: owner.version,
            description: owner.description,
            owner: owner.name,
            create: &|request| Ok(Box::new(F::create(request)?)),
            about: F::about,
        }
    }

    /// Defines an engine at run time, such as a class of another language. `open` opens it for a
    /// session, and `owner` says where it comes from. A definition lasts as long as the process, so
    /// its texts and `open` are never freed.
    pub fn at_run_time(
        name: &str,
        version: &str,
        description: &str,
        owner: &'static str,
        open: impl Fn(&OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let text = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let open: &'static OpenFn = Box::leak(Box::new(open));
        Self {
            name: text(name),
            version: text(version),
            description: text(description),
            owner,
            create: Box::leak(Box::new(|_: &FactoryRequest<'_>| {
                Ok(Box::new(OpenedBy(open)) as Box<dyn EngineFactory>)
            })),
            about: |_| About::default(),
        }
    }

    /// Returns the description of the engine for this host. It runs the engine's `about`.
    pub fn describe(&self, host: &HostInfo) -> EngineDescription {
        EngineDescription {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
            description: self.description.to_owned(),
            api: API_VERSION.to_owned(),
            about: (self.about)(host),
        }
    }

    /// Makes the factory of the engine.
    ///
    /// # Errors
    /// Returns the error of [`EngineFactory::create`].
    pub fn create(
        &self,
        request: &FactoryRequest<'_>,
    ) -> Result<Box<dyn EngineFactory>, EngineError> {
        (self.create)(request)
    }
}

impl std::fmt::Debug for EngineDefinition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineDefinition")
            .field("name", &self.name)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// The factory of an engine that was defined at run time.
struct OpenedBy(&'static OpenFn);

impl EngineFactory for OpenedBy {
    // Never called: a request has no function.
    fn create(_: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported("making an engine".to_owned()))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        (self.0)(request)
    }
}

struct SharesNothing<E> {
    asked: Create,
    // A function pointer keeps the type `Send` and `Sync`, whatever `E` is.
    engine: PhantomData<fn() -> E>,
}

impl<E: StandaloneEngine> EngineFactory for SharesNothing<E> {
    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            asked: Create::of(request),
            engine: PhantomData,
        })
    }

    fn about(host: &HostInfo) -> About {
        E::about(host)
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        Ok(Box::new(E::open(request)?))
    }

    fn manage(&self, command: &StoreCommand) -> Result<Value, EngineError> {
        E::manage(command, &self.asked.request())
    }
}

inventory::collect!(EngineDefinition);

/// Returns the engines that [`register_engine!`](crate::register_engine) linked into this process,
/// in no particular order.
pub fn linked_engines() -> impl Iterator<Item = &'static EngineDefinition> {
    inventory::iter::<EngineDefinition>.into_iter()
}

/// Makes an [`EngineDefinition`] with the name, version and description of the calling crate. The
/// forms are `define_engine!("name", Engine)` for a [`StandaloneEngine`](crate::StandaloneEngine)
/// and `define_engine!("name", factory Factory)` for an [`EngineFactory`](crate::EngineFactory).
#[macro_export]
macro_rules! define_engine {
    ($name:literal, factory $factory:ty) => {
        $crate::EngineDefinition::factory::<$factory>($name, $crate::define_engine!(@owner))
    };
    ($name:literal, $engine:ty) => {
        $crate::EngineDefinition::engine::<$engine>($name, $crate::define_engine!(@owner))
    };
    (@owner) => {
        // `env!` is expanded in the calling crate, so these are its name and version.
        $crate::Owner {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            description: env!("CARGO_PKG_DESCRIPTION"),
        }
    };
}

/// Registers an engine with the program that it is linked into: `register_engine!("name", Engine)`
/// or `register_engine!("name", factory Factory)`.
///
/// The linker drops a crate that nothing refers to, and the registration with it. If the program
/// does not use the crate otherwise, write `use your_crate as _;` in it.
///
/// If the crate is a plugin as well, put [`export_engine!`](crate::export_engine) under a cargo
/// feature that the program turns off. Two crates with a plugin's entry points do not link into one
/// program, because the entry points have fixed names.
#[macro_export]
macro_rules! register_engine {
    ($($definition:tt)*) => {
        $crate::__private::inventory::submit! { $crate::define_engine!($($definition)*) }
    };
}

/// Makes a cdylib a plugin: `export_engine!("name", Engine)` or `export_engine!("name", factory
/// Factory)`. Call it once in a crate.
///
/// Every entry point is guarded. If the engine panics, the host closes the engine's session and
/// everything else goes on. That is not possible if the plugin is built with `panic = "abort"`, so
/// such a plugin does not compile.
#[macro_export]
macro_rules! export_engine {
    ($($definition:tt)*) => {
        #[cfg(panic = "abort")]
        compile_error!(
            "a context engine must be built with `panic = \"unwind\"`: with \"abort\" a panic in it \
             would end the whole host"
        );

        static CONTEXTURE_ENGINE: $crate::EngineDefinition = $crate::define_engine!($($definition)*);
        $crate::__export_module!(CONTEXTURE_ENGINE);
    };
}
