//! Temporary copies of what is stored, for `--dry-run` and for read-only stores.
//!
//! A dry run must leave the user's home as it is, but an engine expects a home that it can write
//! to. [`DryRun::of`] therefore copies the record of sessions to a temporary home and opens the
//! engines over the copy. Engines derive everything else from the record, so their own files are
//! not copied.
//!
//! The temporary home is deleted when the [`DryRun`] is dropped. `contexture tool` uses one, too,
//! if the engine cannot write to its store.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::error::CliError;
use crate::start;
use contexture::engines::Engines;
use contexture::replay::TempHome;
use contexture::session::{Record, RecordError, SessionOptions, has_record};

/// Engines over a temporary home with a copy of the stored sessions. The home is deleted when this
/// value is dropped.
pub(crate) struct DryRun {
    stage: TempHome,
    /// The copied record. `None` if the run has no session.
    store: Option<Arc<Record>>,
}

impl DryRun {
    /// Opens the engines over a copy of the stored sessions. If `session` is `None`, or if nothing
    /// is stored yet, nothing is copied. Fails if the record cannot be read or the temporary home
    /// cannot be created.
    pub(crate) fn of(engines: &Engines, session: Option<&str>) -> Result<Self, CliError> {
        let stage = TempHome::new(engines.loaded().clone(), engines.client().clone());
        let stage = stage.map_err(CliError::TempHome)?;
        let Some(session) = session else {
            return Ok(Self { stage, store: None });
        };
        // If nothing is stored yet, opening the record would create one, which a dry run must not
        // do.
        if has_record(engines.loaded()) {
            copy(engines, session, &stage)?;
        }
        // The copy is always a file, wherever the sessions are.
        let store = Record::open(&stage.engines().loaded().home)?;
        Ok(Self {
            stage,
            store: Some(store),
        })
    }

    pub(crate) fn engines(&self) -> &Arc<Engines> {
        self.stage.engines()
    }

    pub(crate) fn store(&self) -> Option<Arc<Record>> {
        self.store.clone()
    }
}

/// Copies the record of sessions to the temporary home. The session is held meanwhile, so no turn
/// runs and the copy shows it at a single moment.
fn copy(engines: &Engines, session: &str, stage: &TempHome) -> Result<(), CliError> {
    let store = start::open_store_to_read(engines)?;
    let _hold = match store.hold(session, SessionOptions::default().wait) {
        // If the home is read-only, the session cannot be held. It cannot change either, so it is
        // safe to copy without a hold.
        Err(RecordError::Write { cause, .. })
            if matches!(
                cause.kind(),
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied
            ) =>
        {
            None
        }
        held => Some(held?),
    };
    let home = &stage.engines().loaded().home;
    store.copy_to(home, session).map_err(CliError::Sessions)
}
