//! One compaction: ask the engine, check its proposal, and put it in force. If any step fails, the
//! window stays as it was, and the report says why.
//!
//! Read [`Compactor::attempt`] first. The engine gets a view of the window and proposes a list of
//! entries. `contexture_contract` checks the list against the limits. [`Compactor::commit`] then
//! applies it, saves it, and tells the engine. Saving comes first: if the process ends in between,
//! the engine learns of the compaction when the session is opened again.
//!
//! The same holds for a change of the window that is not a compaction and for a view for one request:
//! `rewrite`. Which engine is asked, and what follows if it fails, is decided in
//! `compaction`. `hygiene` is the safety net that asks for a compaction although the engine does not.

pub(crate) mod hygiene;
mod rewrite;

use std::collections::BTreeMap;
use std::sync::Arc;

use contexture_config::{Config, Hygiene};
use contexture_contract::{
    self as contract, Checked, Limits, PinLists, Purpose, Violation, most_pin_tokens,
};
use contexture_engine_api::{
    Committed, Compaction, CompressRequest, Decision, Entry, MessageId, MessageView, Outcome,
    WindowState, grouped, printable,
};
use contexture_runtime::engines::Opened;
use contexture_runtime::supervision::{CallError, Deadline};
use serde_json::Value;

use contexture_transcript::{HostText, IdSet, Ids, InForce};

use super::conversation::ConversationState;
use super::options::{Compact, TurnOptions};
use super::report::{CompactionReport, OutcomeKind, in_count_of, sizes};
use super::warnings::Warnings;
use super::window::Window;
use super::window_entry::WindowEntry;

/// What the session wants from a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    /// Compact even below the threshold and during a cool-down.
    pub(crate) force: bool,
    /// Set if neither the user nor the engine asked for it: session hygiene fired, or the prompt
    /// does not fit.
    pub(crate) by_hygiene: bool,
    /// A topic to keep in more detail.
    pub(crate) focus: Option<String>,
    /// Text from a memory system that a summary may draw on.
    pub(crate) memory: Option<String>,
    /// Whether somebody waits for the best result, so that a model may be called now.
    pub(crate) may_wait_for_model: bool,
    /// The first message that must stay as it is. Only messages before it are compacted.
    pub(crate) keep_from: Option<MessageId>,
}

impl Ask {
    /// Keeps what the model named in more detail, unless the user named something.
    pub(crate) fn or_focus(mut self, keep: String) -> Self {
        self.focus = self.focus.or(Some(keep).filter(|keep| !keep.is_empty()));
        self
    }

    /// The same, although neither the user nor the engine asked for it.
    pub(crate) fn enforced(self) -> Self {
        Self {
            force: true,
            by_hygiene: true,
            ..self
        }
    }
}

/// The two ways to make a window smaller that an engine can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Compress,
    Prune,
}

impl Way {
    /// The engine method of the way, as it is named in errors and reports.
    fn method(self) -> &'static str {
        match self {
            Self::Compress => "compress",
            Self::Prune => "prune_tool_results",
        }
    }
}

/// Makes and checks changes of the window.
#[derive(Debug)]
pub(crate) struct Compactor {
    hygiene: Hygiene,
    /// Whether conversations are compacted automatically. If not, the configuration key that turns
    /// it off, with its value.
    automatic: Result<(), &'static str>,
    /// Whether a compaction may wait for a model if the caller does not say.
    waits_for_model: bool,
    /// The pins of the configuration.
    pins: Vec<String>,
    warnings: Warnings,
}

impl Compactor {
    pub(crate) fn new(config: &Config, warnings: Warnings) -> Self {
        let compression = &config.compression;
        Self {
            hygiene: config.hygiene.clone(),
            automatic: match (compression.enabled, compression.automatic) {
                (false, _) => Err("compression.enabled: false"),
                (true, false) => Err("compression.automatic: false"),
                (true, true) => Ok(()),
            },
            waits_for_model: compression.wait_for_model,
            pins: compression.pin.clone(),
            warnings,
        }
    }

