//! `contexture plugins check`: plays the conformance tests to a built plugin.
//!
//! [`run`] loads the plugin into this process, or starts its program, with simulated services, and
//! plays conversations of every kind to it. The report has a line for each requirement of the engine interface. The exit
//! code is 1 if one of them is not met.
//!
//! Before that, the engine is checked against its manifest, since the two can differ after a build. The tests themselves are in `contexture_testkit::conformance`, which plugin authors also
//! run as unit tests.

use std::path::{Path, PathBuf};

use contexture_engine_api::{MessageId, ToolCallView};
use contexture_testkit::Chat;
use contexture_testkit::conformance::{Checking, Recording, Subject, check_engine};

use super::folder_of;
use crate::error::CliError;
use crate::terminal::Progress;
use crate::{Global, NEGATIVE, OK, input, output, start};
use contexture::catalog::PluginState;
use contexture::engines::open_plugin;

/// Checks the plugin in a folder and prints the report. The conversations of `sessions` are played
/// as well. Fails if the plugin is not built, cannot be loaded, or calls itself something else than
/// its manifest says.
pub(crate) fn run(
    path: &Path,
    sessions: &[PathBuf],
    context_length: Option<u64>,
    global: &Global,
) -> Result<u8, CliError> {
    let mut how = Checking::default();
    for session in sessions {
        how.recordings.extend(recordings(session, context_length)?);
    }
    let deadline = start::loading_deadline(global);
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
                "fix that first",
            ));
        }
    };
    let unusable = |why: String| CliError::unusable(library, &why);
    let loaded = open_plugin(manifest, library, deadline).map_err(unusable)?;
    let said = loaded.description().clone();
    // A library that was copied from another plugin would otherwise be checked under the wrong
    // name.
    if (&said.name, &said.version) != (&manifest.name, &manifest.version) {
        return Err(unusable(format!(
            "the engine says that it is {} {}, but {} says that it is {} {}",
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
    let progress = Progress::new(1, "playing conversations");
    let report = check_engine(subject, how);
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

/// The conversations of a file, as the test kit plays them.
fn recordings(file: &Path, context_length: Option<u64>) -> Result<Vec<Recording>, CliError> {
    let read = input::read(file, None, false)?;
    let is_single = read.conversations.len() == 1;
    let recorded = read
        .conversations
        .iter()
        .enumerate()
        .map(|(at, conversation)| {
            let mut chat = Chat::default();
            for message in conversation.messages() {
                let calls: Vec<_> = (message.calls.iter())
                    .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
                    .collect();
                // The conversation gives each message an id of its own.
                chat.push_view(&message.view(MessageId(0), "{}", &calls));
            }
            let name = match is_single {
                true => read.name.clone(),
                false => format!("{}, conversation {}", read.name, at + 1),
            };
            let mut recording = Recording::new(name, chat);
            recording.context_length = context_length.unwrap_or(recording.context_length);
            recording
        });
    Ok(recorded.collect())
}
