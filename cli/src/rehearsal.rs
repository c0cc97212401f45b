//! Where a dry run takes place, and a tool whose store cannot be written: over copies of what is kept, which go when
//! it is over.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use contexture_engine_api::{StoreCommand, make_private_folder};
use serde_json::Value;

use crate::error::CliError;
use crate::{kept, setup};
use contexture::engines::Engines;
use contexture::replay::Stage;
use contexture::session::{Record, RecordError, SessionOptions};

/// The engines of a configuration over a home that is thrown away.
pub(crate) struct Rehearsal {
    stage: Stage,
    /// Where its session is kept, where it has one.
    store: Option<Arc<Record>>,
}

impl Rehearsal {
    /// A place that knows of `session` what the real one does.
    pub(crate) fn of(
        engines: &Engines,
        session: Option<&str>,
        named: Option<&str>,
    ) -> Result<Self, CliError> {
        let stage = Stage::new(engines.loaded().clone(), engines.client().clone());
        let stage = stage.map_err(CliError::Stage)?;
        let Some(session) = session else {
            return Ok(Self { stage, store: None });
        };
        // A home where nothing is kept yet stays one.
        if Record::is_in(&engines.loaded().home) {
            copy(engines, session, named, &stage)?;
        }
        let store = Some(setup::open_store(stage.engines())?);
        Ok(Self { stage, store })
    }

    /// A place with a copy of all that this engine keeps.
    pub(crate) fn of_kept(engines: &Engines, engine: &str) -> Result<Self, CliError> {
        let stage = Stage::new(engines.loaded().clone(), engines.client().clone());
        let stage = stage.map_err(CliError::Stage)?;
        copy_kept(engines, engine, &stage.engines().loaded().home)?;
        Ok(Self { stage, store: None })
    }

    pub(crate) fn engines(&self) -> &Arc<Engines> {
        self.stage.engines()
    }

    pub(crate) fn store(&self) -> Option<Arc<Record>> {
        self.store.clone()
    }
}

/// Copies the record of sessions, and what the session's engine keeps, as of one moment.
fn copy(
    engines: &Engines,
    session: &str,
    named: Option<&str>,
    stage: &Stage,
) -> Result<(), CliError> {
    let store = setup::open_store_to_read(engines)?;
    let _hold = match store.hold(session, SessionOptions::default().wait) {
        // It may not be written, and a copy needs no more than to read it.
        Err(RecordError::Lock { cause, .. })
            if matches!(
                cause.kind(),
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
            ) =>
        {
            None
        }
        held => Some(held.map_err(CliError::Sessions)?),
    };
    let home = &stage.engines().loaded().home;
    store.copy_to(home).map_err(CliError::Sessions)?;
    let remembered = setup::engine_of(&store, session)?;
    match remembered {
        // Another one has seen nothing of it.
        Some(engine) if named.is_none_or(|named| named == engine) => {
            copy_kept(engines, &engine, home)
        }
        _ => Ok(()),
    }
}

/// Has an engine copy its store to where it would lie in another home. One that keeps nothing has none.
fn copy_kept(engines: &Engines, engine: &str, home: &Path) -> Result<(), CliError> {
    let Some(list) = kept::list(engines, engine)? else {
        return Ok(());
    };
    let store = list.get("store").and_then(Value::as_str).map(Path::new);
    let Some(Ok(place)) = store.map(|store| store.strip_prefix(&engines.loaded().home)) else {
        return Err(CliError::usage(
            format!(
                "the engine `{engine}` does not say where its store lies, so it cannot be tried on a copy"
            ),
            "leave --dry-run or --session out",
        ));
    };
    let to = home.join(place);
    let directory = to.parent().unwrap_or(home);
    make_private_folder(directory).map_err(|source| CliError::Write {
        path: directory.to_owned(),
        source,
    })?;
    let copied = engines.manage(Some(engine), &StoreCommand::Backup { to });
    copied.map(|_| ()).map_err(CliError::of_keeper)
}
