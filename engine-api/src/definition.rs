//! What an engine is known by, and the registry of the engines that are linked into a process.

use std::marker::PhantomData;

use serde_json::Value;

use crate::about::{API_VERSION, About, EngineDescription, HostInfo};
use crate::engine::{ContextEngine, EngineFactory, FactoryRequest, StandaloneEngine};
use crate::error::EngineError;
use crate::protocol::Create;
use crate::services::OpenRequest;
use crate::store::StoreCommand;

type Make = fn(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError>;

/// An engine as a host lists it: its name, whence it comes and how to make it. Listing runs none of
/// the engine's code.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct EngineDefinition {
    /// What `context.engine` says to choose it.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// One line on what it does.
    pub description: &'static str,
    /// The crate that brings it.
    pub owner: &'static str,
    create: Make,
    about: fn(&HostInfo) -> About,
}

/// The crate that brings an engine; [`export_engine!`](crate::export_engine) and
/// [`register_engine!`](crate::register_engine) fill it in.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    /// The crate's name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its description.
    pub description: &'static str,
}

impl EngineDefinition {
    /// An engine whose sessions share nothing.
    pub const fn engine<E: StandaloneEngine>(name: &'static str, owner: Owner) -> Self {
        Self::factory::<SharesNothing<E>>(name, owner)
    }

    /// An engine whose sessions share what its factory holds.
    pub const fn factory<F: EngineFactory + 'static>(name: &'static str, owner: Owner) -> Self {
        Self {
            name,
            version: owner.version,
            description: owner.description,
            owner: owner.name,
            create: |request| Ok(Box::new(F::create(request)?)),
            about: F::about,
        }
    }

    /// What the engine says of itself to this host.
    pub fn describe(&self, host: &HostInfo) -> EngineDescription {
        EngineDescription {
            name: self.name.to_owned(),
            version: self.version.to_owned(),
            description: self.description.to_owned(),
            api: API_VERSION.to_owned(),
            about: (self.about)(host),
        }
    }

    /// Makes the engine's factory.
    ///
    /// # Errors
    /// As [`EngineFactory::create`].
    pub fn create(
        &self,
        request: &FactoryRequest<'_>,
    ) -> Result<Box<dyn EngineFactory>, EngineError> {
        (self.create)(request)
    }
}

struct SharesNothing<E> {
    asked: Create,
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

/// The engines that [`register_engine!`](crate::register_engine) linked into this process.
pub fn linked_engines() -> impl Iterator<Item = &'static EngineDefinition> {
    inventory::iter::<EngineDefinition>.into_iter()
}

/// Makes an [`EngineDefinition`] in the name of the crate that says it:
/// `define_engine!("name", Engine)` or `define_engine!("name", factory Factory)`.
#[macro_export]
macro_rules! define_engine {
    ($name:literal, factory $factory:ty) => {
        $crate::EngineDefinition::factory::<$factory>($name, $crate::define_engine!(@owner))
    };
    ($name:literal, $engine:ty) => {
        $crate::EngineDefinition::engine::<$engine>($name, $crate::define_engine!(@owner))
    };
    (@owner) => {
        $crate::Owner {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            description: env!("CARGO_PKG_DESCRIPTION"),
        }
    };
}

/// Registers an engine with the process it is linked into:
/// `register_engine!("name", Engine)` or `register_engine!("name", factory Factory)`.
///
/// A crate that nothing names is dropped by the linker, this entry and all: have the program
/// `use your_crate as _;`.
#[macro_export]
macro_rules! register_engine {
    ($($definition:tt)*) => {
        $crate::__private::inventory::submit! { $crate::define_engine!($($definition)*) }
    };
}

/// Makes a cdylib a plugin: `export_engine!("name", Engine)` or
/// `export_engine!("name", factory Factory)`, once in a crate.
///
/// Every entry is guarded: a panic closes the session to the engine and ends nothing else. A plugin
/// built with `panic = "abort"` could not be guarded and does not compile.
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