    /// Whether conversations are compacted automatically.
    ///
    /// # Errors
    /// The configuration key that turns it off, with its value.
    pub(crate) fn automatic(&self) -> Result<(), &'static str> {
        self.automatic
    }

    /// The pins of the configuration.
    pub(crate) fn configured_pins(&self) -> &[String] {
        &self.pins
    }

    /// What is asked of a compaction in this turn.
    pub(crate) fn ask(&self, options: &TurnOptions, keep_from: Option<MessageId>) -> Ask {
        Ask {
            force: options.compact == Compact::Force,
            by_hygiene: false,
            focus: options.focus.clone(),
            memory: options.memory.clone(),
            may_wait_for_model: options.wait_for_model.unwrap_or(self.waits_for_model),
            keep_from,
        }
    }

    /// Whether the window has grown past the engine's own trigger, see [`hygiene::check`].
    pub(crate) fn hygiene(&self, state: &WindowState) -> Decision {
        hygiene::check(state, &self.hygiene)
    }

    /// Asks an engine, and commits its proposal if it holds.
    ///
    /// # Errors
    /// The engine failed or its proposal breaks the contract. The text is for the report.
    pub(crate) fn attempt(
        &self,
        engine: &mut Opened,
        current: &mut ConversationState,
        ask: &Ask,
        way: Way,
    ) -> Result<CompactionReport, String> {
        let order = (current.order(current.state()))
            .force(ask.force)
            .by_hygiene(ask.by_hygiene)
            .focus(ask.focus.clone())
            .memory(ask.memory.clone())
            .may_wait_for_model(ask.may_wait_for_model);
        // A summary reads pruned messages in full. Otherwise it would summarise what pruning left
        // of them.
        let base = match way {
            Way::Compress if current.window.is_pruned() => Arc::new(current.window.unpruned()),
            Way::Compress | Way::Prune => Arc::clone(&current.window),
        };
        let window = Arc::clone(&base);
        let upto = compacted_upto(&current.window, ask);
        let budget = Deadline::Long.with(window.len(), order.window.prompt_tokens);
        let asked = engine.call(way.method(), budget, move |engine| {
            let calls = window.call_views();
            let views = window.views(&calls);
            let views = views.get(..upto).unwrap_or(&views);
            let request = CompressRequest::new(views, &order);
            match way {
                Way::Prune => engine.prune_tool_results(&request),
                Way::Compress => engine.compress(&request),
            }
        });
        let outcome = asked.map_err(|error: CallError| error.to_string())?;
        let (kind, reason) = match outcome {
            Outcome::Compacted(proposal) => {
                return self.accept(engine, current, (base, proposal), way, upto);
            }
            Outcome::NothingToDo(reason) => (OutcomeKind::NothingToDo, limited(&reason)),
            Outcome::Deferred(reason) => (OutcomeKind::Deferred, limited(&reason)),
            Outcome::FloorTooHigh(floor) => {
                let tokens = grouped(floor.tokens);
                let reason = limited(&floor.reason);
                let reason = format!("{reason} (the floor is {tokens} tokens)");
                (OutcomeKind::FloorTooHigh, reason)
            }
            unknown => (
                OutcomeKind::Deferred,
                format!(
                    "the engine answered `{}`, which is of a later version of the interface",
                    unknown.name()
                ),
            ),
        };
        Ok(unchanged(engine, current, kind, reason))
    }

    /// Commits a proposal if it holds. It is about the first `upto` messages of its window. A proposal
    /// that breaks the contract counts as a failure, and the engine is told of each that is discarded.
    ///
    /// # Errors
    /// The proposal breaks the contract. The text names the engine and the rule.
    fn accept(
        &self,
        engine: &mut Opened,
        current: &mut ConversationState,
        (base, mut proposal): (Arc<Window>, Compaction),
        way: Way,
        upto: usize,
    ) -> Result<CompactionReport, String> {
        // The engine did not see the messages from `keep_from` on, so the host keeps them.
        let kept = current.window.entries().iter().skip(upto);
        let kept = kept.map(|entry| Entry::Keep(entry.id()));
        proposal.entries.extend(kept);
        let base = current
            .with_originals(&base, &proposal.entries)
            .map_err(|id| without_original(engine, id))?;
        let (checked, has_new_pins) =
            self.check(engine, current, &base, &mut proposal, Purpose::Compaction);
        let no_use = |engine: &mut Opened, reason: String| {
            let _ = discard(engine, current, &reason);
            unchanged(engine, current, OutcomeKind::NothingToDo, reason)
        };
        let checked = match checked {
            Ok(checked) => checked,
            // The engine could not know what the host would add.
            Err(violation @ Violation::NotSmaller { .. }) if has_new_pins => {
                return Ok(no_use(engine, format!("with the pins, {violation}")));
            }
            Err(violation) => {
                let reason = violation.to_string();
                engine.broke_the_contract();
                let _ = discard(engine, current, &reason);
                return Err(format!(
                    "engine `{}` proposed a compaction that breaks the contract, so it was discarded: \
                     {reason}.",
                    engine.name()
                ));
            }
        };
        let next = base.apply(&proposal, &engine.about().marks, &current.counter);
        let next = match way {
            Way::Compress => next.pruned_as(&current.window),
            Way::Prune => next.pruned_from(&current.window),
        };
        let (before, after) = (current.counted_tokens(), current.tokens_with(&next));
        // The contract compares messages. The note in the system prompt may outweigh what they save.
        if after >= before {
            let reason = format!(
                "a compaction would take the prompt from {} to {} tokens, its note in the system prompt among \
                 them",
                grouped(before),
                grouped(after)
            );
            return Ok(no_use(engine, reason));
        }
        let made = (proposal, checked);
        Ok(self.commit(engine, current, next, made, Purpose::Compaction))
    }

    /// Writes the pins that a proposal would lose into it, and checks it against the contract. Returns
    /// also whether a pin was written. `base` is the window that the proposal is about.
    fn check(
        &self,
        engine: &Opened,
        current: &ConversationState,
        base: &Window,
        proposal: &mut Compaction,
        purpose: Purpose,
    ) -> (Result<Checked, Violation>, bool) {
        let calls = base.call_views();
        let views = base.whole_views(&calls);
        let (pins, is_written) = self.keep_pins(current, &views, proposal, purpose);
        let about = engine.about();
        let limits = Limits::of(&current.state(), &views, current.grouping());
        // An engine that declares that it keeps user messages elsewhere may shorten the last one.
        let may_shorten = limits.may_shorten_last_user || about.keeps_user_messages;
        let limits = Limits {
            purpose,
            may_shorten_last_user: may_shorten && purpose != Purpose::View,
            marks: about.marks.clone(),
            pins,
            ..limits
        };
        let count = |text: &str| current.counter.count_text(text);
        let checked = contract::check(&views, proposal, &limits, count);
        (checked, is_written)
    }

    /// Writes the pins that a proposal would lose into it, and notes which do not fit. Returns those
    /// that have to be in the window afterwards, and whether any was written. `views` are those with
    /// the pins of earlier compactions.
    fn keep_pins(
        &self,
        current: &ConversationState,
        views: &[MessageView<'_>],
        proposal: &mut Compaction,
        purpose: Purpose,
    ) -> (PinLists, bool) {
        // The configuration's pins come with a compaction. Other changes of the window keep them, and
        // write them only if they have a summary to stand in.
        let is_summary = |entry: &Entry| matches!(entry, Entry::Summary(_));
        let has_place = purpose == Purpose::Compaction || proposal.entries.iter().any(is_summary);
        let configured: &[String] = match has_place {
            true => &self.pins,
            false => &[],
        };
        let most = most_pin_tokens(current.meter.agent().context_length);
        let pins = current.pins(views, configured, most);
        let is_written = pins.keep_in(views, proposal);
        let left_out: Vec<&str> = pins.left_out().collect();
        if let Some(first) = left_out.first() {
            proposal.notes.push(format!(
                "{} of the pins did not fit into the {} tokens that pins may take: end some with `/unpin`, or \
                 shorten them; the first is {:?}",
                left_out.len(),
                grouped(most),
                first.chars().take(60).collect::<String>()
            ));
        }
        (pins.fitting().clone(), is_written)
    }

    /// Puts a checked window in force, saves it, and tells the engine. Returns the report. A
    /// failure of the engine at this point is only a note, because the compaction already holds.
    fn commit(
        &self,
        engine: &mut Opened,
        current: &mut ConversationState,
        next: Window,
        (proposal, checked): (Compaction, Checked),
        purpose: Purpose,
    ) -> CompactionReport {
        let messages_before = current.window.len();
        let counted_before = current.counted_tokens();
        let tokens_before = current.state().best_prompt_tokens();
        let before = Arc::clone(&current.window);
        current.replace_window(next);
        current.history.facts.compactions += 1;
        put_in_force(current, &before, &proposal, engine.name());
        current.save();
        let is_compaction = purpose == Purpose::Compaction;
        current.update_held(|held| held.committed(is_compaction));
        match purpose {
            Purpose::Compaction => {
                current.new_since_compaction = false;
                let fixed = current.overhead_tokens(&current.window);
                let sizes = [counted_before, current.counted_tokens(), fixed];
                current.meter.compacted(sizes);
            }
            // What is new is still to be compacted.
            _ => current.meter.rewritten(current.counted_tokens()),
        }
        let new = current.window.entries().iter().map(WindowEntry::id);
        let committed = Committed::new(current.history.facts.compactions)
            .inserted(new.filter(|id| id.0 >= before.next_id()).collect())
            .entries(proposal.entries);
        let counted_tokens = (counted_before, current.counted_tokens());
        let tokens_after = in_count_of(tokens_before, counted_tokens);
        let mut state = current.state();
        // The provider has not seen this prompt yet, but the engine's words stand beside its count.
        state.reported_tokens.get_or_insert(tokens_after);
        let exceeded = (state.room_for_prompt()).filter(|room| tokens_after > *room);
        let told = engine.call("committed", Deadline::Extended, move |engine| {
            engine.committed(&committed);
            Ok(engine.should_compress(&state))
        });
        let mut notes: Vec<String> = proposal.notes.iter().map(|note| limited(note)).collect();
        if notes.len() > MOST_NOTES {
            let more = notes.len() - MOST_NOTES;
            notes.truncate(MOST_NOTES);
            notes.push(format!("{more} more notes of the engine were left out"));
        }
        notes.extend(
            (checked.previewed).map(|id| format!("{id}, the user's last message, was shortened")),
        );
        let mut reason = format!(
            "{}{}",
            sizes(tokens_before, tokens_after),
            match checked.previewed {
                Some(_) => ", the user's last message shortened",
                None => "",
            }
        );
        match (exceeded, told) {
            (Some(room), _) => {
                reason = format!(
                    "{reason}, still above the {} that the window has room for",
                    grouped(room)
                );
            }
            (None, Ok(Decision::Yes(still))) => {
                let still = limited(&still);
                reason = format!("{reason}, still above the engine's own trigger: {still}");
            }
            (None, Ok(_)) => {}
            (None, Err(error)) => notes.push(error.to_string()),
        }
        CompactionReport {
            messages_before,
            tokens_before,
            tokens_after,
            counted_tokens,
            kept: checked.kept,
            replaced: checked.replaced,
            summarised: checked.summarised,
            inserted: checked.inserted,
            dropped: checked.dropped,
            degraded: proposal.degraded,
            notes,
            ..unchanged(engine, current, OutcomeKind::Compacted, reason)
        }
    }
}

