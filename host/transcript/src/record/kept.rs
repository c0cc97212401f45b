//! Texts that an embedder stores with a session, by name.
//!
//! They are as durable as the session and are deleted with it. The session need not exist yet. One
//! name is used by Contexture itself: the tenant to whom a session belongs.
//!
//! Start with [`Record::keep`] and [`Record::kept`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::Record;
use crate::error::RecordError;
use crate::store::{KeptChange, KeptContent};

/// The name under which the tenant of a session is stored.
const TENANT: &str = "tenant";

impl Record {
    /// Masks secrets in texts of a conversation before they are [kept](Self::keep) from now on.
    pub fn redact(&self) {
        self.redacts.store(true, Ordering::Relaxed);
    }

    /// Stores texts with a session. A text replaces the one that was stored under the same name.
    /// Either all of them are stored or none. The session need not exist yet. `content` says what
    /// all of them are.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(
        &self,
        session: &str,
        content: KeptContent,
        texts: &[(&str, &str)],
    ) -> Result<(), RecordError> {
        let redacts = self.redacts.load(Ordering::Relaxed);
        let stored = texts.iter().map(|(_, text)| content.stored(text, redacts));
        let stored: Vec<Cow<'_, str>> = stored.collect();
        let names = texts.iter().map(|(name, _)| *name);
        let texts: Vec<(&str, &str)> = names.zip(stored.iter().map(|text| &**text)).collect();
        self.store.keep(session, &texts)
    }

    /// Changes texts of a session that depend on a stored one, such as a sum. `change` is called as
    /// [`KeptChange::new`] says. No call overwrites what another one has counted, whether it is made
    /// by another thread, process or gateway.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn change_kept(
        &self,
        session: &str,
        name: &str,
        content: KeptContent,
        change: impl FnMut(Option<String>) -> Vec<(String, String)>,
    ) -> Result<(), RecordError> {
        self.make_changes(vec![KeptChange::new(session, name, content, change)])
    }

    /// Makes several changes like [`Record::change_kept`]. In a file either all of them are made or
    /// none.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn make_changes(&self, mut changes: Vec<KeptChange<'_>>) -> Result<(), RecordError> {
        self.redact_in(&mut changes);
        match changes.is_empty() {
            true => Ok(()),
            false => self.store.change_kept(&mut changes),
        }
    }

    /// Tells changes whether this record masks secrets.
    pub(super) fn redact_in(&self, changes: &mut [KeptChange<'_>]) {
        let redacts = self.redacts.load(Ordering::Relaxed);
        changes
            .iter_mut()
            .for_each(|change| change.redacts = redacts);
    }

    /// Whether changes that are saved with a session are part of its transaction. In a database they
    /// are not.
    pub fn joins_changes(&self) -> bool {
        self.store.joins_changes()
    }

    /// The texts that are stored with a session, as pairs of name and text, ordered by name. Empty
    /// if there are none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept(&self, session: &str) -> Result<Vec<(String, String)>, RecordError> {
        self.store.kept(session)
    }

    /// The texts that are stored under this name, with all sessions or only with `session`. Returns
    /// pairs of session and text.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept_as(
        &self,
        name: &str,
        session: Option<&str>,
    ) -> Result<Vec<(String, String)>, RecordError> {
        self.store.kept_as(name, session)
    }

    /// The text that is stored with a session under this name. None if there is none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept_text(&self, session: &str, name: &str) -> Result<Option<String>, RecordError> {
        let kept = self.kept_as(name, Some(session))?.pop();
        Ok(kept.map(|(_, text)| text))
    }

    /// The tenant to whom a session belongs. None if it belongs to nobody in particular, or if
    /// there is no such session.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tenant(&self, session: &str) -> Result<Option<String>, RecordError> {
        self.kept_text(session, TENANT)
    }

    /// All sessions that belong to a tenant, with that tenant.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tenants(&self) -> Result<HashMap<String, String>, RecordError> {
        Ok(self.kept_as(TENANT, None)?.into_iter().collect())
    }

    /// Sets the tenant of a session. Does nothing if it has one already, or if the record knows the
    /// session, because a session never changes hands.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn set_tenant(&self, session: &str, tenant: &str) -> Result<(), RecordError> {
        if self.tenant(session)?.is_some() || self.delivered(session)?.is_some() {
            return Ok(());
        }
        self.keep(session, KeptContent::Exact, &[(TENANT, tenant)])
    }
}
