//! `contexture plugins check`: everything that an engine is held to, played to a plugin.

use std::path::Path;

use contexture_testkit::conformance::{Checking, Subject, check_engine};

use super::folder_of;
use crate::error::{CliError, Lines};
use crate::terminal::Progress;
use crate::{Global, NEGATIVE, OK, output, setup};
use contexture::catalog::PluginState;
use contexture::engines::load_plugin;

pub(crate) fn run(path: &Path, global: &Global) -> Result<u8, CliError> {
    let deadline = setup::loading_deadline(global);
    let plugin = folder_of(path)?;
    let (manifest, library) = match &plugin.state {
        PluginState::Ready { manifest, library } => (manifest, library),
        PluginState::NotBuilt { expected, .. } => {
            return Err(CliError::usage(
                format!("there is no {} to check", expected.display()),
                format!(
                    "build it first: contexture plugins build {}",
                    path.display()
                ),
            ));
        }
        PluginState::Broken(problem) => {
            return Err(CliError::usage(
                format!("the plugin in {} cannot be used: {problem}", path.display()),
                "mend that first",
            ));
        }
    };
    let unusable = |why: String| CliError::Unusable {
        library: library.clone(),
        because: Lines(why),
    };
    manifest
        .verify(library)
        .map_err(|problem| unusable(problem.to_string()))?;
    let loaded = load_plugin(library, deadline).map_err(unusable)?;
    let said = loaded.description().clone();
    if (&said.name, &said.version) != (&manifest.name, &manifest.version) {
        return Err(unusable(format!(
            "the library says that it is {} {}, and {} that it is {} {}",
            said.name,
            said.version,
            manifest.path.display(),
            manifest.name,
            manifest.version
        )));
    }
    let subject = Subject::new(said.name.clone(), said.about, move |request| {
        loaded.create(request)
    });
    let progress = Progress::new(1, "playing conversations to it");
    let report = check_engine(subject, Checking::default());
    drop(progress);
    output::print(&format!(
        "{} {} ({})\n\n{report}",
        said.name,
        said.version,
        library.display()
    ))?;
    Ok(match report.broken().next() {
        None => OK,
        Some(_) => NEGATIVE,
    })
}
