//! The engine: what it does at each of the host's calls.

use std::time::{Duration, UNIX_EPOCH};

use contexture_engine_api::{
    About, BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Decision,
    Delivery, EngineError, Entry, FactoryRequest, HostInfo, LogLevel, MessageId, MessageKind,
    MessageView, ModelAnswer, ModelFailure, Observed, OpenRequest, Outcome, Replacement, Services,
    StandaloneEngine, StoreCommand, ToolCall, ToolSpec, WindowState, grouped, in_flight,
};
use contexture_summaries::{Headroom, SummaryCycle};
use schemars::schema_for;
use serde_json::{Value, json};

use crate::compacting::{Proposal, likely_after};
use crate::folder::{File, Folder, Kept, Said, Step};
use crate::notice::{self, NOTICE_MARK};
use crate::originals::Original;
use crate::preview::{FILE_MARK, is_longer, may_be_file, named_in, preview};
use crate::settings::{Limits, Settings};
use crate::tools;

/// The engine of one session.
#[derive(Debug)]
pub struct VirtualFiles {
    pub(crate) settings: Settings,
    pub(crate) services: Services,
    pub(crate) folder: Folder,
    pub(crate) cycle: SummaryCycle,
    pub(crate) headroom: Headroom,
    /// The window as last told.
    pub(crate) window: WindowState,
    pub(crate) proposal: Option<Proposal>,
    pub(crate) compactions: u64,
}

impl StandaloneEngine for VirtualFiles {
    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(schema_for!(Settings).to_value()))
            .rewrites(true)
            .keeps_user_messages(true)
            .offers_tools(true)
            .limits_tool_calls(true)
            .marks(vec![NOTICE_MARK.to_owned(), FILE_MARK.to_owned()])
    }

    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            settings: request.settings()?,
            services: request.services.clone(),
            folder: Folder::open(request.data_dir, request.session)?,
            cycle: SummaryCycle::open(request.data_dir, request.services.clone()),
            headroom: Headroom::default(),
            window: request.window.clone(),
            proposal: None,
            compactions: 0,
        })
    }

    fn manage(command: &StoreCommand, engine: &FactoryRequest<'_>) -> Result<Value, EngineError> {
        let StoreCommand::Delete {
            session,
            older_than_ms,
            dry_run,
        } = command
        else {
            return Err(EngineError::Unsupported("keeping sessions".to_owned()));
        };
        let mut gone = Kept::all(engine.data_dir)?;
        match (session, older_than_ms) {
            (Some(session), _) => gone.retain(|kept| kept.session == *session),
            (None, Some(ms)) => {
                let limit = UNIX_EPOCH + Duration::from_millis(u64::try_from(*ms).unwrap_or(0));
                gone.retain(|kept| kept.used < limit);
            }
            (None, None) => gone.clear(),
        }
        if !dry_run {
            gone.iter().try_for_each(Kept::remove)?;
        }
        let ids: Vec<&str> = gone.iter().map(|kept| kept.session.as_str()).collect();
        let bytes: u64 = gone.iter().map(|kept| kept.bytes).sum();
        Ok(json!({"dry_run": dry_run, "sessions": ids, "bytes": bytes}))
    }
}

impl VirtualFiles {
    fn limits(&self) -> Limits {
        self.settings.limits(&self.window)
    }

    /// What is known of a file with this in it.
    pub(crate) fn file(&self, name: String, of: &str, text: &str) -> File {
        File {
            name,
            of: of.into(),
            tokens: self.services.count_tokens(text),
            lines: text.lines().count() as u64,
        }
    }

    /// Notes which messages are in which files; where that fails, the files are on no list, and still readable.
    pub(crate) fn link(&mut self, files: Vec<(MessageId, File)>) {
        if files.is_empty() {
            return;
        }
        if let Err(error) = self.folder.take(Step::of_files(files)) {
            self.services.log(LogLevel::Warn, &error.to_string());
        }
    }

    /// Keeps a message as a file, and what stands for it in the window; none where that is no shorter.
    pub(crate) fn shortened(
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
        let name = self.folder.keep(kind, text)?;
        let file = self.file(name, &of, text);
        let short = preview(&file, text, preview_tokens, &self.services);
        match short {
            Some(_) => {
                let original: Vec<Original> = Original::of(message).into_iter().collect();
                self.folder.keep_originals(&original)?;
                self.link(vec![(message.id(), file)]);
            }
            None => self.folder.discard(&file.name),
        }
        Ok(short)
    }

