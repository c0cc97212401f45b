//! `contexture plugins install`, `allow` and `remove`: what a plugin is and asks for, shown before it is trusted.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use contexture_engine_api::make_private_folder;
use inquire::{Confirm, InquireError};

use super::{folder_of, manifest};
use crate::error::{CliError, Lines, did_you_mean};
use crate::{Global, OK, engines, output, setup, terminal};
use contexture::catalog::{MANIFEST_FILE, Manifest, Plugin, PluginState};
use contexture::config::Loaded;

/// A plugin with its library, as it is shown.
struct Shown {
    manifest: Manifest,
    library: PathBuf,
    digest: String,
}

impl Shown {
    fn of(plugin: &Plugin) -> Result<Self, CliError> {
        let manifest = manifest(plugin)?;
        let PluginState::Ready { library, .. } = &plugin.state else {
            let folder = plugin.folder.display();
            return Err(CliError::usage(
                format!("the plugin in {folder} is not built"),
                format!("build it first: contexture plugins build {folder}"),
            ));
        };
        let digest = manifest
            .digest(library)
            .map_err(|problem| CliError::Unusable {
                library: library.clone(),
                because: Lines(problem.to_string()),
            })?;
        Ok(Self {
            manifest,
            library: library.clone(),
            digest,
        })
    }

    /// What there is to know of it. None of its code was run.
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
        row("library", &library.display().to_string());
        row("sha256", digest);
        match &manifest.asks {
            None => row(
                "asks for",
                "its manifest does not say: it may do all that an engine may",
            ),
            Some(asks) if asks.is_empty() => row("asks for", "nothing but to compact"),
            Some(asks) => {
                for (at, flag) in asks.iter().enumerate() {
                    let label = if at == 0 { "asks for" } else { "" };
                    row(label, &format!("{flag}: {}", asked(flag)));
                }
            }
        }
        text.push_str("It runs with all your rights, whatever it asks for.\n");
        text
    }
}

/// What a flag of an engine's is, in words.
fn asked(flag: &str) -> &'static str {
    match flag {
        "keeps_sessions" => "it keeps whole conversations in its data directory",
        "reads_transcript" => "it reads the whole conversation, which is stored for it",
        "selects" => "it may show a request another window than the one that stays",
        "rewrites" => "it changes the window before every request",
        "keeps_user_messages" => {
            "it may put a preview in place of your last message, where it keeps that"
        }
        "offers_tools" => "its tools are put into every request",
        "limits_tool_calls" => "it may forbid the model to call tools",
        _ => "this version does not know what that is",
    }
}

/// Asks the person at the terminal; elsewhere `--yes` says it.
fn agreed(question: &str, yes: bool) -> Result<bool, CliError> {
    if yes {
        return Ok(true);
    }
    let unasked = |why: String| CliError::usage(why, "look at what is shown above, and add --yes");
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(unasked("nobody is there to be asked".to_owned()));
    }
    match Confirm::new(question).with_default(false).prompt() {
        Ok(agreed) => Ok(agreed),
        Err(InquireError::OperationCanceled | InquireError::OperationInterrupted) => Ok(false),
        Err(error) => Err(unasked(format!("it could not be asked: {error}"))),
    }
}

/// Writes the manifest of a plugin with its library pinned.
fn pin(shown: &Shown, to: &Path) -> Result<(), CliError> {
    let from = &shown.manifest.path;
    let text = std::fs::read_to_string(from).map_err(|source| CliError::Read {
        input: from.display().to_string(),
        source,
    })?;
    let pinned = shown
        .manifest
        .with_pin(&text, &shown.digest)
        .ok_or_else(|| {
            CliError::usage(
                format!("{} cannot be given a pin as it is written", from.display()),
                format!("write it yourself: sha256: {}", shown.digest),
            )
        })?;
    output::write_file(to, &pinned)
}

