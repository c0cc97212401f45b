//! Narrows what an earlier version, or a copy, left open to other users.

use std::io::ErrorKind;
use std::path::Path;

use contexture_engine_api::make_private;

/// Takes a file or folder of the home directory away from other users, and says so.
pub fn narrow(path: &Path) {
    let target = path.display();
    match make_private(path) {
        Ok(false) => {}
        // A target of its own: the command does not show what a session logs.
        Ok(true) => tracing::warn!(
            target: "contexture::files",
            "{target} was open to other users; its permissions are now its owner's alone"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::info!("{target} cannot be taken away from other users: {error}"),
    }
}

/// Does so with a folder and the files in it.
pub fn narrow_folder(path: &Path) {
    narrow(path);
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            narrow(&entry.path());
        }
    }
}
