//! Chooses the engine of a command, and tells the user if it is not the configured one.
//!
//! Two questions are answered here. [`EngineChoice`] decides which engine goes on with a session:
//! the one that the user named, the one that has the session, or the configured one. A session
//! never changes to another engine by accident, so `--rebind` is needed if the user names another.
//! [`keeper`] decides which engine to ask about stored sessions.
//!
//! Both print or return a note if the answer is not what the configuration says, since the result
//! would otherwise be hard to explain.

use crate::error::CliError;
use crate::{kept, terminal};
use contexture::config::Loaded;
use contexture::engines::Engines;

/// The engine that is asked about stored sessions if no other keeps any.
pub(crate) const KEEPER: &str = "lcm";

/// What decides which engine goes on with a session.
pub(crate) struct EngineChoice<'a> {
    /// The session. None if the command keeps none.
    pub(crate) session: Option<&'a str>,
    /// The engine that has the session according to the record.
    pub(crate) own: Option<String>,
    /// The engine that the user named on the command line.
    pub(crate) named: Option<&'a str>,
    /// Whether the named engine may take the session over from the one that has it.
    pub(crate) rebind: bool,
}

impl EngineChoice<'_> {
    /// Returns the engine to use. None means that the configuration chooses, including what it says
    /// about engines that cannot run.
    ///
    /// # Errors
    /// Fails if the user names another engine than the session's own without `--rebind`.
    pub(crate) fn engine(&self, loaded: &Loaded) -> Result<Option<String>, CliError> {
        match (self.named, &self.own) {
            (Some(named), Some(own)) if named != own && !self.rebind => {
                let session = self.session.unwrap_or_default();
                Err(CliError::usage(
                    format!(
                        "the session `{session}` belongs to the engine `{own}`, but --engine names `{named}`"
                    ),
                    format!(
                        "leave out --engine to continue with `{own}`, add --rebind to move the session to \
                         `{named}`, or name another session"
                    ),
                ))
            }
            (Some(named), _) => Ok(Some(named.to_owned())),
            (None, own) => Ok(loaded.engine_to_go_on(own.as_deref()).map(str::to_owned)),
        }
    }

    /// Returns a note about `took`, the engine that took the conversation: that it took the session
    /// over from another one, or that it is neither the configured engine nor the named one. None
    /// if there is nothing to explain.
    pub(crate) fn note(&self, took: &str, loaded: &Loaded) -> Option<String> {
        let session = self.session.unwrap_or_default();
        let configured = &loaded.config.context.engine;
        let why = match &self.own {
            Some(own) if own != took => {
                let by = match self.named {
                    Some(_) => "--rebind was given",
                    None => "`context.engine` in the configuration names it",
                };
                return Some(format!(
                    "the engine `{took}` takes over the session `{session}` from `{own}`: {by}"
                ));
            }
            // The result of the command shows the engine that was named, so no note is needed.
            _ if took == configured || self.named.is_some() => return None,
            Some(_) => format!("the session `{session}` belongs to it"),
            None => return None,
        };
        Some(not_configured(took, configured, &why))
    }
}

fn not_configured(took: &str, configured: &str, why: &str) -> String {
    format!("using the engine `{took}` instead of the configured `{configured}`: {why}")
}

/// Returns the engine to ask about stored sessions. This is the named one, the session's own, the
/// configured one if it keeps sessions, or otherwise the one that always does. If it is not the
/// configured engine, a note says why.
pub(crate) fn keeper(
    engines: &Engines,
    named: Option<&str>,
    own: Option<String>,
) -> Result<String, CliError> {
    let loaded = engines.loaded();
    let (engine, why) = match (named, own, loaded.written_engine()) {
        (Some(named), ..) => (named.to_owned(), "--engine names it"),
        (None, Some(own), _) => (own, "the session belongs to it"),
        // An engine that fails to answer is chosen nevertheless. The command then fails with its
        // error, instead of showing the sessions of another engine.
        (None, None, Some(written)) if !matches!(kept::list(engines, written), Ok(None)) => {
            (written.to_owned(), "")
        }
        _ => (KEEPER.to_owned(), "the configured one keeps no sessions"),
    };
    let configured = &loaded.config.context.engine;
    if engine != *configured {
        terminal::note(&not_configured(&engine, configured, why));
    }
    Ok(engine)
}