pub(crate) fn install(global: &Global, path: &Path, yes: bool) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
    let shown = Shown::of(&folder_of(path)?)?;
    let name = &shown.manifest.name;
    shown
        .manifest
        .verify(&shown.library)
        .map_err(|problem| CliError::Unusable {
            library: shown.library.clone(),
            because: Lines(problem.to_string()),
        })?;
    let Some(dir) = loaded.plugin_dirs.first() else {
        return Err(CliError::usage(
            "there is no plugin folder: `plugins.dirs` is empty",
            "name one there, or take the key out to have plugins/context_engine beside the config file",
        ));
    };
    let folder = dir.join(name);
    if shown.library.parent() == std::fs::canonicalize(&folder).ok().as_deref() {
        return Err(CliError::usage(
            format!("{name} lies in the plugin folder already"),
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
        terminal::say(&format!(
            "It takes the place of {before} in {}.\n",
            folder.display()
        ));
        if folder.join("Cargo.toml").exists() {
            return Err(CliError::usage(
                format!("{} holds a plugin's source", folder.display()),
                "move it away first: what is installed would stand among it",
            ));
        }
    }
    if !agreed(&format!("Install {name}?"), yes)? {
        return Ok(OK);
    }
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CliError::Write { path, source }
    };
    // Both files are written whole elsewhere first: half a plugin would be found, and what ran before would not.
    make_private_folder(dir).map_err(failed(dir))?;
    let staged = tempfile::Builder::new()
        .prefix(".contexture-")
        .tempdir_in(dir);
    let staged = staged.map_err(failed(&folder))?;
    let new_library = staged.path().join("library");
    // Without a `plugin.yaml` it is nobody's plugin.
    let new_manifest = staged.path().join("manifest");
    let (library, manifest) = (
        folder.join(&shown.manifest.library),
        folder.join(MANIFEST_FILE),
    );
    output::replace_file(&new_library, None, |file| {
        std::io::copy(&mut std::fs::File::open(&shown.library)?, file)
    })
    .map_err(failed(&library))?;
    // The pin is of what was shown: where it was replaced meanwhile, it is never loaded.
    pin(&shown, &new_manifest).map_err(|error| match error {
        CliError::Write { source, .. } => failed(&manifest)(source),
        error => error,
    })?;
    make_private_folder(&folder).map_err(failed(&folder))?;
    for (new, path) in [(&new_library, &library), (&new_manifest, &manifest)] {
        std::fs::rename(new, path).map_err(failed(path))?;
    }
    output::print(&format!(
        "installed {name} {} in {}, pinned\n{}",
        shown.manifest.version,
        folder.display(),
        way_to_use(&loaded, name)
    ))?;
    Ok(OK)
}

fn way_to_use(loaded: &Loaded, name: &str) -> String {
    match loaded.config.context.engine == *name {
        true => format!(
            "`context.engine` names it already: {name} runs in sessions that are opened from now on, also of a gateway that \
             runs\n"
        ),
        false => "it runs once `context.engine` names it: `contexture plugins` at a terminal chooses, or write it into config.yaml\n".to_owned(),
    }
}

pub(crate) fn allow(global: &Global, name: &str, yes: bool) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
    let shown = Shown::of(&named(&loaded, name)?)?;
    terminal::say(&shown.text());
    match shown.manifest.pinned() {
        Some(pinned) if pinned == shown.digest => {
            output::print(&format!("{name} is pinned to this library already\n"))?;
            return Ok(OK);
        }
        Some(pinned) => terminal::say(&format!("It was pinned to another library, {pinned}.\n")),
        None => {}
    }
    if !agreed(&format!("Allow {name}, and pin this library?"), yes)? {
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

pub(crate) fn remove(global: &Global, name: &str, yes: bool) -> Result<u8, CliError> {
    let loaded = setup::load_config(global)?;
    let folder = named(&loaded, name)?.folder;
    if folder.join("Cargo.toml").exists() {
        return Err(CliError::usage(
            format!("{} holds the plugin's source", folder.display()),
            "remove it yourself, if nothing in it is needed any more",
        ));
    }
    if !agreed(&format!("Remove {name}, {}?", folder.display()), yes)? {
        return Ok(OK);
    }
    // A link is taken away, and not what it leads to.
    let removed = match folder.is_symlink() {
        true => std::fs::remove_file(&folder),
        false => std::fs::remove_dir_all(&folder),
    };
    removed.map_err(|source| CliError::Write {
        path: folder.clone(),
        source,
    })?;
    let mut text = format!("removed {}\n", folder.display());
    let kept = loaded.home.join("engines").join(name);
    if kept.exists() {
        let _ = writeln!(text, "what it kept stays in {}", kept.display());
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

/// The plugin of this name in the plugin folders.
fn named(loaded: &Loaded, name: &str) -> Result<Plugin, CliError> {
    let catalog = engines::scan(loaded)?;
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
                "{hint}`contexture plugins list` names them all, and the folders that were searched"
            ),
        )
    })
}