/// The most notes of an engine that a report has, and the most characters of each and of a reason.
/// They are for people, and the rest of the engine's text is not shown anywhere.
const MOST_NOTES: usize = 20;
const MOST_WORDS: usize = 4_000;

/// Limits what an engine says to people.
fn limited(text: &str) -> String {
    printable(text, MOST_WORDS).into_owned()
}

/// How many entries at the beginning of the window may be compacted. All of them if `keep_from` is
/// not set or not in the window.
fn compacted_upto(window: &Window, ask: &Ask) -> usize {
    let entries = window.entries();
    let position = |id| entries.iter().position(|entry| entry.id() == id);
    ask.keep_from.and_then(position).unwrap_or(entries.len())
}

/// Tells an engine that its proposal was not applied, and why. This only informs the engine, so a
/// failure has no consequence for a compaction.
fn discard(
    engine: &mut Opened,
    current: &ConversationState,
    reason: &str,
) -> Result<(), CallError> {
    let (number, told) = (current.history.facts.compactions + 1, reason.to_owned());
    engine.call("discarded", Deadline::Extended, move |engine| {
        engine.discarded(number, &told);
        Ok(())
    })
}

/// The warning for a message that cannot be restored.
fn without_original(engine: &Opened, id: MessageId) -> String {
    format!(
        "engine `{}` wants {id} restored, but the original no longer exists: the window was left unchanged",
        engine.name()
    )
}

