//! Restricts files of the home directory that an earlier version, or a copy, left readable for
//! other users.

use std::io::ErrorKind;
use std::path::Path;

use contexture_engine_api::make_private;

/// Removes other users' access to a file or folder and logs a warning if there was any. A
/// missing file is not an error, and any other failure is only logged, because the host can
/// work without this.
pub fn narrow(path: &Path) {
    let target = path.display();
    match make_private(path) {
        Ok(false) => {}
        // A separate target, so that commands can show this warning without everything else
        // that a session logs.
        Ok(true) => tracing::warn!(
            target: "contexture::files",
            "{target} was accessible to other users; now only its owner can access it"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::info!("{target} stays accessible to other users: {error}"),
    }
}

/// Removes other users' access to a folder and to the files directly in it. Subfolders and
/// links are left alone.
pub fn narrow_folder(path: &Path) {
    narrow(path);
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            narrow(&entry.path());
        }
    }
}
