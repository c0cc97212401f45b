//! A complete context engine that uses every part of the interface an author needs first. The pages
//! `docs/write-an-engine.md` and `docs/engine-cookbook.md` quote it.
//!
//! It keeps the last messages. In place of the others stands a page of a notebook: what the user asked for, the notes
//! that the model wrote with the tool `note`, and an account of what happened. A model writes the account, between two
//! turns if there is time. Without a model, it is an outline.
//!
//! Read `CustomEngine` first. `notebook` is what the engine remembers of a session, `layout` decides what stays in the
//! window.

mod layout;
mod notebook;

use std::io::Write as _;
use std::path::PathBuf;

use contexture_engine_api::{
    About, BackgroundCall, COMPACTION_NOTE, Committed, Compaction, CompressOrder, CompressRequest,
    ContextEngine, Decision, Delivery, EngineError, Entry, FailureKind, HostInfo, LogLevel,
    MessageId, MessageView, ModelAnswer, ModelFailure, ModelRequest, OpenRequest, Outcome,
    SUMMARY_END_MARK, Services, StandaloneEngine, ToolCall, ToolSpec, Usage, WindowState, roomy,
};
use layout::{Layout, clip, ids, outline};
use notebook::{Note, Notebook, Prepared, is_gone};
use schemars::{JsonSchema, schema_for};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// The settings under `context.engines.custom-engine`.
#[derive(Deserialize, JsonSchema)]
#[serde(default)]
struct Settings {
    /// The share of the window at which to compact
    #[schemars(range(min = 0.1, max = 0.95))]
    threshold: f64,
    /// Messages kept at the end
    #[schemars(range(min = 1))]
    keep_last: usize,
    /// Notes kept; the oldest makes room for a new one
    #[schemars(range(min = 1))]
    max_notes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            keep_last: 20,
            max_notes: 50,
        }
    }
}

/// The artifact that holds the notebook.
const NOTEBOOK: &str = "notebook";

/// The longest note, in bytes.
const NOTE_BYTES: usize = 1_000;

/// The limit of a model's answer, in tokens.
const ANSWER_TOKENS: u64 = 1_000;

const INSTRUCTIONS: &str = "You summarise the first part of a conversation between a user and an assistant, for the \
    assistant, who goes on with the work and no longer sees it. Keep decisions, names, numbers, paths and what is \
    still open. Answer with the summary alone, in at most 500 words.";

/// The engine of one session.
struct CustomEngine {
    settings: Settings,
    services: Services,
    data_dir: PathBuf,
    notebook: Notebook,
    /// The background call under way: its number, and the messages that it is about.
    asked: Option<(u64, Vec<MessageId>)>,
    /// The last message of the window when the last background call was made.
    asked_at: Option<MessageId>,
    calls: u64,
    compactions: u64,
    reported: Usage,
}

impl StandaloneEngine for CustomEngine {
    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(schema_for!(Settings).to_value()))
            .offers_tools(true)
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let services = request.services.clone();
        let notebook = match services.artifact(NOTEBOOK)? {
            Some(text) => serde_json::from_str(&text).unwrap_or_else(|error| {
                let message = format!("the notebook cannot be read and begins anew: {error}");
                services.log(LogLevel::Warn, &message);
                Notebook::default()
            }),
            None => Notebook::default(),
        };
        Ok(Self {
            settings: request.settings()?,
            services,
            data_dir: request.data_dir.to_owned(),
            notebook,
            asked: None,
            asked_at: None,
            calls: 0,
            compactions: request.compaction.map_or(0, |current| current.id),
            reported: Usage::default(),
        })
    }
}

impl ContextEngine for CustomEngine {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let (tokens, threshold) = (window.best_prompt_tokens(), self.threshold(window));
        let figures = format!("{tokens} tokens, threshold {threshold}");
        if tokens < threshold {
            return Decision::No(figures);
        }
        match window.may_compact(roomy(threshold)) {
            Decision::No(reason) => Decision::No(format!("{figures}; {reason}")),
            _ => Decision::Yes(figures),
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let (messages, order) = (request.messages, request.order);
        let layout = self.layout(messages, &order.window);
        let mut entries: Vec<Entry> = messages.iter().map(|m| Entry::Keep(m.id())).collect();
        let mut degraded = false;
        // From behind, so that what stands before keeps its place.
        for span in [layout.between.clone(), layout.earlier.clone()] {
            let covered = &messages[span.clone()];
            if covered.is_empty() {
                continue;
            }
            let account = self.account(covered, order)?;
            let mut text = account.text;
            if span.start == 0 {
                text = self.notebook.page(&messages[span.end..], layout.bytes) + &text;
            }
            // The host closes a summary with it. After a second one, words would be taken for somebody's.
            text = text.replace(SUMMARY_END_MARK, "");
            let tokens: u64 = covered.iter().map(MessageView::tokens).sum();
            // The host's marks around a summary and its note cost some 80 tokens.
            if self.services.count_tokens(&text) + 80 < tokens {
                degraded |= account.degraded;
                entries.splice(span, [Entry::summary(text, ids(covered))]);
            }
        }
        if entries.iter().all(|entry| matches!(entry, Entry::Keep(_))) {
            let reason = "what is older than the last messages is too short to be worth a summary";
            return Ok(Outcome::NothingToDo(reason.into()));
        }
        let note = Some(COMPACTION_NOTE.into());
        let proposal = Compaction::new(entries).system_note(note);
        Ok(Outcome::Compacted(proposal.degraded(degraded)))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let mut next = self.notebook.clone();
        next.follow(delivery);
        self.keep(next)?;
        // A question about what is no longer part of the conversation needs no answer.
        self.asked
            .take_if(|(_, covers)| covers.iter().any(|id| is_gone(delivery, *id)));
        Ok(())
    }

