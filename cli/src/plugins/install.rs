//! `contexture plugins install`, `allow` and `remove`: decide which plugins are trusted.
//!
//! A plugin runs with all rights of the user. So [`Shown`] collects what can be known about it
//! without running its code: its manifest, its library and the hash of that library. The user sees
//! this and agrees, or passes `--yes`.
//!
//! [`install`] copies the plugin into the plugin folder and [`allow`] leaves it where it is. Both
//! write the hash into the manifest, which pins the plugin: another library is then never loaded.
//! [`remove`] deletes the plugin's folder but not what its engine stored. Whether a pin holds is
//! checked by `contexture::catalog` when the plugin is loaded.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use contexture_engine_api::make_private_folder;

use super::{folder_of, manifest};
use crate::edit::{Edit, FileFormat, apply};
use crate::error::{CliError, did_you_mean};
use crate::{Global, OK, consent, output, start, terminal};
use contexture::catalog::{GENERATED, MANIFEST_FILE, Manifest, Plugin, PluginState};
use contexture::config::Loaded;
use contexture::engines::registered_engines;

/// A plugin as it is shown before it is trusted, with its library and the SHA-256 of that library. If
/// the engine is a program, the SHA-256 is that of all its files.
pub(super) struct Shown {
    manifest: Manifest,
    library: PathBuf,
    digest: String,
}

impl Shown {
    pub(super) fn of(plugin: &Plugin) -> Result<Self, CliError> {
        let manifest = manifest(plugin)?;
        let PluginState::Ready { library, .. } = &plugin.state else {
            let folder = plugin.folder.display();
            return Err(CliError::usage(
                format!("the plugin in {folder} is not built"),
                format!("build it first: contexture plugins build {folder}"),
            ));
        };
        let digest = manifest.digest(library);
        // A program that cannot be started is not worth a pin.
        let startable = digest.and_then(|digest| manifest.program().map(|_| digest));
        let digest = startable.map_err(|problem| CliError::unusable(library, &problem))?;
        Ok(Self {
            manifest,
            library: library.clone(),
            digest,
        })
    }

    /// Returns the description that the user agrees to. Everything in it was read from files, since
    /// none of the plugin's code may run yet.
    fn text(&self) -> String {
        let Self {
            manifest,
            library,
            digest,
        } = self;
        let mut text = String::new();
        let mut row = |label: &str, value: &str| {
            let _ = writeln!(text, "{label:<13}{}", terminal::one_line(value, 300));
        };
        row("name", &manifest.name);
        row("version", &manifest.version);
        row("description", &manifest.description);
        match &manifest.command {
            None => row("library", &library.display().to_string()),
            Some(command) => row("runs", &command.join(" ")),
        }
        row("sha256", digest);
        match &manifest.asks {
            None => row(
                "asks for",
                "its manifest does not say, so it may do all that an engine may",
            ),
            Some(asks) if asks.is_empty() => row("asks for", "only to compact"),
            Some(asks) => {
                for (at, flag) in asks.iter().enumerate() {
                    let label = if at == 0 { "asks for" } else { "" };
                    row(label, &format!("{flag}: {}", asked(flag)));
                }
            }
        }
        text.push_str("It runs with all your rights, whatever it asks for.\n");
        if is_bundled(&manifest.name) {
            let _ = writeln!(text, "{}", takes_place(&manifest.name));
        }
        text
    }
}

/// Whether an engine that comes with this program has this name.
pub(super) fn is_bundled(name: &str) -> bool {
    registered_engines().is_ok_and(|all| all.iter().any(|engine| engine.name == name))
}

/// Says what a plugin with the name of an engine that comes with this program means.
pub(super) fn takes_place(name: &str) -> String {
    format!(
        "It takes the place of the engine `{name}` that comes with Contexture, for stored sessions as well."
    )
}

/// Returns what a flag in the manifest allows an engine to do, in words. A flag of a later version
/// is unknown, which the text says.
fn asked(flag: &str) -> &'static str {
    match flag {
        "reads_transcript" => "it reads the whole conversation, which the host stores for it",
        "selects" => "it may send a request a different window than the stored one",
        "rewrites" => "it changes the window before every request",
        "keeps_user_messages" => {
            "it may replace your last message by a preview, if it stores the message"
        }
        "offers_tools" => "its tools are put into every request",
        "limits_tool_calls" => "it may forbid the model to call tools",
        _ => "this version does not know this permission",
    }
}

