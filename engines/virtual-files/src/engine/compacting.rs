//! A compaction: everything but the messages of the plan becomes a summary, and the window before
//! it becomes a file.
//!
//! `propose` is the main function. It chooses the plan, estimates whether the result would make
//! enough room, lets the summary be written, and turns the largest remaining messages into files if
//! that was not enough. The new window file is stored at once, because the notice and the summary
//! name it. If the host discards the proposal, `drop_proposal` removes the file again. `prepare`
//! starts the next summary between turns. What the plan keeps is decided in `plan`.

use std::cmp::Reverse;
use std::collections::HashMap;

use contexture_engine_api::{
    COMPACTION_NOTE, Compaction, CompressOrder, CompressRequest, EngineError, Entry, Floor,
    MessageId, MessageKind, MessageView, Outcome, Replacement, Services, WindowState, grouped,
    in_flight, roomy,
};
use contexture_summaries::{
    Notes, Sizes, SummaryCycle, WrittenSummary, body_of, framing_tokens, marked, to_host_tokens,
};

use super::VirtualFiles;
use crate::files::{File, WindowPart, window_of};
use crate::headings::HEADINGS;
use crate::notice;
use crate::plan::Plan;
use crate::preview::{FILE_MARK, may_be_file};

/// The share of the threshold from which the next summary is prepared between turns.
const PREPARE_FROM: f64 = 0.8;
/// Messages before the unanswered turn may take one part in this many of the window.
const TAIL_SHARE: u64 = 10;
/// A summary takes one part in `CONTENT_SHARE` of the messages it covers, and at most one in
/// `WINDOW_SHARE` of the window. `LEAST_SUMMARY` is what it may always take, in tokens.
const CONTENT_SHARE: u64 = 5;
const WINDOW_SHARE: u64 = 20;
const LEAST_SUMMARY: u64 = 200;
/// The share of the prompt that a compaction must save to be proposed unless it is forced.
const MIN_SAVING: f64 = 0.03;

/// A proposal that the host has neither committed nor discarded. The summary is `None` if only
/// messages became files.
#[derive(Debug)]
pub(super) struct Proposal {
    sizes: Sizes,
    /// The name of the file that holds the window before the compaction, if that file is new.
    file: Option<String>,
    written: Option<WrittenSummary>,
}

/// A compaction that is worth it, from which the proposal is built.
struct Draft {
    plan: Plan,
    sizes: Sizes,
    /// The file of the window before the compaction, and the parts of its text.
    file: File,
    parts: Vec<WindowPart>,
    written: Option<WrittenSummary>,
    /// The text of the written summary as the window shows it.
    summary: Option<String>,
    /// The shorter texts of messages that became files, by position.
    shorter: HashMap<usize, String>,
    is_notice_due: bool,
}

/// The messages that a summary would cover, in order. Notices and earlier summaries are not among
/// them.
struct Covered<'a> {
    messages: Vec<MessageView<'a>>,
    /// The same messages in the form in which they were said, without the mark of a file.
    said: Vec<MessageView<'a>>,
    /// The messages as they were said, and the earlier summaries, in the order of the window.
    window: Vec<MessageView<'a>>,
    /// The texts of the earlier summaries that leave, joined by blank lines. `None` if there are
    /// none.
    previous: Option<String>,
}

impl<'a> Covered<'a> {
    fn of(messages: &[MessageView<'a>], plan: &Plan, cycle: &SummaryCycle) -> Self {
        let leave = messages
            .iter()
            .enumerate()
            .filter(|(at, message)| !plan.keeps(*at) && message.kind() != MessageKind::Notice);
        let leave = leave.map(|(_, message)| *message);
        let window = leave.clone().map(|message| as_said(&message)).collect();
        let (summaries, messages): (Vec<MessageView<'a>>, Vec<MessageView<'a>>) =
            leave.partition(|message| message.kind() == MessageKind::Summary);
        let bodies = summaries.iter().map(|summary| {
            let body = unpointed(summary.text());
            cycle.better(&body).unwrap_or(body)
        });
        let bodies: Vec<String> = bodies.filter(|body| !body.is_empty()).collect();
        Self {
            said: messages.iter().map(as_said).collect(),
            messages,
            window,
            previous: (!bodies.is_empty()).then(|| bodies.join("\n\n")),
        }
    }

    /// The task for this summary. The model reads the messages as the window shows them, and facts
    /// are extracted from their text without marks.
    fn notes<'t>(&'t self, order: &'t CompressOrder, services: &'t Services) -> Notes<'t, 'a> {
        let tokens = self.summary_tokens(&order.window);
        let mut notes = Notes::new(&self.said, &HEADINGS, tokens, order, services);
        notes.largest = most_summary(&order.window);
        notes.shown = &self.messages;
        notes.window = &self.window;
        notes.previous = self.previous.as_deref();
        notes
    }