    fn update_usage(&mut self, usage: &Usage) {
        self.reported = *usage;
    }

    fn committed(&mut self, committed: &Committed) {
        self.compactions = committed.id;
        // Told again after a crash, it has no entries: it is in the file already.
        if committed.entries.is_empty() {
            return;
        }
        let is_summary = |entry: &&Entry| matches!(entry, Entry::Summary(_));
        let summaries = committed.entries.iter().filter(is_summary);
        let covered = summaries.map(|entry| entry.ids().len()).sum();
        if let Err(error) = self.write_figures(covered) {
            let message = format!("compactions.jsonl in the data directory: {error}");
            self.services.log(LogLevel::Warn, &message);
        }
        // What was prepared is in the window now, or no longer fits it.
        let mut next = self.notebook.clone();
        next.prepared = None;
        self.asked = None;
        if let Err(error) = self.keep(next) {
            self.services.log(LogLevel::Warn, &error.to_string());
        }
    }

    fn tools(&self) -> Vec<ToolSpec> {
        vec![
            ToolSpec::new(
                "note",
                "Writes a note that stays in view when older messages leave the context window.",
                schema_for!(NoteArguments).to_value(),
            ),
            ToolSpec::new(
                "notes",
                "Lists the notes of this conversation.",
                schema_for!(NotesArguments).to_value(),
            ),
        ]
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        match call.name.as_str() {
            "note" => {
                let NoteArguments { text } = arguments(call)?;
                let text = text.trim();
                if text.is_empty() || text.len() > NOTE_BYTES {
                    return Err(EngineError::InvalidInput(format!(
                        "`text` has {} bytes; give a note of 1 to {NOTE_BYTES} bytes",
                        text.len()
                    )));
                }
                let mut next = self.notebook.clone();
                next.notes.push(Note {
                    after: next.last,
                    text: text.to_owned(),
                });
                let surplus = next.notes.len().saturating_sub(self.settings.max_notes);
                next.notes.drain(..surplus);
                let count = next.notes.len();
                self.keep(next)?;
                Ok(json!({"notes": count}).to_string())
            }
            "notes" => {
                let NotesArguments { containing } = arguments(call)?;
                let containing = containing.unwrap_or_default();
                let notes = self.notebook.notes.iter().map(|note| note.text.as_str());
                let found: Vec<_> = notes.filter(|text| text.contains(&containing)).collect();
                Ok(json!({"notes": found}).to_string())
            }
            name => Err(EngineError::Unsupported(format!("the tool `{name}`"))),
        }
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let (messages, window) = (request.messages, &request.order.window);
        let threshold = self.threshold(window);
        let last = messages.last().map(MessageView::id);
        let is_near = window.is_near(threshold, roomy(threshold), 0.8);
        // One question at a time, and none again that failed until something new was said.
        let is_idle = self.asked.is_none() && self.notebook.prepared.is_none();
        if !is_near || !is_idle || self.asked_at == last {
            return Vec::new();
        }
        let layout = self.layout(messages, window);
        let earlier = &messages[layout.earlier];
        let Some(question) = self.question(earlier) else {
            return Vec::new();
        };
        self.calls += 1;
        self.asked = Some((self.calls, ids(earlier)));
        self.asked_at = last;
        vec![BackgroundCall::new(self.calls, ids(earlier), question)]
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let Some((_, covers)) = self.asked.take_if(|(asked, _)| *asked == id) else {
            return; // What it is about was cut off meanwhile, or a compaction came first.
        };
        let kept = answer.map_err(EngineError::from).and_then(|answer| {
            let mut next = self.notebook.clone();
            let text = answer.text;
            next.prepared = Some(Prepared { covers, text });
            self.keep(next)
        });
        if let Err(error) = kept {
            let message = format!("no summary was prepared: {error}");
            self.services.log(LogLevel::Info, &message);
        }
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.asked = None;
        self.keep(Notebook::default())
    }

