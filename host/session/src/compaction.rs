//! When a compaction is due in a turn, which engine makes it, and what follows if that fails.
//!
//! Read [`Session::compact_in_turn`] first. If the engine wants a compaction, or if hygiene overrules
//! it, [`Session::compact`] asks for one. If the engine fails, `context.on_failure` decides whether
//! the built-in compressor takes its place. The compaction itself is in `compactor`.

use std::time::Instant;

use contexture_config::OnFailure;
use contexture_engine_api::{Decision, MessageId, grouped};

use super::compactor::{Ask, Way, unchanged};
use super::error::SessionError;
use super::options::{Compact, TurnOptions};
use super::report::{CompactionReport, OutcomeKind};
use super::session::Session;
use super::window::Window;

/// Part of the message for a prompt that does not fit while automatic compaction is off.
const OFF: &str = "nothing is compacted by itself";

/// The note of a compaction that the model asked for.
const REQUESTED: &str =
    "the model asked for it, and the prompt cache did not hold the conversation";

/// How many further compactions a turn tries if the first one left a prompt that is still too
/// large.
const FURTHER: usize = 2;

impl Session {
    /// Makes the compaction of a turn, if one is due. `is_rewritten` says that the engine changed the
    /// window before. The messages from `keep_from` on stay as they are.
    pub(crate) fn compact_in_turn(
        &mut self,
        decision: &Decision,
        is_rewritten: bool,
        options: &TurnOptions,
        keep_from: Option<MessageId>,
    ) -> Result<Option<CompactionReport>, SessionError> {
        let ask = self.compactor.ask(options, keep_from);
        let requested = match options.compact {
            Compact::Auto => self.compact_if_requested(&ask)?,
            Compact::Force | Compact::Never => None,
        };
        let is_settled = self.settled && !is_rewritten;
        // The same request came again after a compaction and is still too large. Another compaction
        // would find nothing more to do.
        let is_as_small_as_it_gets =
            is_settled && !self.current.new_since_compaction && !self.current.fits();
        let compaction = match options.compact {
            _ if requested.is_some() => requested,
            Compact::Never => None,
            Compact::Auto if self.compactor.automatic().is_err() => self.does_not_fit(),
            Compact::Auto if is_settled && self.current.fits_roughly() => None,
            Compact::Auto if is_as_small_as_it_gets => self.still_too_large(),
            Compact::Auto => {
                let tried = self.compact_if_due(decision, &ask)?;
                tried
                    .map(|tried| self.made_to_fit(tried, &ask))
                    .transpose()?
            }
            Compact::Force => {
                let tried = self.compact(&ask, Way::Compress)?;
                Some(self.made_to_fit(tried, &ask)?)
            }
        };
        // A compaction that was only tried leaves the decision open, so the next request tries
        // again.
        let is_decided = compaction.as_ref().is_none_or(CompactionReport::is_made);
        self.settled = options.compact != Compact::Never && (is_decided || is_as_small_as_it_gets);
        Ok(compaction)
    }

    /// Makes the compaction that the model asked for, if the provider's cache is not known to hold the
    /// conversation, so that it costs nothing to change it. Returns `None` if none was made.
    /// `ask` is what the turn wants of a compaction otherwise.
    fn compact_if_requested(
        &mut self,
        ask: &Ask,
    ) -> Result<Option<CompactionReport>, SessionError> {
        let is_warm = self.current.rough_state().cache_is_warm() == Some(true);
        if is_warm || self.compactor.automatic().is_err() {
            return Ok(None);
        }
        let Some(keep) = self.requested_focus() else {
            return Ok(None);
        };
        let ask = Ask {
            force: true,
            ..ask.clone().or_focus(keep)
        };
        let mut report = self.compact(&ask, Way::Compress)?;
        report.notes.push(REQUESTED.to_owned());
        Ok(Some(report).filter(CompactionReport::is_made))
    }

    /// What the model wants of a summary, if it asked for a compaction.
    fn requested_focus(&self) -> Option<String> {
        match self.link.host_tools() {
            [] => None,
            _ => self.current.held.read().requested,
        }
    }

    /// The engine's decision. A yes becomes a no that names the configuration key if automatic
    /// compaction is off.
    pub(crate) fn if_automatic(&self, decision: Decision) -> Decision {
        match self.compactor.automatic() {
            Err(key) if decision.is_yes() => {
                Decision::No(format!("{OFF} (`{key}`): {}", decision.reason()))
            }
            _ => decision,
        }
    }

    /// Whether the engine may rewrite the window in a turn. A rewrite changes the window as a
    /// compaction does, so it follows the same switch.
    pub(crate) fn may_rewrite(&self, compact: Compact) -> bool {
        let is_allowed = match compact {
            Compact::Auto => self.compactor.automatic().is_ok(),
            Compact::Force => true,
            Compact::Never => false,
        };
        is_allowed && self.engine().about().rewrites
    }

