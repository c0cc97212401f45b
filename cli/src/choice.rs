//! Which engine a command takes, and a word on it where that is not the configured one.

use crate::error::CliError;
use crate::{kept, terminal};
use contexture::config::Loaded;
use contexture::engines::Engines;

/// The engine that keeps what it is shown.
pub(crate) const KEEPER: &str = "lcm";

/// What decides on the engine that goes on with a session.
pub(crate) struct Wish<'a> {
    /// The session, where one is kept.
    pub(crate) session: Option<&'a str>,
    /// The engine that has the session.
    pub(crate) own: Option<String>,
    /// The engine that was named on the command line.
    pub(crate) named: Option<&'a str>,
    /// Whether the named one is to take the session over.
    pub(crate) rebind: bool,
}

impl Wish<'_> {
    /// The engine; none where the configuration chooses, with what it says of engines that cannot be had.
    ///
    /// # Errors
    /// Another engine than the session's own is named, and is not to take it over.
    pub(crate) fn engine(&self, loaded: &Loaded) -> Result<Option<String>, CliError> {
        match (self.named, &self.own) {
            (Some(named), Some(own)) if named != own && !self.rebind => {
                let session = self.session.unwrap_or_default();
                Err(CliError::usage(
                    format!(
                        "the session `{session}` is the engine `{own}`'s, and --engine names `{named}`"
                    ),
                    format!(
                        "leave --engine out to go on with `{own}`, add --rebind to have `{named}` take the session \
                         over, or name another session"
                    ),
                ))
            }
            (Some(named), _) => Ok(Some(named.to_owned())),
            (None, own) => Ok(loaded.engine_to_go_on(own.as_deref()).map(str::to_owned)),
        }
    }

    /// What there is to say of the engine that `took` the conversation: that it took it over, or that it is neither
    /// the configured one nor named.
    pub(crate) fn note(&self, took: &str, loaded: &Loaded) -> Option<String> {
        let session = self.session.unwrap_or_default();
        let configured = &loaded.config.context.engine;
        let why = match &self.own {
            Some(own) if own != took => {
                let by = match self.named {
                    Some(_) => "--rebind says so",
                    None => "`context.engine` is written in the configuration",
                };
                return Some(format!(
                    "note: the engine `{took}` takes the session `{session}` over from `{own}`: {by}"
                ));
            }
            // The result says what was named.
            _ if took == configured || self.named.is_some() => return None,
            Some(_) => format!("the session `{session}` is its own"),
            None => return None,
        };
        Some(not_configured(took, configured, &why))
    }
}

fn not_configured(took: &str, configured: &str, why: &str) -> String {
    format!("note: the engine is `{took}`, and not the configured `{configured}`: {why}")
}

/// The engine to ask about what is kept: the one that was named, the session's own, the configured one where it keeps
/// sessions, or the one that always does. Says so where it is not the configured one.
pub(crate) fn keeper(
    engines: &Engines,
    named: Option<&str>,
    own: Option<String>,
) -> Result<String, CliError> {
    let loaded = engines.loaded();
    let (engine, why) = match (named, own, loaded.written_engine()) {
        (Some(named), ..) => (named.to_owned(), "--engine names it"),
        (None, Some(own), _) => (own, "the session is its own"),
        (None, None, Some(written)) if !matches!(kept::list(engines, written), Ok(None)) => {
            (written.to_owned(), "")
        }
        _ => (KEEPER.to_owned(), "that one keeps no sessions"),
    };
    let configured = &loaded.config.context.engine;
    if engine != *configured {
        terminal::say(&format!("{}\n", not_configured(&engine, configured, why)));
    }
    Ok(engine)
}
