//! The engines that are registered in this process, at link time or at run time.
//!
//! [`registered_engines`] lists them, and [`catalog`] adds the plugins that a configuration finds.
//! Names are unique: two different engines with the same name are an error.

use std::sync::Mutex;

use contexture_base::lock;
use contexture_config::{Loaded, Schema};
use contexture_engine_api::{About, EngineDefinition, linked_engines};

use crate::HOST;
use crate::catalog::{BUILT_IN, Catalog, NAME_RULE, RegisteredEngine, is_engine_name};

/// Two registered engines have the same name. Names identify engines in the configuration and on
/// disk, so neither of the two can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "two engines are called `{name}`, one from {first} and one from {second}: names must be unique, so rename or \
     remove one"
)]
#[non_exhaustive]
pub struct NameTaken {
    /// The name that both engines use. One of them has to be renamed or left out.
    pub name: String,
    /// Crate and version of the engine that was registered first.
    pub first: String,
    /// Crate and version of the engine that was registered second.
    pub second: String,
}

/// Engines registered at run time. Engines registered at link time are not in this list.
static REGISTERED: Mutex<Vec<EngineDefinition>> = Mutex::new(Vec::new());

/// Why an engine cannot be registered at run time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The name is that of the built-in engine.
    #[error("the name `{BUILT_IN}` belongs to the built-in engine: choose another")]
    BuiltIn,
    /// No engine can have this name.
    #[error("the name `{0}` cannot be an engine's: it must be {NAME_RULE}")]
    BadName(String),
    /// Another engine has the name.
    #[error(transparent)]
    Taken(#[from] NameTaken),
}

/// Registers an engine at run time, as `register_engine!` does at link time. Use it if an embedding
/// program decides at startup which engines it offers. If the same engine, with the same owner and
/// version, was registered at run time before, this one replaces it for hosts that are opened from
/// now on, as it should when a notebook runs the cell of an engine's class again.
///
/// # Errors
/// Fails if no engine can have the name, or if a different engine has it.
pub fn register_context_engine(definition: EngineDefinition) -> Result<(), RegisterError> {
    match definition.name {
        BUILT_IN => return Err(RegisterError::BuiltIn),
        name if !is_engine_name(name) => return Err(RegisterError::BadName(name.to_owned())),
        _ => {}
    }
    let is_new = add(&mut registered_engines()?, definition)?;
    let mut registered = lock(&REGISTERED);
    let mut earlier = registered.iter_mut();
    match earlier.find(|earlier| earlier.name == definition.name) {
        Some(earlier) => *earlier = definition,
        None if is_new => registered.push(definition),
        None => {}
    }
    Ok(())
}

/// Returns the engines registered in this process, at link time and at run time. An engine that is
/// registered twice appears once.
///
/// # Errors
/// Returns [`NameTaken`] if two different engines have the same name.
pub fn registered_engines() -> Result<Vec<EngineDefinition>, NameTaken> {
    let mut all = Vec::new();
    // Referenced by name, because a linker drops a crate that nothing refers to, and its
    // registration with it.
    #[cfg(feature = "lcm")]
    add(&mut all, contexture_lcm::DEFINITION)?;
    for definition in linked_engines() {
        add(&mut all, *definition)?;
    }
    for definition in lock(&REGISTERED).clone() {
        add(&mut all, definition)?;
    }
    Ok(all)
}

/// Adds an engine to the list. Returns false if the same engine is in it already.
///
/// # Errors
/// Returns [`NameTaken`] if a different engine in the list has the name.
fn add(all: &mut Vec<EngineDefinition>, new: EngineDefinition) -> Result<bool, NameTaken> {
    match all.iter().find(|other| other.name == new.name) {
        None => {
            all.push(new);
            Ok(true)
        }
        Some(other) if same(other, &new) => Ok(false),
        Some(other) => Err(name_taken(other, &new)),
    }
}

/// Returns the engines that a configuration gives access to, without running any code of a plugin.
/// Use it to list or check engines. To open one, create [`Engines`](super::Engines), which has its
/// own catalog.
///
/// # Errors
/// Returns [`NameTaken`] if two registered engines have the same name.
pub fn catalog(loaded: &Loaded) -> Result<Catalog, NameTaken> {
    let registered = registered_engines()?;
    Ok(Catalog::scan(&loaded.plugin_dirs, listed(&registered)))
}

/// Converts registered engines to catalog entries. This asks each engine for its description, which
/// is data and needs no factory.
pub(super) fn listed(registered: &[EngineDefinition]) -> Vec<RegisteredEngine> {
    let registered = registered
        .iter()
        .map(|definition| (definition, about(definition)));
    registered
        .map(|(definition, about)| RegisteredEngine {
            settings: schema_of(definition.name, &about),
            declared_settings: (about.settings)
                .and_then(|schema| schema.get("properties").cloned()),
            name: definition.name.to_owned(),
            version: definition.version.to_owned(),
            description: definition.description.to_owned(),
            owner: definition.owner.to_owned(),
        })
        .collect()
}

/// Returns what a linked engine declares about itself: its settings and its flags.
pub(super) fn about(definition: &EngineDefinition) -> About {
    definition.describe(&HOST).about
}

/// Returns the schema of the settings that an engine declares. If it declares none, or the host
/// cannot read its schema, every setting is valid. The second case is logged as a warning.
pub(super) fn schema_of(name: &str, about: &About) -> Schema {
    let declared = about.settings.clone().unwrap_or(true.into());
    Schema::parse(&declared).unwrap_or_else(|error| {
        tracing::warn!("the settings of the engine `{name}` are not checked: {error}");
        Schema::default()
    })
}

/// Whether two definitions are the same engine registered twice. Their names are known to be equal.
fn same(one: &EngineDefinition, other: &EngineDefinition) -> bool {
    (one.owner, one.version) == (other.owner, other.version)
}

fn name_taken(first: &EngineDefinition, second: &EngineDefinition) -> NameTaken {
    let owner =
        |definition: &EngineDefinition| format!("{} {}", definition.owner, definition.version);
    NameTaken {
        name: first.name.to_owned(),
        first: owner(first),
        second: owner(second),
    }
}
