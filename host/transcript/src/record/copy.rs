//! Copying sessions from one store to another, whatever their kinds.
//!
//! A session is copied whole, in one transaction, and then read back and compared by a checksum over
//! everything that is stored of it. So a copy that was interrupted goes on with the sessions that are
//! not there yet: those that are there are equal, and are skipped.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

use super::Record;
use crate::error::RecordError;
use crate::store::Dump;

/// What became of a session that was to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyOutcome {
    /// It was copied, read back, and is equal.
    Copied,
    /// The other store had it already, and it is equal.
    Unchanged,
    /// The other store has a session of this name with other content. Nothing was written.
    Differs,
    /// There is no such session in this store.
    Missing,
}

impl Record {
    /// The names under which anything is stored, sorted. For some there are only texts of embedders.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn names(&self) -> Result<Vec<String>, RecordError> {
        self.store.names()
    }

    /// Copies a session with everything that is stored of it to another store. If that has a session
    /// of this name with other content, the session is copied only if `replaces` is set. It is locked
    /// in both stores meanwhile, for which this waits for at most `wait`.
    ///
    /// # Errors
    /// A store cannot be read or written, the session is open elsewhere, or what was read back is not
    /// what was written.
    pub fn copy_session(
        &self,
        to: &Self,
        session: &str,
        replaces: bool,
        wait: Duration,
    ) -> Result<CopyOutcome, RecordError> {
        to.is_itself()?;
        let _from = self.hold(session, wait)?;
        let Some(dump) = self.store.dump(session)? else {
            return Ok(CopyOutcome::Missing);
        };
        let checksum = checksum_of(&dump);
        // Two copies in opposite directions would wait for each other here, but for no longer than
        // `wait`.
        let _to = to.hold(session, wait)?;
        if let Some(there) = to.store.dump(session)? {
            if checksum_of(&there) == checksum {
                return Ok(CopyOutcome::Unchanged);
            }
            if !replaces {
                return Ok(CopyOutcome::Differs);
            }
        }
        to.store.restore(session, dump)?;
        // The original may be deleted after this, so the copy must be known to be readable.
        let back = to.store.dump(session)?;
        if back.is_none_or(|back| checksum_of(&back) != checksum) {
            let what = format!("the copy of the session `{session}` is not equal to its original");
            return Err(to.store.damaged(what));
        }
        Ok(CopyOutcome::Copied)
    }
}

/// A checksum over everything, which does not depend on the kind of the store. Texts count in their
/// compressed form, since a copy does not compress them again.
fn checksum_of(dump: &Dump) -> u64 {
    let mut sum = Xxh3::new();
    dump.hash(&mut sum);
    sum.finish()
}
