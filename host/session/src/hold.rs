//! Who has a session open. Two that go on with one session at once would make a mixture of what each of them
//! read, so that one waits for the other: with a lock on a file of the session's own, which the system takes
//! back when a process ends, however it ends.

use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use contexture_base::private::narrow;
use contexture_engine_api::{make_private_folder, private_file_options};
use xxhash_rust::xxh3::xxh3_128;

use super::record::RecordError;

/// The folder of the locks, in the home directory.
const FOLDER: &str = "sessions.locks";

/// How long one waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How often one looks whether the other is done.
const LOOK: Duration = Duration::from_millis(20);

/// The room of the word in the file, in bytes. The longest has three numbers, of 10, 30 and 20 digits at most.
const WORD: usize = 72;

/// The lock on a session: released when it is dropped.
#[derive(Debug)]
pub struct Hold {
    file: File,
    /// What stood in the file before.
    found: String,
    /// Whether the word in the file is to stand.
    leaves_word: bool,
}

/// What tells one time that a session was let go from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token(String);

impl Hold {
    /// Waits until the session is open nowhere else.
    ///
    /// # Errors
    /// It is still open elsewhere after `patience`, or the file cannot be locked.
    pub(super) fn take(
        home: &Path,
        session: &str,
        patience: Duration,
    ) -> Result<Self, RecordError> {
        let path = file_of(home, session);
        let fail = |cause| RecordError::Lock {
            path: path.clone(),
            cause,
        };
        let folder = path.parent().unwrap_or(home);
        make_private_folder(folder).map_err(fail)?;
        narrow(folder);
        let mut options = private_file_options();
        options.create(true).truncate(false).read(true).write(true);
        let file = options.open(&path).map_err(fail)?;
        narrow(&path);
        let began = Instant::now();
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self::signed(file)),
                Err(TryLockError::Error(source)) => return Err(fail(source)),
                Err(TryLockError::WouldBlock) => {}
            }
            if began.elapsed() >= patience {
                return Err(RecordError::InUse {
                    session: session.to_owned(),
                    by: holder(&path),
                    waited: patience,
                });
            }
            if !told {
                // It is of use while it lasts, and no warning of the session's, which are shown at its end.
                tracing::warn!(
                    target: "contexture::hold",
                    "waiting for the session `{session}`, which {} has open",
                    holder(&path)
                );
                told = true;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Locks all sessions that were ever open, for what is done to the record as a whole.
    ///
    /// # Errors
    /// One of them is open, or the locks cannot be read.
    pub(super) fn take_all(home: &Path) -> Result<Vec<File>, RecordError> {
        let folder = home.join(FOLDER);
        let fail = |cause| RecordError::Lock {
            path: folder.clone(),
            cause,
        };
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(fail)?,
        };
        let mut held = Vec::new();
        for entry in entries {
            let path = entry.map_err(fail)?.path();
            let file = File::options().read(true).write(true).open(&path);
            let file = file.map_err(fail)?;
            match file.try_lock() {
                Ok(()) => held.push(file),
                Err(TryLockError::Error(source)) => return Err(fail(source)),
                Err(TryLockError::WouldBlock) => {
                    return Err(RecordError::Open { by: holder(&path) });
                }
            }
        }
        Ok(held)
    }

    /// Lets go of it, and leaves word, which stands until somebody else takes it.
    pub(super) fn let_go(mut self) -> Option<Token> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_nanos());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let token = format!("let go {} {now} {number}", std::process::id());
        self.leaves_word = write_over(&mut self.file, &token).is_ok();
        self.leaves_word.then_some(Token(token))
    }

    /// Whether nobody has had the session since it was let go with this word.
    pub(super) fn follows(&self, token: &Token) -> bool {
        self.found == token.0
    }

    /// Writes down who holds it, for the error of others that wait. A failure is ignored.
    fn signed(mut file: File) -> Self {
        let mut found = String::new();
        let _ = file.read_to_string(&mut found);
        let _ = write_over(&mut file, &std::process::id().to_string());
        Self {
            file,
            found: found.trim_end().to_owned(),
            leaves_word: false,
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The file stays: one that was removed would be held by those who have it open yet.
        if !self.leaves_word {
            let _ = write_over(&mut self.file, "");
        }
        // Closing the file is not enough. A child made by `fork` has it open, too, and would hold the session as long
        // as it lives.
        let _ = self.file.unlock();
    }
}

/// Puts a word in the place of the one before. It always takes the same room: a file that is cut to nothing and written
/// anew, at every turn, has the file system look for a block, and put it on the disk when it is closed.
fn write_over(file: &mut File, text: &str) -> std::io::Result<()> {
    file.rewind()?;
    file.write_all(format!("{text:WORD$}").as_bytes())
}

/// A name says anything, its hash is a file's name everywhere.
fn file_of(home: &Path, session: &str) -> PathBuf {
    let name = format!("{:032x}", xxh3_128(session.as_bytes()));
    home.join(FOLDER).join(name)
}

fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    match (read, text.trim_end().parse::<u32>()) {
        (Ok(_), Ok(id)) if id == std::process::id() => "this very process".to_owned(),
        (Ok(_), Ok(id)) => format!("the process {id}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn take(home: &Path, session: &str, milliseconds: u64) -> Result<Hold, RecordError> {
        Hold::take(home, session, Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_session_is_held_by_one_until_that_one_lets_go() {
        let home = tempfile::tempdir().unwrap();
        let held = take(home.path(), "s", 0).unwrap();
        let error = take(home.path(), "s", 60).unwrap_err().to_string();
        assert!(error.contains("`s`"), "{error}");
        assert!(error.contains("this very process"), "{error}");
        take(home.path(), "../another", 0).unwrap();
        drop(held);
        take(home.path(), "s", 0).unwrap();
    }

    #[test]
    fn who_comes_second_waits() {
        let home = tempfile::tempdir().unwrap();
        let held = take(home.path(), "s", 0).unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| take(home.path(), "s", 60_000));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!second.is_finished());
            drop(held);
            second.join().unwrap().unwrap();
        });
    }
}
