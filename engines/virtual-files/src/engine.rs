//! [`VirtualFiles`], the engine itself: what it does at each call of the host.
//!
//! `rewrite` runs before each request. It turns large new messages into files and appends a notice.
//! `compress` proposes a summary and is implemented in `compacting`. The tools are in `tools`, and
//! the files in `files`. The engine keeps little state of its own, because the files are artifacts
//! of the session: they are read when a session is opened, and refreshed when messages are cut off
//! or edited.

mod compacting;

use contexture_engine_api::{
    About, BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Decision,
    Delivery, EngineError, Entry, HostInfo, LogLevel, MessageKind, MessageView, ModelAnswer,
    ModelFailure, OpenRequest, Outcome, Replacement, Services, StandaloneEngine, ToolCall,
    ToolSpec, WindowState, grouped, in_flight, roomy,
};
use contexture_summaries::{Headroom, SummaryCycle, keep_rules};
use schemars::schema_for;
use serde_json::{Value, json};

use crate::calls::Calls;
use crate::files::{File, Files};
use crate::notice::{self, NOTICE_MARK};
use crate::preview::{FILE_MARK, is_longer, may_be_file, named_in, preview};
use crate::settings::{Limits, Settings};
use crate::tools;
use compacting::{Proposal, likely_after};

/// The engine of one session. It offers its tools in every request and keeps the files, the count
/// of tool calls and the current proposal.
#[derive(Debug)]
pub struct VirtualFiles {
    settings: Settings,
    services: Services,
    files: Files,
    /// The count of tool calls, or `None` if they are not limited.
    calls: Option<Calls>,
    cycle: SummaryCycle,
    headroom: Headroom,
    /// The window as the host last reported it. Limits for files and answers follow from it.
    window: WindowState,
    proposal: Option<Proposal>,
    compactions: u64,
}

impl StandaloneEngine for VirtualFiles {
    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(schema_for!(Settings).to_value()))
            .reads_transcript(true)
            .rewrites(true)
            .keeps_user_messages(true)
            .offers_tools(true)
            .limits_tool_calls(true)
            .marks(vec![NOTICE_MARK.to_owned(), FILE_MARK.to_owned()])
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let settings: Settings = request.settings()?;
        let is_limited = settings.max_tool_calls > 0;
        Ok(Self {
            calls: match is_limited {
                true => Some(Calls::of(&request.services)?),
                false => None,
            },
            settings,
            services: request.services.clone(),
            files: Files::open(request.services.clone())?,
            cycle: SummaryCycle::open(request.data_dir, request.services.clone()),
            headroom: Headroom::default(),
            window: request.window.clone(),
            proposal: None,
            compactions: 0,
        })
    }
}

impl VirtualFiles {
    fn limits(&self) -> Limits {
        self.settings.limits(&self.window)
    }

    /// Makes a file of a message and returns the text that the window shows instead. Returns
    /// `None`, and makes no file, if that would not be shorter.
    fn shortened(
        &mut self,
        message: &MessageView<'_>,
        preview_tokens: u64,
    ) -> Result<Option<String>, EngineError> {
        let text = message.text();
        let (kind, of) = match message.role() {
            "tool" => {
                let tool = message.tool_name().unwrap_or("result");
                (tool, format!("the result of {tool}"))
            }
            _ => ("user", "a message of the user".to_owned()),
        };
        let file = self.files.file(kind, &of, text, message.id());
        let short = preview(&file, message, preview_tokens, &self.services);
        if short.is_some() {
            self.files.put(file, None)?;
        }
        Ok(short.map(|short| keep_rules(message, short)))
    }

