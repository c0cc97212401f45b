//! The token of a home directory's gateway.
//!
//! Whoever can talk to a gateway uses the API keys of its configuration. People who can read the
//! home directory may use these keys anyway, but other users of the machine and pages in a browser
//! must not. The gateway therefore asks for a token that is stored in the home directory.
//!
//! [`GatewayToken`] is that token. It is read from its file, and created the first time. A token
//! that somebody else may have written is refused, because that person would know it.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use contexture_base::private::narrow;
use contexture_base::trust::{self, Untrusted};

/// The name of the token's file in the home directory.
const FILE: &str = "gateway.token";
/// The number of random bytes in a new token. They are written as hex digits.
const RANDOM: usize = 32;
/// The shortest text that is accepted as a token, in characters. A shorter one could be guessed.
const SHORTEST: usize = 32;
/// How many bytes of the file are read at most. A token is far shorter.
const LONGEST: u64 = 4096;

/// Why the token of a home directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be trusted, because others may have written it, or it cannot be read.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The file contains something that is not a token. If it is deleted, a new token is made.
    #[error(
        "{} does not hold a token of at least {SHORTEST} visible characters: delete it, and the next start \
         creates a new one",
        path.display()
    )]
    Invalid {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be created in the home directory.
    #[error("cannot make {}: {cause}", path.display())]
    NotMade {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
}

/// The token of a home directory's gateway, and the file that it is stored in. Its debug form does
/// not show the token.
#[derive(Clone)]
pub struct GatewayToken {
    text: String,
    path: PathBuf,
}

impl GatewayToken {
    /// Reads the token of this home directory, or creates it if there is none.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or created, if others may have written it, or if
    /// it does not contain a token.
    pub(crate) fn of(home: &Path) -> Result<Self, TokenError> {
        let path = home.join(FILE);
        if let Some(text) = read(&path)? {
            return Ok(Self { text, path });
        }
        let not_made = |cause| TokenError::NotMade {
            path: path.clone(),
            cause,
        };
        make(home, &path).map_err(not_made)?;
        match read(&path)? {
            Some(text) => Ok(Self { text, path }),
            // The file is a symbolic link to a file that does not exist.
            None => Err(not_made(ErrorKind::NotFound.into())),
        }
    }

    /// Returns the token itself, without white space around it. Compare it with what a client sent,
    /// and do not log it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the file that the token is stored in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for GatewayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Only the path: whoever reads a token in a log could use it.
        f.debug_struct("GatewayToken")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> Result<Option<String>, TokenError> {
    let file = match trust::open(path) {
        Ok(file) => file,
        Err(Untrusted::Unreadable { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    // An older version may have created the file with a wider mode, or the user may have copied it.
    narrow(path);
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    let text = text.trim();
    let is_token = text.len() >= SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
    match read {
        Ok(_) if is_token => Ok(Some(text.to_owned())),
        Ok(_) => Err(TokenError::Invalid {
            path: path.to_owned(),
        }),
        Err(cause) => Err(Untrusted::Unreadable {
            path: path.to_owned(),
            cause,
        }
        .into()),
    }
}

/// Creates the file under a temporary name first, so that nobody reads half a token. If another
/// process creates the token at the same time, the first file stays.
fn make(home: &Path, path: &Path) -> std::io::Result<()> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = tempfile::NamedTempFile::new_in(home)?;
    writeln!(file, "{hex}")?;
    // On disk before the file gets its name, so that a crash cannot leave an empty token.
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
