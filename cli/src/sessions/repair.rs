//! Checks the record of sessions, and repairs it if it is damaged.
//!
//! [`verify`] also asks the engine to check what it derives. [`repair`] works on the file of the
//! record alone, because an engine derives its data again.

use contexture_engine_api::StoreCommand;
use serde_json::json;

use super::{Of, TO_ITS_END, ask, ask_long, require_file, stoppable};
use crate::error::CliError;
use crate::interrupt::watched;
use crate::{NEGATIVE, OK, choice, kept, output, terminal};
use contexture::config::{Loaded, TranscriptStore};
use contexture::engines::Engines;
use contexture::session::{Record, open_record_to_read};

/// Checks the record, and what the engine derives from it if it derives anything, and prints the
/// report. Returns [`NEGATIVE`] if something is wrong.
pub(super) fn verify(engines: &Engines, store: &Record, of: &Of) -> Result<u8, CliError> {
    let mut problems = damage_of(engines.loaded())?;
    for what in &problems {
        terminal::warn(what);
    }
    let engine = choice::keeper(engines, of.engine.as_deref(), None)?;
    let derived = match kept::list(engines, &engine)? {
        Some(_) => ask_long(
            &|command| ask(engines, &engine, command),
            "checking",
            StoreCommand::Verify,
        )?,
        None => json!({"ok": true}),
    };
    let found = derived["problems"].as_array().into_iter().flatten();
    problems.extend(found.map(|problem| problem.as_str().unwrap_or_default().to_owned()));
    let ok = problems.is_empty() && derived["ok"] == json!(true);
    let sessions = store.sessions().unwrap_or_default();
    output::print_json(&json!({
        "ok": ok,
        "problems": problems,
        "sessions": sessions.len(),
        "messages": sessions.iter().map(|session| session.messages).sum::<u64>(),
        "derived": derived,
    }))?;
    if !ok {
        return Ok(NEGATIVE);
    }
    if sessions.is_empty() {
        terminal::note("no sessions are kept here, so there was nothing to check");
    }
    Ok(OK)
}

/// Checks the record and returns each problem in words. Empty if it is sound, or if there is none.
fn damage_of(loaded: &Loaded) -> Result<Vec<String>, CliError> {
    stoppable(&|| {}, || {
        let found = match loaded.config.transcript.store {
            // A file may be too damaged to be opened.
            TranscriptStore::Sqlite => Record::verify(&loaded.home),
            TranscriptStore::Postgres => {
                open_record_to_read(loaded).and_then(|record| record.problems())
            }
        };
        found.map_err(CliError::Sessions)
    })
}

/// Repairs a damaged record, or without `yes` only says what is damaged.
pub(super) fn repair(engines: &Engines, yes: bool) -> Result<u8, CliError> {
    require_file(engines, "put a backup of the database back (`pg_restore`)")?;
    if yes {
        let pressed = || terminal::say(TO_ITS_END);
        return watched(pressed, |_| {}, || repair_now(engines));
    }
    let damage = damage_of(engines.loaded())?;
    let found = json!({"ok": damage.is_empty(), "problems": damage});
    output::print_json(&json!({"dry_run": true, "found": found}))?;
    terminal::say(match damage.is_empty() {
        true => "There is nothing to repair.\n",
        false => "Dry run: nothing was repaired; add --yes to do it, with no session open\n",
    });
    Ok(OK)
}

/// Repairs the record and checks it again. Returns [`NEGATIVE`] if problems are left.
fn repair_now(engines: &Engines) -> Result<u8, CliError> {
    let home = &engines.loaded().home;
    let damage = Record::verify(home)?;
    let mut answer = json!({"dry_run": false});
    if !damage.is_empty() {
        let repaired = Record::repair(home)?;
        answer["record"] = json!(repaired);
    }
    // Checked again, because a repair may save only a part.
    let remains = Record::verify(home)?;
    if !remains.is_empty() {
        answer["remains"] = json!(remains);
    }
    output::print_json(&answer)?;
    if remains.is_empty() {
        return Ok(OK);
    }
    terminal::warn("the repair is incomplete: `remains` lists the problems that are left");
    Ok(NEGATIVE)
}
