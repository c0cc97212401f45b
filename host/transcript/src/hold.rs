//! The lock that keeps a session open only once. If two processes continued one session at the same
//! time, its record would become a mixture of what each of them read, so one waits for the other.
//!
//! Each session has a lock file in the home directory. [`Hold::take`] locks it with a lock of the
//! operating system, which is released when the process ends, however it ends. The file also says
//! who holds the lock, for the error of a process that waits in vain.
//!
//! A session can be released and locked again later. [`Hold::release`] then leaves a token in the
//! file. If it is still there when the session is locked again, nobody has used the session in
//! between, and what is in memory is still valid. The token then stays in the file, and the file stays
//! open, so that a session that is released after every turn costs few calls of the system.
//!
//! In a shared database the lock is a lease instead, see `crate::postgres`.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use contexture_base::private::narrow;
use contexture_engine_api::{make_private_folder, private_file_options};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::RecordError;

/// The folder in the home directory that holds the lock files.
const FOLDER: &str = "sessions.locks";

/// How long a session waits by default if it is open elsewhere.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a waiting session tries again.
const LOOK: Duration = Duration::from_millis(20);

/// The number of bytes that the text in a lock file takes up. The longest is a token with three
/// numbers of at most 10, 30 and 20 digits.
const WORD: usize = 72;

/// How many lock files stay open while their sessions are released, beside those that are held. It
/// is as many as the sessions that a gateway keeps in memory by default.
const MOST_OPEN: usize = 64;

/// What a token begins with. The number of the process follows.
const RELEASED: &str = "let go ";

/// The lock on a session. It is released when this is dropped.
#[derive(Debug)]
pub struct Hold {
    /// The token that was there before the session was locked.
    found: String,
    /// The number of a lease, which rises with every holder. None for a lock file.
    fence: Option<Arc<AtomicI64>>,
    held: Box<dyn Held>,
}

/// A lock that is held. It is released when this is dropped.
pub(crate) trait Held: std::fmt::Debug + Send + Sync {
    /// Releases the lock and leaves a token. None if it could not be left.
    fn release(self: Box<Self>) -> Option<Token>;
}

/// Identifies one release of a session among all others.
#[derive(Debug)]
pub struct Token {
    word: String,
    fence: Option<Arc<AtomicI64>>,
    file: Option<Arc<OpenFile>>,
}

impl Token {
    /// A token that is this text.
    #[cfg(feature = "postgres")]
    pub(crate) fn of(word: String) -> Self {
        Self {
            word,
            fence: None,
            file: None,
        }
    }
}

/// A lock file that is locked.
#[derive(Debug)]
struct LockFile {
    file: Arc<OpenFile>,
    /// The token in the file, if it is still that of the session that locked it again.
    token: Option<String>,
    /// Whether the text in the file stays when the lock is released.
    leaves_word: bool,
}

/// An open lock file. All of them are counted.
#[derive(Debug)]
struct OpenFile(File);

static OPEN_FILES: AtomicUsize = AtomicUsize::new(0);

