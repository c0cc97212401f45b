//! The token of a home directory's gateway.
//!
//! Whoever can read the home directory may use the keys of its configuration, and nobody else on this machine or in a
//! browser may. A gateway therefore asks for a token that lies there: [`GatewayToken::of`] reads it, and makes it the
//! first time.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use contexture_base::private::narrow;
use contexture_base::trust::{self, Untrusted};

/// Its file in the home directory.
const FILE: &str = "gateway.token";
/// How many random bytes it has.
const RANDOM: usize = 32;
/// No shorter text is taken for a token.
const SHORTEST: usize = 32;
/// No more of the file is read.
const LONGEST: u64 = 4096;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be trusted or read.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The file holds something else.
    #[error(
        "{} holds no token of at least {SHORTEST} visible characters: delete it, and the next start makes another one",
        path.display()
    )]
    Invalid {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made.
    #[error("cannot make {}: {cause}", path.display())]
    NotMade {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
}

/// The token of a home directory's gateway, and its file.
#[derive(Clone)]
pub struct GatewayToken {
    text: String,
    path: PathBuf,
}

impl GatewayToken {
    /// Reads the token of this home directory, or makes it if there is none.
    ///
    /// # Errors
    /// The file cannot be read or made, others may have written it, or it holds no token.
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
            // A link that leads nowhere.
            None => Err(not_made(ErrorKind::NotFound.into())),
        }
    }

    /// The token itself.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file that it is in.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for GatewayToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// Makes the file under another name first, so that nobody sees half of it. If another process was faster, its file
/// stays.
fn make(home: &Path, path: &Path) -> std::io::Result<()> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).map_err(std::io::Error::other)?;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = tempfile::NamedTempFile::new_in(home)?;
    writeln!(file, "{hex}")?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}