/// Writes the manifest of a plugin to `to`, with the hash of its library as the pin. Fails if the
/// manifest is written in a form that cannot be changed at this one place.
fn pin(shown: &Shown, to: &Path) -> Result<(), CliError> {
    let from = &shown.manifest.path;
    let text = std::fs::read_to_string(from).map_err(CliError::read(from))?;
    // A build replaces a generated manifest and would remove the pin, so from now on the text belongs
    // to the user.
    let text = text.strip_prefix(GENERATED).unwrap_or(&text);
    let (path, value) = (shown.manifest.pin_keys(), shown.digest.as_str().into());
    let pinned = apply(FileFormat::Yaml, Some(text), &[Edit::Set { path, value }]);
    let pinned = pinned.map_err(|_| {
        CliError::usage(
            format!("the form of {} does not allow adding a pin", from.display()),
            format!("add it yourself: sha256: {}", shown.digest),
        )
    })?;
    output::write_file(to, &pinned.text)
}

/// Shows a plugin, asks the user, and copies it into the first plugin folder with its library
/// pinned. An earlier version is replaced. Fails if the library does not match an existing pin.
pub(crate) fn install(global: &Global, path: &Path, yes: bool) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let shown = Shown::of(&folder_of(path)?)?;
    let name = &shown.manifest.name;
    let verified = shown.manifest.verify(&shown.library);
    verified.map_err(|problem| CliError::unusable(&shown.library, &problem))?;
    let dir = first_folder(&loaded)?;
    let folder = dir.join(name);
    if shown.library.parent() == std::fs::canonicalize(&folder).ok().as_deref() {
        return Err(CliError::usage(
            format!("{name} is already in the plugin folder"),
            format!("pin it where it is: contexture plugins allow {name}"),
        ));
    }
    terminal::say(&shown.text());
    if folder.exists() {
        let before = folder_of(&folder).and_then(|plugin| manifest(&plugin));
        let before = before.map_or_else(
            |_| "what is there".to_owned(),
            |before| format!("version {}", before.version),
        );
        terminal::say(&format!("It replaces {before} in {}.\n", folder.display()));
        if folder.join("Cargo.toml").exists() {
            return Err(CliError::usage(
                format!("{} holds the source of a plugin", folder.display()),
                "move it away first: the installed files would mix with it",
            ));
        }
    }
    if !consent::agreed(&format!("Install {name}?"), yes)? {
        return Ok(OK);
    }
    put(dir, &shown)?;
    output::print(&format!(
        "installed {name} {} in {}, pinned\n{}",
        shown.manifest.version,
        folder.display(),
        way_to_use(&loaded, name)
    ))?;
    Ok(OK)
}

/// Returns the plugin folder that plugins are installed in: the first of `plugins.dirs`.
pub(super) fn first_folder(loaded: &Loaded) -> Result<&Path, CliError> {
    let first = loaded.plugin_dirs.first().map(PathBuf::as_path);
    first.ok_or_else(|| {
        CliError::usage(
            "there is no plugin folder: `plugins.dirs` is empty",
            "name one there, or remove the key to use plugins/context_engine beside the config file",
        )
    })
}

/// Puts the files of a plugin into its folder in the plugin folder `dir`, with the manifest pinned to
/// them. The folder is replaced as a whole, since a file of an earlier version would not match the pin
/// of a program. It stays whole if anything fails.
pub(super) fn put(dir: &Path, shown: &Shown) -> Result<(), CliError> {
    let folder = dir.join(&shown.manifest.name);
    let failed = CliError::write(&folder);
    let files = shown.manifest.files();
    let files = files.map_err(|problem| CliError::unusable(&shown.library, &problem))?;
    make_private_folder(dir).map_err(failed)?;
    let staged = tempfile::Builder::new()
        .prefix(".contexture-")
        .tempdir_in(dir)
        .map_err(failed)?;
    let new = staged.path().join("new");
    make_private_folder(&new).map_err(failed)?;
    let from = shown.manifest.path.parent().unwrap_or(Path::new(""));
    for file in files {
        let to = new.join(&file);
        let within = to.parent().unwrap_or(&new);
        make_private_folder(within)
            .and_then(|()| std::fs::copy(from.join(&file), &to))
            .map_err(failed)?;
    }
    // The pin is the hash that was shown. If a file was replaced in the meantime, the copy does not
    // match and is never loaded.
    pin(shown, &new.join(MANIFEST_FILE)).map_err(|error| match error {
        CliError::Write { source, .. } => failed(source),
        error => error,
    })?;
    if folder.exists() {
        // The old files go with the temporary folder.
        std::fs::rename(&folder, staged.path().join("old")).map_err(failed)?;
    }
    std::fs::rename(&new, &folder).map_err(failed)
}