impl OpenFile {
    /// Opens the lock file at this path, see [`open_lock_file`].
    fn open(path: &Path) -> io::Result<Arc<Self>> {
        let file = open_lock_file(path)?;
        OPEN_FILES.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Self(file)))
    }

    /// Whether it is still in its folder. If it was removed, others lock another file.
    fn is_there(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            self.0.metadata().is_ok_and(|file| file.nlink() > 0)
        }
        // An open file cannot be removed here.
        #[cfg(not(unix))]
        true
    }

    /// The text in the file. Empty if it cannot be read, which is no token.
    fn text(&self) -> String {
        let (mut text, mut file) = ([0; WORD], &self.0);
        let read = file.rewind().and_then(|()| file.read(&mut text));
        let text = text.get(..read.unwrap_or(0)).unwrap_or_default();
        String::from_utf8_lossy(text).trim_end().to_owned()
    }

    /// Replaces the text in the file. It always has the same length. If the file were truncated and
    /// written anew, the file system would have to allocate a block and flush it each time.
    fn write_over(&self, text: &str) -> io::Result<()> {
        let mut file = &self.0;
        file.rewind()?;
        file.write_all(format!("{text:WORD$}").as_bytes())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        OPEN_FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hold {
    /// A lock of a backend. `found` is the token that was left before.
    #[cfg(feature = "postgres")]
    pub(crate) fn of(found: String, fence: Arc<AtomicI64>, held: Box<dyn Held>) -> Self {
        Self {
            found,
            fence: Some(fence),
            held,
        }
    }

    /// Locks a session. If it is open elsewhere, tries again until `patience` has passed. `before` is
    /// the token of the release if the session was locked before.
    ///
    /// # Errors
    /// The session is still open elsewhere after `patience`, or the file cannot be locked.
    pub(crate) fn take(
        home: &Path,
        session: &str,
        patience: Duration,
        before: Option<&Token>,
    ) -> Result<Self, RecordError> {
        let path = file_of(home, session);
        let fail = |cause| RecordError::Write {
            path: path.clone(),
            cause,
        };
        let open = before.and_then(|token| token.file.as_ref());
        let file = match open.filter(|file| file.is_there()) {
            Some(open) => Arc::clone(open),
            None => OpenFile::open(&path).map_err(fail)?,
        };
        let began = Instant::now();
        let mut told = false;
        loop {
            match file.0.try_lock() {
                Ok(()) => return Ok(Self::signed(file, before)),
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
                // The user must see this while it lasts. A warning of the session would appear only
                // at the end.
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

    /// Locks all sessions that were ever open, for an operation on the record as a whole. The locks
    /// are released when the files are closed.
    ///
    /// # Errors
    /// One of the sessions is open, or the lock files cannot be read.
    pub(crate) fn take_all(home: &Path) -> Result<Vec<File>, RecordError> {
        let folder = home.join(FOLDER);
        let fail = |cause| RecordError::Write {
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

    /// Releases the lock and leaves a token. The token stays until somebody else locks the session.
    /// None if it could not be left, and then [`continues`](Self::continues) can never be true.
    pub fn release(self) -> Option<Token> {
        let token = self.held.release()?;
        Some(Token {
            fence: self.fence,
            ..token
        })
    }

    /// Whether nobody has locked the session since it was released with this token. What was opened
    /// under the lock before may then be written under this one.
    pub(crate) fn continues(&mut self, token: &Token) -> bool {
        let continues = self.found == token.word;
        if continues && let (Some(own), Some(before)) = (&mut self.fence, &token.fence) {
            // The session that was opened under the earlier lease writes with that number. It goes
            // on under the new one, or its next commit would be refused.
            before.store(own.load(Ordering::Acquire), Ordering::Release);
            *own = Arc::clone(before);
        }
        continues
    }

    /// Writes the process id into the file, for the error of others that wait, unless it has the
    /// token `before`, which has the process id too. A failure is ignored, because the lock holds
    /// without it.
    fn signed(file: Arc<OpenFile>, before: Option<&Token>) -> Self {
        let found = file.text();
        let token = before
            .map(|token| &token.word)
            .filter(|word| **word == found);
        if token.is_none() {
            let _ = file.write_over(&std::process::id().to_string());
        }
        Self {
            fence: None,
            held: Box::new(LockFile {
                file,
                token: token.cloned(),
                leaves_word: false,
            }),
            found,
        }
    }
}

impl Held for LockFile {
    fn release(mut self: Box<Self>) -> Option<Token> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let file =
            (OPEN_FILES.load(Ordering::Relaxed) <= MOST_OPEN).then(|| Arc::clone(&self.file));
        let word = match self.token.take() {
            // Nobody else can have this token, so it still says that nobody came in between.
            Some(word) => word,
            None => {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let now = now.map_or(0, |now| now.as_nanos());
                let number = COUNT.fetch_add(1, Ordering::Relaxed);
                // Process id, time and counter together are unique, even if a process id is used again.
                let word = format!("{RELEASED}{} {now} {number}", std::process::id());
                self.file.write_over(&word).ok()?;
                word
            }
        };
        self.leaves_word = true;
        Some(Token {
            word,
            fence: None,
            file,
        })
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        // The file itself is not removed. A process that has it open could lock the removed file
        // while another one locks a new file.
        if !self.leaves_word {
            let _ = self.file.write_over("");
        }
        // Closing the file is not enough. A child made by `fork` has it open too, and would hold
        // the lock for as long as it lives.
        let _ = self.file.0.unlock();
    }
}

/// Opens a lock file. It and its folder are created on the first use, with access for their owner
/// only. If others have access, it is taken from them.
fn open_lock_file(path: &Path) -> std::io::Result<File> {
    let folder = path.parent().unwrap_or(path);
    let mut options = private_file_options();
    options.create(true).truncate(false).read(true).write(true);
    let file = match options.open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make_private_folder(folder)?;
            options.open(path)?
        }
        opened => opened?,
    };
    narrow(folder);
    narrow(path);
    Ok(file)
}

/// The lock file of a session. A session's name may contain anything, but its hash is a valid file
/// name everywhere.
fn file_of(home: &Path, session: &str) -> PathBuf {
    let name = format!("{:032x}", xxh3_128(session.as_bytes()));
    home.join(FOLDER).join(name)
}

/// Who holds the lock, in words. The file may be empty or unreadable, since writing to it may fail.
/// A process that locked its session again left its token there.
fn holder(path: &Path) -> String {
    let mut text = String::new();
    let read = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    let id = text.strip_prefix(RELEASED).unwrap_or(&text);
    match (
        read,
        id.split(' ').next().unwrap_or_default().parse::<u32>(),
    ) {
        (Ok(_), Ok(id)) if id == std::process::id() => "this very process".to_owned(),
        (Ok(_), Ok(id)) => format!("the process {id}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests;
