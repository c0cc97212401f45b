//! Builds the search indexes of sessions now instead of in the background.

use std::sync::Arc;

use contexture_engine_api::StoreCommand;
use serde_json::json;

use super::{Of, ask_long, known, read_only};
use crate::error::CliError;
use crate::kept::{self, DerivedIndex, IndexedSession};
use crate::{OK, choice, output, terminal};
use contexture::engines::Engines;
use contexture::session::Record;

/// Builds the search index of one session, or of all sessions of the engine if `id` is `None`, and
/// prints what each has. With `dry_run` the engine only counts what is missing. The engine reads the
/// texts of a session through the record, so each session is open while it is indexed.
pub(super) fn index(
    engines: &Arc<Engines>,
    store: &Arc<Record>,
    of: &Of,
    id: Option<&str>,
    dry_run: bool,
) -> Result<u8, CliError> {
    let own = match id {
        Some(id) => Some(known(store, id)?.engine).filter(|engine| !engine.is_empty()),
        None => None,
    };
    let engine = choice::keeper(engines, of.engine.as_deref(), own)?;
    let mut sessions = store.sessions()?;
    sessions.retain(|session| match id {
        Some(id) => session.session == id,
        None => session.engine == engine,
    });
    let (mut lines, mut missing) = (Vec::new(), 0);
    for session in &sessions {
        let _open = match dry_run {
            true => None,
            false => Some(read_only(engines, store, &session.session, &engine)?),
        };
        let command = StoreCommand::Index {
            session: Some(session.session.clone()),
            dry_run,
        };
        let ask = |command| {
            let answer = engines.manage(Some(&engine), &command);
            match answer {
                // The engine has derived nothing from this session yet, so a dry run counts no
                // indexed message instead of failing.
                Err(error) if dry_run && error.refusal().is_some() => Ok(json!({
                    "sessions": [{
                        "session": session.session, "messages": session.messages, "indexed": 0, "embedded": null,
                    }],
                    "missing": 0,
                })),
                answer => answer.map_err(CliError::of_keeper),
            }
        };
        let answer = ask_long(&ask, "indexing", command)?;
        missing += answer["missing"].as_u64().unwrap_or(0);
        lines.extend(answer["sessions"].as_array().into_iter().flatten().cloned());
    }
    let answer = json!({"sessions": lines, "missing": missing});
    output::print_json(&answer)?;
    let index: DerivedIndex = kept::read(answer);
    let has_none = |session: &IndexedSession| session.embedded.is_none();
    if !index.sessions.is_empty() && index.sessions.iter().all(has_none) {
        terminal::note(
            "no embedder is configured (context.engines.lcm.embedder), so questions find by words alone; `contexture \
             embedder install` gets one",
        );
    }
    Ok(OK)
}