    /// Lets the engine change the window before the request. Returns `None` if it changes nothing,
    /// fails, or breaks the contract.
    pub(crate) fn rewrite(&mut self) -> Result<Option<CompactionReport>, SessionError> {
        let (engine, current) = (self.link.engine_mut(), &mut self.current);
        let rewritten = (self.compactor).rewrite(engine, current);
        rewritten.or_else(|error| self.link.not_told(error.into()).map(|()| None))
    }

    /// Lets the engine select a view of the window for this request. Returns `None` if the window is
    /// sent as it is, also if the engine fails or its view breaks the contract.
    pub(crate) fn select(&mut self) -> Result<Option<Window>, SessionError> {
        let engine = self.link.engine_mut();
        let selected = (self.compactor).select(engine, &self.current);
        selected.or_else(|error| self.link.not_told(error.into()).map(|()| None))
    }

    /// Compacts if the engine or hygiene decided so. Returns `None` if nothing was due.
    ///
    /// If the engine did not fail and yet made no compaction although hygiene fires, it is asked
    /// again with `force`. If the prompt still does not fit, old tool results are pruned. If it
    /// does not fit even after a compaction, up to `FURTHER` more follow.
    fn compact_if_due(
        &mut self,
        decision: &Decision,
        ask: &Ask,
    ) -> Result<Option<CompactionReport>, SessionError> {
        // The rough state is an upper bound, so a no is certain and saves the tokenising.
        let due = decision.is_yes() || self.compactor.hygiene(&self.current.rough_state()).is_yes();
        if !due {
            return Ok(None);
        }
        let ask = &ask
            .clone()
            .or_focus(self.requested_focus().unwrap_or_default());
        let safety_net = self.compactor.hygiene(&self.state());
        let compacted = |report: &Option<CompactionReport>| {
            (report.as_ref()).is_some_and(CompactionReport::is_made)
        };
        let mut report = match decision.is_yes() {
            true => Some(self.compact(ask, Way::Compress)?),
            false => None,
        };
        let failed = report
            .as_ref()
            .is_some_and(|report| report.outcome == OutcomeKind::Failed);
        let is_overruled =
            safety_net.is_yes() && self.current.new_since_compaction && !self.state().rests();
        // An engine that does nothing although hygiene fires is overruled, but only once for the
        // messages at hand. Otherwise every turn would repeat an attempt that failed.
        if is_overruled && !compacted(&report) && !failed {
            let mut forced = self.compact(&ask.clone().enforced(), Way::Compress)?;
            let first = report.map(|report| report.reason);
            forced
                .notes
                .extend(first.filter(|reason| *reason != forced.reason));
            let reason = safety_net.reason();
            forced.notes.push(format!("session hygiene: {reason}"));
            report = Some(forced);
        }
        if !compacted(&report)
            && !self.current.fits()
            && let Some(mut pruned) = self.prune(ask)?
        {
            pruned.notes.extend(report.map(|report| report.reason));
            report = Some(pruned);
        }
        for _ in 0..FURTHER {
            if !compacted(&report) || self.current.fits() {
                break;
            }
            match self.compact(ask, Way::Compress) {
                Ok(further) if further.is_made() => {
                    report = report.map(|first| further.after(first));
                }
                Ok(_) => break,
                // The first compaction worked and stays in force, so a failure of the next one is
                // only a warning.
                Err(error) => {
                    self.warnings.add(error.to_string());
                    break;
                }
            }
        }
        if report.is_some() {
            self.current.new_since_compaction = false;
        }
        Ok(report)
    }

    /// Lets the built-in compressor compact what the engine left too large for the window, if
    /// `context.on_failure` is `fallback`. `tried` is what the engine did. After a failure the built-in
    /// compressor has had its turn already. After `FloorTooHigh` nothing more can be removed.
    fn made_to_fit(
        &mut self,
        tried: CompactionReport,
        ask: &Ask,
    ) -> Result<CompactionReport, SessionError> {
        let is_final = [OutcomeKind::Failed, OutcomeKind::FloorTooHigh].contains(&tried.outcome);
        let may_stand_in =
            self.link.on_failure() == OnFailure::Fallback && !self.engine().is_builtin();
        if is_final || !may_stand_in || self.current.fits() {
            return Ok(tried);
        }
        let ask = ask.clone().enforced();
        let stood_in = self.timed(|session| {
            let made = session.stand_in(&tried.reason, &ask, Way::Compress)?;
            Ok(made.unwrap_or_else(|failure| session.unchanged(OutcomeKind::Failed, failure)))
        })?;
        Ok(match stood_in.is_made() {
            // The engine may have asked its model also if it made nothing of it.
            true => stood_in.after(tried),
            false => tried,
        })
    }

    /// The report for a request that comes again although the last compaction made it as small as
    /// possible and it is still too large.
    fn still_too_large(&self) -> Option<CompactionReport> {
        let (tokens, room) = self.tokens_and_room()?;
        let reason = format!(
            "the prompt has {} tokens, still above the {} that the window has room for, and nothing has come since it \
             was compacted",
            grouped(tokens),
            grouped(room)
        );
        Some(self.unchanged(OutcomeKind::NothingToDo, reason))
    }