    fn status(&self) -> Value {
        let Notebook {
            requests,
            notes,
            prepared,
            ..
        } = &self.notebook;
        json!({
            "requests": requests.len(),
            "notes": notes.len(),
            "prepared": prepared.is_some(),
            "compactions": self.compactions,
            "reported_tokens": self.reported.input_tokens,
            "read_from_cache": self.reported.cache_read_tokens,
        })
    }
}

/// What is told of some messages, and whether a model was wanted for it and gave no answer.
struct Account {
    text: String,
    degraded: bool,
}

impl CustomEngine {
    fn threshold(&self, window: &WindowState) -> u64 {
        (window.context_length as f64 * self.settings.threshold) as u64
    }

    fn layout(&self, messages: &[MessageView<'_>], window: &WindowState) -> Layout {
        Layout::new(
            messages,
            window,
            self.settings.keep_last,
            self.threshold(window),
        )
    }

    /// Puts a new notebook in force, once the host has it.
    fn keep(&mut self, notebook: Notebook) -> Result<(), EngineError> {
        let text = serde_json::to_string(&notebook)
            .map_err(|error| EngineError::Other(format!("the notebook: {error}")))?;
        self.services.put_artifact(NOTEBOOK, Some(&text))?;
        self.notebook = notebook;
        Ok(())
    }

    /// Figures of all sessions for a person, a line for each compaction. Nothing in it is from a conversation, so it may
    /// outlive them.
    fn write_figures(&self, covered: usize) -> std::io::Result<()> {
        let path = self.data_dir.join("compactions.jsonl");
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)?;
        // Other sessions and processes write to it, too: one short line in one write.
        let line = json!({"at_ms": self.services.now_ms(), "covered": covered});
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// The account of these messages: prepared between turns, by a model now if somebody waits for it, or an outline.
    fn account(
        &self,
        messages: &[MessageView<'_>],
        order: &CompressOrder,
    ) -> Result<Account, EngineError> {
        let bytes = self.threshold(&order.window) as usize / 2;
        let account = |text: &str, degraded| Account {
            text: clip(text, bytes).to_owned(),
            degraded,
        };
        if let Some(prepared) = &self.notebook.prepared
            && ids(messages).starts_with(&prepared.covers)
        {
            let rest = outline(&messages[prepared.covers.len()..], bytes / 2);
            let text = format!("{}\n{rest}", clip(&prepared.text, bytes / 2));
            return Ok(account(&text, false));
        }
        if order.may_wait_for_model
            && let Some(question) = self.question(messages)
        {
            match self.services.complete(&question) {
                Ok(answer) => return Ok(account(&answer.text, false)),
                Err(failure) if failure.kind == FailureKind::Cancelled => {
                    return Err(EngineError::Cancelled);
                }
                Err(failure) => {
                    let message = format!("an outline stands in for the summary: {failure}");
                    self.services.log(LogLevel::Warn, &message);
                    return Ok(account(&outline(messages, bytes), true));
                }
            }
        }
        Ok(account(&outline(messages, bytes), false))
    }

    /// The question for a summary of these messages, as many of the last as the model's window holds. None if there is
    /// no model, or nothing to ask about.
    fn question(&self, messages: &[MessageView<'_>]) -> Option<ModelRequest> {
        let model = self.services.model()?;
        let mut room = (model.context_length * 3 / 4).checked_sub(2 * ANSWER_TOKENS)?;
        let mut lines = Vec::new();
        for message in messages.iter().rev() {
            let line = format!("{}: {}", message.role(), clip(message.text(), 8_000));
            room = match room.checked_sub(self.services.count_tokens(&line) + 1) {
                Some(left) => left,
                None => break,
            };
            lines.push(line);
        }
        lines.reverse();
        let material = lines.join("\n\n");
        (!lines.is_empty())
            .then(|| ModelRequest::new("summary", INSTRUCTIONS, material, ANSWER_TOKENS))
    }
}

/// The arguments of `note`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoteArguments {
    /// What to remember: one fact, decision or rule
    text: String,
}

/// The arguments of `notes`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NotesArguments {
    /// Only notes that contain this text
    containing: Option<String>,
}

/// Reads the arguments of a call. The model sees the error, so it says what to write instead.
fn arguments<T: DeserializeOwned>(call: &ToolCall) -> Result<T, EngineError> {
    let wrong = |error: serde_json::Error| {
        EngineError::InvalidInput(format!("the arguments of `{}`: {error}", call.name))
    };
    // A derived `Deserialize` would take a list of values, too.
    let object: Map<String, Value> = serde_json::from_str(&call.arguments).map_err(wrong)?;
    serde_json::from_value(Value::Object(object)).map_err(wrong)
}

// For a program that links the engine in, and for a host that loads the library.
contexture_engine_api::register_engine!("custom-engine", CustomEngine);
#[cfg(feature = "plugin")]
contexture_engine_api::export_engine!("custom-engine", CustomEngine);

#[cfg(all(test, feature = "plugin"))]
contexture_testkit::conforms!(CONTEXTURE_ENGINE);

#[cfg(test)]
mod tests;