/// Records the compaction before the engine is told of it: the window that it left, and which
/// messages each summary covers.
fn put_in_force(
    current: &mut ConversationState,
    before: &Window,
    proposal: &Compaction,
    engine: &str,
) {
    let placed: Ids = current
        .window
        .entries()
        .iter()
        .map(WindowEntry::id)
        .collect();
    let mut dropped: Vec<MessageId> = Vec::new();
    // One list for each new text of the window, in order. A notice covers nothing, so its list
    // is empty.
    let mut covered: Vec<Vec<MessageId>> = Vec::new();
    let mut first_summary = None;
    for entry in &proposal.entries {
        let said = entry.ids().iter().flat_map(|id| said_under(current, *id));
        match entry {
            Entry::Summary(_) => {
                first_summary = first_summary.or(Some(covered.len()));
                covered.push(said.collect());
            }
            Entry::Notice(_) => covered.push(Vec::new()),
            Entry::Drop(_) => dropped.extend(said),
            _ => {}
        }
    }
    // A client that continues from the new window sends no trace of dropped messages. They
    // count as covered by the first summary, so that the next alignment does not take them for
    // lost.
    if let Some(first) = first_summary.and_then(|at| covered.get_mut(at)) {
        first.append(&mut dropped);
    }
    let new = current
        .window
        .entries()
        .iter()
        .filter(|entry| entry.id().0 >= before.next_id());
    let summaries: Vec<(MessageId, String)> = new
        .filter_map(|entry| Some((entry.id(), entry.summary()?.to_owned())))
        .collect();
    let mut left_out: Vec<MessageId> = dropped;
    for ((id, text), covers) in summaries.into_iter().zip(covered) {
        left_out.extend(&covers);
        let covers: IdSet = covers.into_iter().collect();
        current.history.write(HostText::summary(id, &text, covers));
    }
    if let Some(earlier) = current.history.in_force() {
        left_out.extend(earlier.window.left_out.iter());
    }
    left_out.retain(|id| !placed.contains(id));
    let in_force = InForce {
        number: current.history.facts.compactions,
        engine: engine.to_owned(),
        window: current.window.save(left_out.into_iter().collect()),
    };
    current.history.set_in_force(Some(in_force));
}