    /// The report for a prompt that does not fit while automatic compaction is off. It tells the
    /// user what to do. None if the prompt fits.
    fn does_not_fit(&self) -> Option<CompactionReport> {
        if self.current.fits_roughly() {
            return None;
        }
        let (tokens, room) = self.tokens_and_room()?;
        let reason = format!(
            "the prompt has {} tokens, and the window has room for {}; {OFF} (`{}`): ask for it (`contexture compress \
             --force`), or choose a model with a larger window",
            grouped(tokens),
            grouped(room),
            self.compactor.automatic().err().unwrap_or_default()
        );
        Some(self.unchanged(OutcomeKind::FloorTooHigh, reason))
    }

    /// The tokens of a prompt that does not fit, and those that the window has room for. None if
    /// the prompt fits.
    fn tokens_and_room(&self) -> Option<(u64, u64)> {
        let state = self.state();
        let room = state.room_for_prompt().filter(|_| !state.fits())?;
        Some((state.best_prompt_tokens(), room))
    }

    /// Shortens old tool results without a summary and without a model. Used if a summary was
    /// deferred or failed and the prompt does not fit. A later summary reads the pruned messages in
    /// full. Returns `None` if nothing was pruned.
    ///
    /// Pruning before every summary would not pay: what it leaves costs more tokens than a summary
    /// and says less.
    fn prune(&mut self, ask: &Ask) -> Result<Option<CompactionReport>, SessionError> {
        let report = self.compact(&ask.clone().enforced(), Way::Prune)?;
        Ok(Some(report).filter(CompactionReport::is_made))
    }

    /// Makes the window smaller. Unless the report says `Compacted`, the window is as it was.
    fn compact(&mut self, ask: &Ask, way: Way) -> Result<CompactionReport, SessionError> {
        self.timed(|session| session.compact_with_policy(ask, way))
    }

    /// Writes the duration and the number of model calls into the report, also into the one in an
    /// error.
    fn timed(
        &mut self,
        compact: impl FnOnce(&mut Self) -> Result<CompactionReport, SessionError>,
    ) -> Result<CompactionReport, SessionError> {
        let began = Instant::now();
        let calls_before = self.model_calls();
        let mut result = compact(self);
        let report: &mut CompactionReport = match &mut result {
            Ok(report) => report,
            Err(SessionError::EngineFailed { report, .. }) => report,
            Err(_) => return result,
        };
        report.elapsed_ms = began.elapsed().as_secs_f64() * 1000.0;
        report.model_calls = self.model_calls() - calls_before;
        result
    }

    /// Asks the session's engine, and applies `context.on_failure` if it fails: stop with an error,
    /// ask the built-in compressor, or leave the window as it is.
    fn compact_with_policy(
        &mut self,
        ask: &Ask,
        way: Way,
    ) -> Result<CompactionReport, SessionError> {
        let was_closed = self.engine().is_closed();
        let engine = self.link.engine_mut();
        let failure = match (self.compactor).attempt(engine, &mut self.current, ask, way) {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        // If the engine was closed before, its error was already reported at that time.
        if !was_closed {
            tracing::warn!("{failure}");
        }
        let failed = self.unchanged(OutcomeKind::Failed, failure.clone());
        match self.link.on_failure() {
            OnFailure::Fail => Err(SessionError::EngineFailed {
                reason: failure,
                report: Box::new(failed),
            }),
            OnFailure::Fallback if !self.engine().is_builtin() => {
                let stood_in = self.stand_in(&failure, ask, way)?;
                Ok(stood_in.unwrap_or_else(|second| {
                    let failure = sentence(&failure);
                    let both = format!("{failure} The built-in compressor failed too: {second}");
                    self.unchanged(OutcomeKind::Failed, both)
                }))
            }
            OnFailure::Fallback | OnFailure::Passthrough => Ok(failed),
        }
    }

    /// Asks the built-in compressor in place of the engine. `reason` says why, for the report. The
    /// inner error says how the built-in compressor failed.
    fn stand_in(
        &mut self,
        reason: &str,
        ask: &Ask,
        way: Way,
    ) -> Result<Result<CompactionReport, String>, SessionError> {
        let fallback = self.link.fallback(&self.current)?;
        let made = (self.compactor).attempt(fallback, &mut self.current, ask, way);
        Ok(made.map(|mut report| {
            let note = "The built-in compressor stood in for this compaction.";
            report
                .notes
                .insert(0, format!("{} {note}", sentence(reason)));
            report
        }))
    }

    /// A report that the window was not changed.
    fn unchanged(&self, outcome: OutcomeKind, reason: String) -> CompactionReport {
        unchanged(self.engine(), &self.current, outcome, reason)
    }
}

/// Ends a text with a full stop, so that another sentence can follow it.
fn sentence(text: &str) -> String {
    let text = text.trim_end();
    let is_ended = text.ends_with(['.', '!', '?', '…']);
    format!("{text}{}", if is_ended { "" } else { "." })
}
