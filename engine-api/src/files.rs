//! Files and folders that are their owner's alone, whatever the umask: conversations lie in them.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// The URI under which SQLite opens a file that nobody changes: without locks, and without a log beside it.
pub fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri + "?immutable=1"
}

/// Options with which a new file is its owner's alone (mode 0600). A file that is there keeps its mode.
pub fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options
}

/// Makes a folder, and those above it that are missing, each its owner's alone (mode 0700). A folder that is
/// there keeps its mode.
///
/// # Errors
/// What the system says; a file of this name.
pub fn make_private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Takes a file or folder away from everybody but its owner; says whether anybody else could use it. A link to
/// a folder is somebody's own arrangement, and is left alone.
///
/// # Errors
/// It is not there, or is another user's.
pub fn make_private(path: &Path) -> io::Result<bool> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;

        const OTHERS: u32 = 0o077;
        let there = std::fs::metadata(path)?;
        let mut permissions = there.permissions();
        let is_own = permissions.mode() & OTHERS == 0;
        if is_own || there.is_dir() && path.is_symlink() {
            return Ok(false);
        }
        permissions.set_mode(permissions.mode() & 0o7777 & !OTHERS);
        std::fs::set_permissions(path, permissions)?;
        Ok(true)
    }
    #[cfg(not(unix))]
    {
        std::fs::metadata(path).map(|_| false)
    }
}