/// Returns what the user has to do so that the engine runs, which is nothing if the configuration
/// names it already.
fn way_to_use(loaded: &Loaded, name: &str) -> String {
    match loaded.config.context.engine == *name {
        true => format!(
            "`context.engine` already names it: sessions opened from now on use {name}, also in a running gateway\n"
        ),
        false => "it runs once `context.engine` names it: choose it with `contexture plugins` at a terminal, or \
                  write it into config.yaml\n".to_owned(),
    }
}

/// Shows a plugin that is in a plugin folder, asks the user, and pins its current library. Nothing
/// is asked if this very library is pinned already.
pub(crate) fn allow(global: &Global, name: &str, yes: bool) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let shown = Shown::of(&named(&loaded, name)?)?;
    terminal::say(&shown.text());
    match shown.manifest.pinned() {
        Some(pinned) if pinned == shown.digest => {
            output::print(&format!("{name} is already pinned to this library\n"))?;
            return Ok(OK);
        }
        Some(pinned) => terminal::say(&format!("It was pinned to another library, {pinned}.\n")),
        None => {}
    }
    if !consent::agreed(&format!("Allow {name}, and pin this library?"), yes)? {
        return Ok(OK);
    }
    pin(&shown, &shown.manifest.path)?;
    output::print(&format!(
        "pinned {name} {} in {}\n",
        shown.manifest.version,
        shown.manifest.path.display()
    ))?;
    Ok(OK)
}

/// Removes a plugin's folder after asking. A folder with the plugin's source is refused, since
/// deleting it might lose work. What the engine stored stays.
pub(crate) fn remove(global: &Global, name: &str, yes: bool) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    let folder = named(&loaded, name)?.folder;
    if folder.join("Cargo.toml").exists() {
        return Err(CliError::usage(
            format!("{} holds the plugin's source", folder.display()),
            "delete it yourself, if nothing in it is needed any more",
        ));
    }
    if !consent::agreed(&format!("Remove {name}, {}?", folder.display()), yes)? {
        return Ok(OK);
    }
    // A link is removed itself, and not the folder that it points to.
    let removed = match folder.is_symlink() {
        true => std::fs::remove_file(&folder),
        false => std::fs::remove_dir_all(&folder),
    };
    removed.map_err(CliError::write(&folder))?;
    let mut text = format!("removed {}\n", folder.display());
    let kept = loaded.home.join("engines").join(name);
    if kept.exists() {
        let _ = writeln!(text, "its data stays in {}", kept.display());
    }
    if loaded.config.context.engine == name {
        let _ = writeln!(
            text,
            "`context.engine` still names it: `contexture engines list` says what runs instead"
        );
    }
    output::print(&text)?;
    Ok(OK)
}

/// Returns the plugin of this name in the plugin folders. Fails with a suggestion if there is none.
fn named(loaded: &Loaded, name: &str) -> Result<Plugin, CliError> {
    let catalog = start::scan(loaded)?;
    let names: Vec<_> = catalog
        .plugins
        .iter()
        .map(|plugin| plugin.name.clone())
        .collect();
    let found = catalog
        .plugins
        .into_iter()
        .find(|plugin| plugin.name == name);
    found.ok_or_else(|| {
        let hint = did_you_mean(name, names.iter().map(String::as_str));
        CliError::usage(
            format!("there is no plugin `{name}`"),
            format!(
                "{hint}`contexture plugins list` lists all plugins and the folders that were searched"
            ),
        )
    })
}