/// The messages that an id of the window stands for: the messages that a summary covers, or the
/// message itself.
fn said_under(current: &ConversationState, id: MessageId) -> Vec<MessageId> {
    match current.history.host_texts.covers(id) {
        Some(covers) => covers.iter().collect(),
        None => vec![id],
    }
}

/// The state that engines store with messages of the window, by message id.
fn states(window: &Window) -> BTreeMap<u64, Value> {
    // The text was JSON when the engine sent it, so a failure here means a damaged record.
    let read = |state| serde_json::from_str(state).unwrap_or_default();
    let states = window.states();
    states.map(|(id, state)| (id.0, read(state))).collect()
}

/// A report that the window was not changed.
pub(crate) fn unchanged(
    engine: &Opened,
    current: &ConversationState,
    outcome: OutcomeKind,
    reason: String,
) -> CompactionReport {
    let messages = current.window.len();
    let counted = current.counted_tokens();
    let tokens = current.state().best_prompt_tokens();
    CompactionReport {
        engine: engine.name().to_owned(),
        source: engine.source(),
        outcome,
        reason,
        messages_before: messages,
        messages_after: messages,
        tokens_before: tokens,
        tokens_after: tokens,
        counted_tokens: (counted, counted),
        kept: messages,
        replaced: 0,
        summarised: 0,
        inserted: 0,
        dropped: 0,
        degraded: false,
        model_calls: 0,
        elapsed_ms: 0.0,
        notes: Vec::new(),
        states: states(&current.window),
    }
}

#[cfg(test)]
mod tests;