    /// Links the files that the window shows to the ids that their messages have now. A message
    /// gets a new id when its client edits it or returns to an earlier branch.
    fn link_what_is_shown(&mut self, messages: &[MessageView<'_>]) -> Result<(), EngineError> {
        for message in messages {
            let may_name = match message.kind() {
                MessageKind::Summary => true,
                MessageKind::Replaced => message.text().starts_with(FILE_MARK),
                _ => false,
            };
            if may_name
                && let Some(name) = named_in(message.text())
                && self.files.is_unlisted(name)
            {
                self.files.link(name, message.id())?;
            }
        }
        Ok(())
    }

    /// Returns the reason why the model may call no more tools, or `None` if the limit is not
    /// reached or not set.
    fn limit_reached(&self) -> Option<String> {
        let limit = self.settings.max_tool_calls;
        let is_reached = self
            .calls
            .as_ref()
            .is_some_and(|calls| calls.since_user >= limit);
        is_reached.then(|| {
            format!(
                "The limit of {} tool calls after a user message (`max_tool_calls`) is reached.",
                grouped(limit)
            )
        })
    }

    /// Returns the tokens of the user's last message that the window shows if that does not fit even
    /// alone: as many as the other messages leave of what a compaction aims at. It returns 0 if the
    /// message fits. The window has `tokens` tokens with all of it.
    fn room_for(&self, message: &MessageView<'_>, tokens: u64) -> u64 {
        let alone = self.window.fixed_tokens + message.tokens();
        let threshold = (self.limits().threshold).filter(|_| !self.window.has_room_for(alone));
        let others = tokens.saturating_sub(message.tokens());
        roomy(threshold.unwrap_or_default()).saturating_sub(others)
    }

    /// Writes the notice for a window of so many tokens. `new` is a file that is about to be
    /// listed.
    fn notice(&self, window: &WindowState, tokens: u64, new: Option<&File>) -> String {
        notice::notice(
            window,
            tokens,
            new.into_iter().chain(self.files.listed()),
            self.limit_reached().as_deref(),
        )
    }
}

impl ContextEngine for VirtualFiles {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let Some(threshold) = self.settings.limits(window).threshold else {
            return Decision::No("the model's context length is not known".into());
        };
        let prompt = window.best_prompt_tokens();
        let figures = format!(
            "the prompt has {} tokens; a compaction is due from {}",
            grouped(prompt),
            grouped(threshold)
        );
        if prompt < threshold {
            return Decision::No(figures);
        }
        match self.headroom.decide(window, likely_after(window)) {
            Decision::Yes(_) => Decision::Yes(figures),
            decision => decision,
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.window = request.order.window.clone();
        self.propose(request)
    }

    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        let (messages, window) = (request.messages, &request.order.window);
        self.window = window.clone();
        self.drop_proposal()?;
        // Do this before making files, so that an existing file is found under its current
        // messages.
        self.link_what_is_shown(messages)?;
        let limits = self.limits();
        let waiting = in_flight(messages);
        let mut tokens = window.best_prompt_tokens();
        let mut shorter = Vec::new();
        // Everything before the last notice was sent to the provider in this form. It stays as it
        // is, so that the provider's prompt cache remains valid.
        let sent = (messages.iter()).rposition(|message| message.kind() == MessageKind::Notice);
        let last_user = messages.iter().rposition(MessageView::is_real_user);
        for (at, message) in messages.iter().enumerate().skip(sent.unwrap_or(0)) {
            // A call in flight still needs its messages, so nothing from there on is shortened.
            let may_be = may_be_file(message) && waiting.is_none_or(|waiting| at < waiting);
            if !may_be || !is_longer(message, limits.file, &self.services) {
                continue;
            }
            let most = match Some(at) == last_user {
                true => limits.preview.max(self.room_for(message, tokens)),
                false => limits.preview,
            };
            if let Some(text) = self.shortened(message, most)? {
                // The notice below names the prompt as it is after this rewrite.
                tokens = (tokens + self.services.count_tokens(&text))
                    .saturating_sub(self.services.count_tokens(message.text()));
                shorter.push((at, text));
            }
        }
        let is_due = notice::is_due(messages.last(), waiting);
        if shorter.is_empty() && !is_due {
            return Ok(None);
        }
        let mut shorter = shorter.into_iter().peekable();
        let mut entries: Vec<Entry> = messages
            .iter()
            .enumerate()
            .map(
                |(at, message)| match shorter.next_if(|(shorter, _)| *shorter == at) {
                    Some((_, text)) => {
                        Entry::Replace(Replacement::new(message.id()).text(Some(text)))
                    }
                    None => Entry::Keep(message.id()),
                },
            )
            .collect();
        if is_due {
            entries.push(Entry::notice(self.notice(window, tokens, None)));
        }
        Ok(Some(Compaction::new(entries)))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        self.cycle.observe(delivery);
        let is_changed = delivery.cut.is_some() || !delivery.revisions.is_empty();
        // Cut or revised messages change which files are listed, and whether room can be made.
        if is_changed {
            self.headroom.things_changed();
            self.files.refresh()?;
        }
        match &mut self.calls {
            Some(calls) if is_changed => *calls = Calls::of(&self.services)?,
            Some(calls) => calls.add(delivery.messages),
            None => {}
        }
        Ok(())
    }

    fn committed(&mut self, _committed: &Committed) {
        if let Some(proposal) = self.proposal.take() {
            self.adopt(proposal);
        }
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        let dropped = self.drop_proposal();
        let line = format!("proposal {compaction} was refused: {reason}");
        self.services.log(LogLevel::Warn, &line);
        if let Err(error) = dropped {
            self.services.log(LogLevel::Warn, &error.to_string());
        }
    }

    fn may_call_tools(&self, _window: &WindowState) -> Decision {
        match self.limit_reached() {
            Some(reason) => Decision::No(reason),
            None => Decision::Yes("the limit of tool calls is not reached".into()),
        }
    }

    fn tools(&self) -> Vec<ToolSpec> {
        tools::specs()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        tools::call(call, &self.files, self.limits().answer, &self.services)
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        self.prepare(request);
        self.cycle.calls()
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        self.cycle.answered(id, answer);
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window = window.clone();
        self.headroom.things_changed();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.proposal = None;
        self.cycle.reset();
        self.headroom.things_changed();
        self.calls = self.calls.as_ref().map(|_| Calls::default());
        self.files.reset()
    }

    fn status(&self) -> Value {
        let files = self.files.listed();
        self.cycle.with_status(json!({
            "settings": self.settings,
            "files": files.len(),
            "file_tokens": files.iter().map(|file| file.tokens).sum::<u64>(),
            "compactions": self.compactions,
            "stopped": self.headroom.reason(),
        }))
    }
}
