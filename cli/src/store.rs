//! `contexture store`: the database that stores sessions for several machines.
//!
//! [`run`] dispatches the subcommands of [`StoreAction`]. They concern the database that the
//! configuration names, whether or not sessions are stored there yet, so that it can be prepared and
//! filled before `transcript.store` is changed.

use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use serde_json::json;

use crate::error::CliError;
use crate::terminal::{self, Progress};
use crate::{Global, NEGATIVE, OK, output, start};
use contexture::config::{Loaded, TranscriptStore};
use contexture::session::{CopyOutcome, Record, RecordError, SessionOptions, postgres_options};

/// A place where sessions are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StoreKind {
    /// The file of the home directory
    Sqlite,
    /// The database whose URL is in the variable that `transcript.url_env` names
    Postgres,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreAction {
    /// Show where sessions are stored, and whether the database is ready; exits with 1 if it is not
    Status,
    /// Create the database tables, or migrate them to the version that this program needs
    ///
    /// Run it once before the first use, and after an update that asks for it. Several machines may
    /// run it at once.
    Migrate,
    /// Copy sessions from the file to the database, or back
    ///
    /// Each session is copied whole, read back, and compared by a checksum. Sessions that are there
    /// already are skipped if they are equal, so a copy that was interrupted can be run again. A
    /// session that differs is only reported, unless --replace is given. Exits with 1 if one was not
    /// copied.
    #[command(after_long_help = "\
Examples:
  contexture store migrate
  contexture store copy --from sqlite --to postgres        # then set transcript.store to postgres
  contexture store copy --from postgres --to sqlite work   # one session, back into the file")]
    Copy {
        /// Where the sessions are
        #[arg(long, value_enum)]
        from: StoreKind,
        /// Where they are copied to
        #[arg(long, value_enum)]
        to: StoreKind,
        /// The sessions [default: all]
        sessions: Vec<String>,
        /// Overwrite sessions that already exist with different content
        #[arg(long)]
        replace: bool,
    },
}

pub(crate) fn run(command: &StoreAction, global: &Global) -> Result<u8, CliError> {
    let loaded = start::load_config(global)?;
    match command {
        StoreAction::Status => status(&loaded),
        StoreAction::Migrate => {
            let options = postgres_options(&loaded)?;
            let before = Record::migrate(&options)?;
            let (now, _) = Record::schema_versions(&options)?;
            output::print_json(&json!({
                "database": options.name(), "schema_before": before, "schema": now,
            }))?;
            Ok(OK)
        }
        StoreAction::Copy {
            from,
            to,
            sessions,
            replace,
        } => {
            if from == to {
                return Err(CliError::usage(
                    "the sessions would be copied to where they are",
                    "name two different stores",
                ));
            }
            let from = open(&loaded, *from, true)?;
            let to = open(&loaded, *to, false)?;
            copy(&from, &to, sessions, *replace)
        }
    }
}

fn open(loaded: &Loaded, kind: StoreKind, only_reads: bool) -> Result<Arc<Record>, CliError> {
    let record = match kind {
        StoreKind::Sqlite if only_reads => Record::open_to_read(&loaded.home),
        StoreKind::Sqlite => Record::open(&loaded.home),
        StoreKind::Postgres => {
            postgres_options(loaded).and_then(|options| Record::open_postgres(&options))
        }
    };
    record.map_err(CliError::Sessions)
}

fn status(loaded: &Loaded) -> Result<u8, CliError> {
    let count = |record: &Record| record.sessions().map(|sessions| sessions.len());
    if loaded.config.transcript.store == TranscriptStore::Sqlite {
        let record = Record::open_to_read(&loaded.home)?;
        let sessions = count(&record)?;
        output::print_json(&json!({
            "store": "sqlite", "path": record.path(), "sessions": sessions,
        }))?;
        return Ok(OK);
    }
    let options = postgres_options(loaded)?;
    let (schema, needed) = Record::schema_versions(&options)?;
    let is_ready = schema == needed;
    let sessions = match is_ready {
        true => Some(Record::open_postgres(&options).and_then(|record| count(&record))?),
        false => None,
    };
    output::print_json(&json!({
        "store": "postgres", "database": options.name(), "tenant": options.tenant, "schema": schema,
        "schema_needed": needed, "ready": is_ready, "sessions": sessions,
    }))?;
    if is_ready {
        return Ok(OK);
    }
    let error = RecordError::Schema {
        server: options.name(),
        found: schema,
        known: needed,
    };
    terminal::say(&format!("{error}\n"));
    Ok(NEGATIVE)
}

fn copy(from: &Record, to: &Record, only: &[String], replace: bool) -> Result<u8, CliError> {
    let names = match only {
        [] => from.names()?,
        only => only.to_vec(),
    };
    let progress = Progress::new(names.len(), "copying");
    let (mut copied, mut unchanged, mut differing, mut missing) = (0, 0, Vec::new(), Vec::new());
    for name in names {
        let wait = SessionOptions::default().wait;
        let outcome = from.copy_session(to, &name, replace, wait);
        match outcome? {
            CopyOutcome::Copied => copied += 1,
            CopyOutcome::Unchanged => unchanged += 1,
            CopyOutcome::Differs => differing.push(name),
            _ => missing.push(name),
        }
        progress.step();
    }
    drop(progress);
    let is_whole = differing.is_empty() && missing.is_empty();
    output::print_json(&json!({
        "from": from.path(), "to": to.path(), "copied": copied, "unchanged": unchanged,
        "differing": differing, "missing": missing,
    }))?;
    if !differing.is_empty() {
        terminal::say(
            "sessions that are there with other content were left alone; add --replace to replace them\n",
        );
    }
    Ok(if is_whole { OK } else { NEGATIVE })
}