    fn summary_tokens(&self, window: &WindowState) -> u64 {
        let content: u64 = self.messages.iter().map(MessageView::tokens).sum();
        let most = most_summary(window);
        (content / CONTENT_SHARE).max(LEAST_SUMMARY).min(most)
    }
}

/// The largest number of tokens that a summary may have in this window.
fn most_summary(window: &WindowState) -> u64 {
    (window.context_length / WINDOW_SHARE).max(LEAST_SUMMARY)
}

/// An estimate of the tokens that a compaction of this window leaves: the fixed part, a full tail
/// and a full summary.
pub(super) fn likely_after(window: &WindowState) -> u64 {
    window.fixed_tokens + window.context_length / TAIL_SHARE + most_summary(window)
}

impl VirtualFiles {
    /// Proposes a compaction, or says why there is none. May write files, ask a model if the order
    /// permits it, and fail if the transcript or an artifact cannot be read or written.
    pub(super) fn propose(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        self.drop_proposal()?;
        let (messages, order) = (request.messages, request.order);
        let window = &order.window;
        let limits = self.settings.limits(window);
        let Some(threshold) = limits.threshold else {
            return Ok(Outcome::NothingToDo(
                "the model's context length is not known: set `model.context_length`".into(),
            ));
        };
        if let Some(reason) =
            (self.headroom.stopped(window)).filter(|_| !order.force && window.fits())
        {
            return Ok(Outcome::Deferred(reason.to_owned()));
        }
        let waiting = in_flight(messages);
        let before = window.fixed_tokens + messages.iter().map(MessageView::tokens).sum::<u64>();
        // The threshold is in the provider's tokens, but the messages are counted by the host.
        let trigger = (threshold as f64 * to_host_tokens(before, window)) as u64;
        let goal = roomy(trigger);
        let framing = framing_tokens(&self.services);
        let mut plan = choose_plan(messages, waiting, window, goal, framing);
        let covered = Covered::of(messages, &plan, &self.cycle);
        let large = large_messages(messages, waiting, limits.preview);
        // What could be left is computed before a model is asked or a file is written.
        let preview = limits.preview + framing;
        let mut sizes = Sizes {
            before,
            after: least_left(messages, window, &plan, &covered, &large, preview),
            trigger,
        };
        if let Some(reason) = self.headroom.refuses(order, sizes) {
            return Ok(Outcome::Deferred(reason));
        }

        let written = match covered.messages.is_empty() {
            true => {
                plan = Plan::everything();
                None
            }
            false => Some((self.cycle).write(&covered.notes(order, &self.services), order)?),
        };
        // The file must contain the window as the model saw it, so it is made before anything is
        // shortened.
        let (file, parts) = self.window_file(messages);
        let summary = written
            .as_ref()
            .map(|written| marked(&format!("{}\n\n{}", pointer(&file), written.text)));
        let is_notice_due = is_notice_due(messages, window, waiting);
        // The notice is counted now, but written at the end when the final figure is known.
        let notice = is_notice_due.then(|| self.notice(window, before, Some(&file)));
        let added = |text: &String| self.services.count_tokens(text) + framing;
        let added: u64 = summary.iter().chain(&notice).map(added).sum();
        let after = window.fixed_tokens + plan.kept_tokens(messages) + added;
        let candidates = large.into_iter().filter(|at| plan.keeps(*at));
        let candidates = candidates.map(|at| (at, messages[at])).collect();
        let (shorter, after) = self.file_largest(candidates, after, goal, limits.preview)?;

        sizes.after = after;
        if let Some(reason) = self.headroom.refuses(order, sizes) {
            return Ok(Outcome::Deferred(reason));
        }
        let changes = summary.is_some() || !shorter.is_empty();
        if !changes || !is_worth_it(before, after, order.force) {
            return Ok(self.not_worth_it(order, before, after, trigger, changes));
        }
        self.build(
            messages,
            window,
            Draft {
                plan,
                sizes,
                file,
                parts,
                written,
                summary,
                shorter,
                is_notice_due,
            },
        )
    }

