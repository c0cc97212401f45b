//! What the hooks keep between two calls: files in `hooks` in the home directory.
//!
//! A [`Folder`] has the text of a session's last compaction. Claude Code and Codex ask for it after
//! their own compaction, and OpenCode after a restart. Beside it stands which session an agent has
//! in a folder, which `contexture mcp --agent` looks up. Only the owner can read the files.

use std::path::{Path, PathBuf};

use contexture::Host;
use contexture_engine_api::make_private_folder;
use xxhash_rust::xxh3::xxh3_128;

use super::Caller;
use crate::error::CliError;
use crate::{input, output};

pub(super) struct Folder {
    /// The file with the text of the session's last compaction.
    text: PathBuf,
}

/// Returns the session that an agent last compacted in a folder. `None` if there is none.
///
/// # Errors
/// Fails if the file that says so cannot be read.
#[cfg(feature = "mcp")]
pub(crate) fn session_of(
    host: &Host,
    agent: Caller,
    folder: &Path,
) -> Result<Option<String>, CliError> {
    input::text_of(&noted(host, agent, folder))
}

impl Folder {
    pub(super) fn of(host: &Host, agent: Caller, session: &str) -> Self {
        let text = hooks(host).join(format!("{}-{}.txt", agent.name(), hash(session)));
        Self { text }
    }

    /// Stores the text of a compaction.
    pub(super) fn put(&self, text: &str) -> Result<(), CliError> {
        write(&self.text, text)
    }

    pub(super) fn read(&self) -> Result<Option<String>, CliError> {
        input::text_of(&self.text)
    }

    /// Returns the text and removes it.
    pub(super) fn take(&self) -> Result<Option<String>, CliError> {
        let text = self.read()?;
        if text.is_some() {
            std::fs::remove_file(&self.text).map_err(CliError::write(&self.text))?;
        }
        Ok(text)
    }

    /// Notes which session an agent has in a folder.
    pub(super) fn note(
        host: &Host,
        agent: Caller,
        folder: &Path,
        session: &str,
    ) -> Result<(), CliError> {
        // The hook's folder follows the agent's `cd`; this variable names the one it started in.
        let project = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from);
        let project = project.filter(|_| agent == Caller::Claude);
        let folder = project.unwrap_or_else(|| folder.to_owned());
        write(&noted(host, agent, &folder), session)
    }
}

fn hooks(host: &Host) -> PathBuf {
    host.engines().loaded().home.join("hooks")
}

fn noted(host: &Host, agent: Caller, folder: &Path) -> PathBuf {
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = hash(&folder.to_string_lossy());
    hooks(host).join(format!("{}-folder-{folder}.txt", agent.name()))
}

// Names of sessions and folders may hold characters that no file name can have.
fn hash(text: &str) -> String {
    format!("{:032x}", xxh3_128(text.as_bytes()))
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    if let Some(folder) = path.parent() {
        make_private_folder(folder).map_err(CliError::write(folder))?;
    }
    output::write_file(path, text)
}
