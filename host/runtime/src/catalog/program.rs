//! The files of a plugin that is a program: a script, or whatever its `command` starts.
//!
//! An interpreter reads the files itself, and a script may load others that lie beside it. So
//! nobody else may be able to write any file or folder of the plugin, and a pin is the digest of all
//! of them. Unlike a library, the files are read again after the check. Only this user and root can
//! change them in between, and both can change everything else as well.

use std::fs::File;
use std::io::ErrorKind;
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use contexture_base::trust::{self, Untrusted, check_writers};

use super::library::hex;
use super::manifest::{MANIFEST_FILE, PluginProblem};

/// Returns the first part of a command that names a file in the plugin's folder. The first word
/// is the name of a program on the PATH unless it is a path.
pub(super) fn file_of<'a>(folder: &Path, command: &'a [String]) -> Option<&'a str> {
    let is_inside = |part: &str| {
        let mut steps = Path::new(part).components();
        steps.all(|step| matches!(step, Component::Normal(_) | Component::CurDir))
    };
    let (program, arguments) = command.split_first()?;
    let program = Some(program).filter(|program| is_path(program));
    let mut parts = program.into_iter().chain(arguments).map(String::as_str);
    parts.find(|part| is_inside(part) && folder.join(part).is_file())
}

fn is_path(program: &str) -> bool {
    program.contains(std::path::is_separator)
}

/// Returns the program to start: a path as it is, or relative to the plugin's folder, and a plain
/// name as it is found on the PATH. `None` if it is not found.
///
/// # Errors
/// Returns [`PluginProblem::Untrusted`] if another user can write the program that a path names, and
/// [`PluginProblem::Mismatch`] if nobody may execute it.
pub(super) fn find(folder: &Path, program: &str) -> Result<Option<PathBuf>, PluginProblem> {
    if is_path(program) {
        let path = folder.join(program);
        if !is_executable(&trust::open(&path)?) {
            return Err(PluginProblem::Mismatch(format!(
                "{0} is not executable: run `chmod +x '{0}'`",
                path.display()
            )));
        }
        return Ok(Some(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let name = format!("{program}{}", std::env::consts::EXE_SUFFIX);
    // A relative folder on the PATH would mean another one in the plugin's folder.
    let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
    Ok(
        (folders.flat_map(|folder| [folder.join(&name), folder.join(program)]))
            .find(|program| program.is_file()),
    )
}

/// Whether anybody may execute a file. Only Unix has a bit for that.
fn is_executable(file: &File) -> bool {
    #[cfg(unix)]
    return (file.metadata())
        .is_ok_and(|metadata| PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0);
    #[cfg(not(unix))]
    return file.metadata().is_ok();
}

/// Returns all files in the plugin's folder and below except the manifest, relative to the folder and
/// sorted.
///
/// # Errors
/// Returns [`PluginProblem`] if another user can write one of the files or folders, a link leads to
/// a folder outside, or something cannot be read.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, PluginProblem> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        |cause| PluginProblem::Untrusted(Untrusted::Unreadable { path, cause })
    };
    let root = std::fs::canonicalize(folder).map_err(unreadable(folder))?;
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let here = folder.join(&below);
        let metadata = std::fs::metadata(&here).map_err(unreadable(&here))?;
        check_writers(&here, &metadata)?;
        for entry in std::fs::read_dir(&here).map_err(unreadable(&here))? {
            let entry = entry.map_err(unreadable(&here))?;
            let (path, below) = (entry.path(), below.join(entry.file_name()));
            let is_link = entry.file_type().map_err(unreadable(&path))?.is_symlink();
            let metadata = match std::fs::metadata(&path) {
                // A link to nothing cannot be read by an engine either.
                Err(error) if is_link && error.kind() == ErrorKind::NotFound => continue,
                metadata => metadata.map_err(unreadable(&path))?,
            };
            match metadata.is_dir() {
                // What a link leads to inside is visited where it is.
                true if is_link => {
                    let target = std::fs::canonicalize(&path).map_err(unreadable(&path))?;
                    if !target.starts_with(&root) {
                        return Err(PluginProblem::leads_outside(&path, folder, &target));
                    }
                }
                true => folders.push(below),
                false => {
                    // The target of a link is held to the same rule, wherever it is.
                    check_writers(&path, &metadata)?;
                    if below.as_os_str() != MANIFEST_FILE {
                        found.push(below);
                    }
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the SHA-256 over the paths and the contents of these files, in lower-case hex.
///
/// # Errors
/// Returns [`PluginProblem::Untrusted`] if a file is not a regular file or cannot be read.
pub(super) fn digest(folder: &Path, files: &[PathBuf]) -> Result<String, PluginProblem> {
    let mut all = hmac_sha256::Hash::new();
    for file in files {
        let path = folder.join(file);
        let mut bytes = Vec::new();
        let mut opened = trust::open(&path)?;
        std::io::Read::read_to_end(&mut opened, &mut bytes)
            .map_err(|cause| Untrusted::Unreadable { path, cause })?;
        // The path is the same on every platform, and each part has a fixed length.
        let name = file
            .components()
            .map(|part| part.as_os_str().to_string_lossy());
        let name = name.collect::<Vec<_>>().join("/");
        all.update(hmac_sha256::Hash::hash(name.as_bytes()));
        all.update(hmac_sha256::Hash::hash(&bytes));
    }
    Ok(hex(&all.finalize()))
}
