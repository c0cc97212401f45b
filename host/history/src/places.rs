//! Where the agents of a user keep their files.
//!
//! Each agent has a default below the user's home directory, and most honour a variable that moves
//! it. [`Places`] answers both, so that tests and other programs can name another home.

use std::path::{Path, PathBuf};

use contexture_base::{Env, path_of, user_home};

/// The user's home directory, and the variables that agents honour. If a variable is not set or is
/// empty, the agent's default counts.
pub struct Places<'a> {
    home: PathBuf,
    variable: Env<'a>,
}

impl<'a> Places<'a> {
    /// The places below a home directory, with the variables that `variable` returns.
    pub fn new(home: &Path, variable: Env<'a>) -> Self {
        Self {
            home: home.to_owned(),
            variable,
        }
    }

    /// The places of the user of this process. `None` if there is no [home directory](user_home).
    pub fn of_process(variable: Env<'a>) -> Option<Self> {
        let home = user_home(variable)?;
        Some(Self { home, variable })
    }

    /// The home directory itself.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The folder that a variable names, or else this one below the home directory.
    pub(crate) fn folder(&self, variable: &str, default: &str) -> PathBuf {
        self.named(variable)
            .unwrap_or_else(|| self.home.join(default))
    }

    /// The path that a variable names. `None` if the variable is not set or is empty. A `~` at its
    /// beginning is the home directory: a shell expands it, but an editor or a service passes it on
    /// as it is.
    pub(crate) fn named(&self, variable: &str) -> Option<PathBuf> {
        let path = path_of(self.variable, variable)?;
        Some(match path.strip_prefix("~") {
            Ok(below) => self.home.join(below),
            Err(_) => path,
        })
    }

    /// The folders in which programs for a desktop keep the data of a user: those of Linux, macOS
    /// and Windows. All are returned on every system, also those that do not exist.
    pub(crate) fn data(&self) -> Vec<PathBuf> {
        let mut folders = vec![
            self.folder("XDG_DATA_HOME", ".local/share"),
            self.home.join("Library/Application Support"),
        ];
        folders.extend(
            ["LOCALAPPDATA", "APPDATA"]
                .iter()
                .filter_map(|name| self.named(name)),
        );
        folders
    }

    /// The folders in which programs for a desktop keep the settings of a user. As with the data,
    /// those of all systems are returned.
    pub(crate) fn config(&self) -> Vec<PathBuf> {
        let mut folders = vec![
            self.folder("XDG_CONFIG_HOME", ".config"),
            self.home.join("Library/Application Support"),
        ];
        folders.extend(self.named("APPDATA"));
        folders
    }
}