    /// Puts the files that the window shows on the list again: their messages have other ids now, or the host lost its
    /// record.
    fn link_what_is_shown(&mut self, messages: &[MessageView<'_>]) -> Result<(), EngineError> {
        let mut shown = Vec::new();
        for message in messages {
            let id = message.id();
            let name = match message.kind() {
                MessageKind::Summary => {
                    named_in(message.text()).filter(|name| !self.folder.knows(name))
                }
                // Without its record the host takes a preview that the client sends back for a message.
                MessageKind::Replaced | MessageKind::Original
                    if message.text().starts_with(FILE_MARK) =>
                {
                    named_in(message.text()).filter(|name| !self.folder.is_in(id, name))
                }
                _ => None,
            };
            let Some(name) = name else { continue };
            if let Some(text) = self.folder.text(name)? {
                let of = match message.role() {
                    "tool" => format!("the result of {}", message.tool_name().unwrap_or("a tool")),
                    _ if message.kind() == MessageKind::Summary => {
                        "the window before a compaction".to_owned()
                    }
                    _ => "a message of the user".to_owned(),
                };
                shown.push((id, self.file(name.into(), &of, &text)));
            }
        }
        self.link(shown);
        Ok(())
    }

    /// Why the model may call no more tools, where it may not.
    fn limit_reached(&self) -> Option<String> {
        let limit = self.settings.max_tool_calls;
        (limit > 0 && self.folder.calls(limit) >= limit).then(|| {
            format!(
                "The limit of {} tool calls after a user message (`max_tool_calls`) is reached.",
                grouped(limit)
            )
        })
    }

    /// The notice for a window of so many tokens, with a file that is about to be on the list.
    pub(crate) fn notice(&self, window: &WindowState, tokens: u64, new: Option<&File>) -> String {
        notice::notice(
            window,
            tokens,
            new.into_iter().chain(self.folder.files()),
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
        self.drop_proposal();
        self.link_what_is_shown(messages)?;
        let limits = self.limits();
        let waiting = in_flight(messages);
        let mut tokens = window.best_prompt_tokens();
        let mut shorter = Vec::new();
        // What stands before the last notice was sent as it is, and stays so for the provider's cache.
        let sent = (messages.iter()).rposition(|message| message.kind() == MessageKind::Notice);
        for (at, message) in messages.iter().enumerate().skip(sent.unwrap_or(0)) {
            let may_be = may_be_file(message) && waiting.is_none_or(|waiting| at < waiting);
            if may_be
                && is_longer(message, limits.file, &self.services)
                && let Some(text) = self.shortened(message, limits.preview)?
            {
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

    fn observed_through(&self) -> Option<Observed> {
        Some(self.folder.seen().unwrap_or(Observed::NOTHING))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let mut step = Step::after(delivery.cut);
        step.replaced = delivery.revisions.iter().map(|(_, old)| *old).collect();
        for message in delivery.messages {
            let calls = message.tool_calls().len() as u64;
            if message.is_real_user() {
                step.said.push((message.id(), Said::User));
            } else if calls > 0 {
                step.said.push((message.id(), Said::Calls(calls)));
            }
        }
        let last = delivery.messages.last().map(MessageView::id);
        let last = last.or(delivery.cut.and_then(|cut| cut.last));
        step.seen = last.map(|last| Observed::through(last, delivery.chain));
        if delivery.cut.is_some() || !delivery.revisions.is_empty() {
            self.headroom.things_changed();
        }
        self.cycle.observe(delivery);
        Ok(self.folder.take(step)?)
    }

    fn committed(&mut self, _committed: &Committed) {
        if let Some(proposal) = self.proposal.take() {
            self.adopt(proposal);
        }
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        self.drop_proposal();
        let line = format!("proposal {compaction} was refused: {reason}");
        self.services.log(LogLevel::Warn, &line);
    }

    fn recall(&mut self, ids: &[MessageId]) -> Result<Vec<Option<String>>, EngineError> {
        let mut kept = self.folder.originals()?;
        Ok(ids.iter().map(|id| kept.remove(id)).collect())
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
        tools::call(call, &self.folder, self.limits().answer, &self.services)
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
        Ok(self.folder.reset()?)
    }

    fn status(&self) -> Value {
        let files: Vec<&File> = self.folder.files().collect();
        self.cycle.with_status(json!({
            "settings": self.settings,
            "files": files.len(),
            "file_tokens": files.iter().map(|file| file.tokens).sum::<u64>(),
            "compactions": self.compactions,
            "stopped": self.headroom.reason(),
        }))
    }
}