    /// Stores the file of the window and returns the proposal.
    fn build(
        &mut self,
        messages: &[MessageView<'_>],
        window: &WindowState,
        draft: Draft,
    ) -> Result<Outcome, EngineError> {
        let Draft { file, written, .. } = draft;
        let mut notes: Vec<String> = (written.iter())
            .map(|written| written.note.clone())
            .collect();
        if !draft.shorter.is_empty() {
            notes.push(format!(
                "{} of the messages that stay were moved to files, since there was no room for them",
                draft.shorter.len()
            ));
        }
        let mut entries = entries_of(messages, draft.summary, draft.shorter, &draft.plan);
        if draft.is_notice_due {
            // The file is listed from the commit on, which is also when the notice appears.
            let text = self.notice(window, draft.sizes.after, Some(&file));
            entries.push(Entry::notice(text));
        }
        let degraded = written.as_ref().is_some_and(|written| written.degraded);
        let name = file.name.clone();
        self.proposal = Some(Proposal {
            sizes: draft.sizes,
            file: self.files.put(file, Some(draft.parts))?.then_some(name),
            written,
        });
        Ok(Outcome::Compacted(
            Compaction::new(entries)
                .system_note(Some(COMPACTION_NOTE.to_owned()))
                .degraded(degraded)
                .notes(notes),
        ))
    }

    /// Makes the file of the window before the compaction, which is not stored yet.
    fn window_file(&self, messages: &[MessageView<'_>]) -> (File, Vec<WindowPart>) {
        let (text, parts) = window_of(messages);
        let last = messages
            .iter()
            .filter(|message| message.kind() != MessageKind::Summary)
            .filter(|message| message.kind() != MessageKind::Notice)
            .map(MessageView::id)
            .max()
            .unwrap_or_default();
        let of = "the window before a compaction";
        (self.files.file("window", of, &text, last), parts)
    }

    /// Turns messages into files until the prompt, which has `after` tokens, is down to `goal`. The
    /// largest come first, so that they are few. Returns the text that the window shows instead of
    /// each, by position, and the size of the prompt.
    fn file_largest(
        &mut self,
        mut candidates: Vec<(usize, MessageView<'_>)>,
        mut after: u64,
        goal: u64,
        preview: u64,
    ) -> Result<(HashMap<usize, String>, u64), EngineError> {
        let framing = framing_tokens(&self.services);
        let mut shorter = HashMap::new();
        candidates.sort_by_key(|(_, message)| Reverse(message.tokens()));
        for (at, message) in candidates {
            if after <= goal {
                break;
            }
            if let Some(text) = self.shortened(&message, preview)? {
                let tokens = self.services.count_tokens(&text) + framing;
                after = after.saturating_sub(message.tokens()) + tokens;
                shorter.insert(at, text);
            }
        }
        Ok((shorter, after))
    }

    /// Says why the compaction is not proposed, and remembers it if the prompt is above the
    /// threshold. If the prompt does not fit the window, the host learns the floor.
    fn not_worth_it(
        &mut self,
        order: &CompressOrder,
        before: u64,
        after: u64,
        threshold: u64,
        changes: bool,
    ) -> Outcome {
        let reason = match changes {
            true => format!(
                "a compaction could not get the prompt of {} tokens below {}, which is not worth it",
                grouped(before),
                grouped(after)
            ),
            false => {
                "there is nothing before the user's last message and the latest turn, which stay"
                    .into()
            }
        };
        // Above the threshold the next turn would try again with the same result.
        if before >= threshold {
            self.headroom.stop(reason.clone(), &order.window);
        }
        if !order.force && !order.window.has_room_for(before) {
            return Outcome::FloorTooHigh(
                Floor::default().tokens(after.min(before)).reason(reason),
            );
        }
        Outcome::NothingToDo(reason)
    }

    /// Records that the host committed the proposal. Its summary is in force and its file stays.
    pub(super) fn adopt(&mut self, proposal: Proposal) {
        self.headroom.committed(&self.window, proposal.sizes);
        self.compactions += 1;
        self.cycle.committed(proposal.written);
    }

    /// Drops the proposal and removes its file, which nobody has seen. Fails if the artifact cannot
    /// be removed.
    pub(super) fn drop_proposal(&mut self) -> Result<(), EngineError> {
        match self.proposal.take().and_then(|proposal| proposal.file) {
            Some(name) => self.files.discard(&name),
            None => Ok(()),
        }
    }

    /// Starts the next summary once the threshold is near, unless one is open already.
    pub(super) fn prepare(&mut self, request: &CompressRequest<'_>) {
        let (messages, window) = (request.messages, &request.order.window);
        let threshold = self.settings.limits(window).threshold;
        let is_near = threshold
            .is_some_and(|threshold| window.is_near(threshold, likely_after(window), PREPARE_FROM));
        if !is_near || !self.cycle.is_idle() {
            return;
        }
        let tail = window.context_length / TAIL_SHARE;
        let plan = Plan::of(messages, in_flight(messages), tail);
        let covered = Covered::of(messages, &plan, &self.cycle);
        if !covered.messages.is_empty() {
            let notes = covered.notes(request.order, &self.services);
            self.cycle.prepare(&notes);
        }
    }
}

/// Returns what stays: a full tail if it leaves enough room below `goal` for a summary, or else only
/// what must stay. `framing` is what a message takes besides its text.
fn choose_plan(
    messages: &[MessageView<'_>],
    waiting: Option<usize>,
    window: &WindowState,
    goal: u64,
    framing: u64,
) -> Plan {
    let full = Plan::of(messages, waiting, window.context_length / TAIL_SHARE);
    let summary = most_summary(window) + framing;
    match window.fixed_tokens + full.kept_tokens(messages) + summary <= goal {
        true => full,
        false => Plan::of(messages, waiting, 0),
    }
}

/// Returns the positions of the messages that may become files. A message of the turn that waits for
/// a result never does, and one with less than two previews would save too little.
fn large_messages(
    messages: &[MessageView<'_>],
    waiting: Option<usize>,
    preview: u64,
) -> Vec<usize> {
    let may_shrink =
        |message: &MessageView<'_>| may_be_file(message) && message.tokens() >= preview * 2;
    (0..waiting.unwrap_or(messages.len()).min(messages.len()))
        .filter(|at| may_shrink(&messages[*at]))
        .collect()
}

/// Returns the least that the prompt could have after the compaction, in tokens. `large` are the
/// messages that may become files, and `preview` is what the window then shows of each.
fn least_left(
    messages: &[MessageView<'_>],
    window: &WindowState,
    plan: &Plan,
    covered: &Covered<'_>,
    large: &[usize],
    preview: u64,
) -> u64 {
    let left = window.fixed_tokens + plan.kept_tokens(messages) + covered.summary_tokens(window);
    let saving = |at: &usize| messages[*at].tokens().saturating_sub(preview);
    left.saturating_sub(large.iter().filter(|at| plan.keeps(**at)).map(saving).sum())
}

/// Whether a notice follows the compaction. If only a part of the window is compacted, its end is not
/// the end of the window.
fn is_notice_due(
    messages: &[MessageView<'_>],
    window: &WindowState,
    waiting: Option<usize>,
) -> bool {
    let is_notice = |message: &&MessageView<'_>| message.kind() == MessageKind::Notice;
    let last = messages.iter().rfind(|message| !is_notice(message));
    messages.len() >= window.messages && notice::is_due(last, waiting)
}

/// Whether a compaction saves enough of the prompt. If it is forced, any saving is enough.
fn is_worth_it(before: u64, after: u64, is_forced: bool) -> bool {
    let saved = before.saturating_sub(after);
    saved > 0 && (is_forced || saved >= (before as f64 * MIN_SAVING) as u64)
}

/// Returns the entries of a proposal: the summary of all messages that do not stay, and those that
/// stay, some of them in a shorter form.
fn entries_of(
    messages: &[MessageView<'_>],
    summary: Option<String>,
    mut shorter: HashMap<usize, String>,
    plan: &Plan,
) -> Vec<Entry> {
    let covers: Vec<MessageId> = (0..messages.len())
        .filter(|at| !plan.keeps(*at) && messages[*at].kind() != MessageKind::Notice)
        .map(|at| messages[at].id())
        .collect();
    let mut entries = Vec::with_capacity(messages.len() + 2);
    entries.extend(summary.map(|text| Entry::summary(text, covers)));
    for (at, message) in messages.iter().enumerate() {
        let id = message.id();
        match shorter.remove(&at) {
            _ if message.kind() == MessageKind::Notice => {
                entries.push(Entry::dropped(id, "its figures are out of date"));
            }
            Some(text) => entries.push(Entry::Replace(Replacement::new(id).text(Some(text)))),
            None if plan.keeps(at) => entries.push(Entry::Keep(id)),
            None => {}
        }
    }
    entries
}

/// Returns a message of the user without the mark of its file. The user did not write that line,
/// which is the first.
fn as_said<'a>(message: &MessageView<'a>) -> MessageView<'a> {
    match message.text().split_once('\n') {
        Some((_, said)) if message.is_real_user() && message.kind() == MessageKind::Replaced => {
            message.with_text(said)
        }
        _ => *message,
    }
}

/// Returns the line that tells the model in which file the window before this summary is.
fn pointer(window: &File) -> String {
    format!(
        "{FILE_MARK}{}: the whole window before this summary, {} tokens; file_regex and file_read find in it what these \
         notes lack]",
        window.name,
        grouped(window.tokens)
    )
}

/// Returns the notes of a summary, without its marks and without the line about the window before
/// it.
fn unpointed(summary: &str) -> String {
    let body = body_of(summary);
    match body
        .strip_prefix(FILE_MARK)
        .and_then(|rest| rest.split_once('\n'))
    {
        Some((_, notes)) => notes.trim().to_owned(),
        None => body,
    }
}
