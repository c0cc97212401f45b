//! Conversations to compact, a host to do it for, and the contract that every proposal is held to.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use contexture_compressor::Compressor;
use contexture_engine_api::*;

#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) role: &'static str,
    pub(crate) kind: MessageKind,
    pub(crate) text: String,
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) result_of: Option<(String, String)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Message>,
    last_id: u64,
}

impl Chat {
    pub(crate) fn push(&mut self, role: &'static str, text: impl Into<String>) -> &mut Message {
        self.last_id += 1;
        self.messages.push(Message {
            id: self.last_id,
            role,
            kind: MessageKind::Original,
            text: text.into(),
            calls: Vec::new(),
            result_of: None,
        });
        self.messages.last_mut().unwrap()
    }

    pub(crate) fn user(&mut self, text: impl Into<String>) {
        self.push("user", text);
    }

    pub(crate) fn assistant(&mut self, text: impl Into<String>) {
        self.push("assistant", text);
    }

    pub(crate) fn calls(&mut self, text: &str, calls: &[(&str, &str, &str)]) {
        self.push("assistant", text).calls = calls
            .iter()
            .map(|(id, name, arguments)| ((*id).into(), (*name).into(), (*arguments).into()))
            .collect();
    }

    pub(crate) fn result(&mut self, id: &str, tool: &str, text: impl Into<String>) {
        self.push("tool", text).result_of = Some((id.into(), tool.into()));
    }

    /// One call and its result.
    pub(crate) fn tool(&mut self, tool: &str, arguments: &str, text: impl Into<String>) {
        let id = format!("call_{}", self.last_id);
        self.calls("", &[(&id, tool, arguments)]);
        self.result(&id, tool, text);
    }

    /// `turns` exchanges of about `chars` characters each.
    pub(crate) fn talk(&mut self, turns: usize, chars: usize) {
        for turn in 0..turns {
            self.user(format!("Question {turn}: {}", filler(turn, chars / 2)));
            self.assistant(format!("Answer {turn}: {}", filler(turn + 7, chars / 2)));
        }
    }

    pub(crate) fn with_views<R>(&self, f: impl FnOnce(&[MessageView<'_>]) -> R) -> R {
        let calls: Vec<Vec<ToolCallView<'_>>> = self
            .messages
            .iter()
            .map(|m| {
                m.calls
                    .iter()
                    .map(|(i, n, a)| ToolCallView::new(i, n, a))
                    .collect()
            })
            .collect();
        let views: Vec<MessageView<'_>> = self
            .messages
            .iter()
            .zip(&calls)
            .map(|(m, calls)| {
                let arguments: usize = m.calls.iter().map(|(_, n, a)| n.len() + a.len()).sum();
                let view = MessageView::new(MessageId(m.id), m.role)
                    .with_kind(m.kind)
                    .with_text(&m.text)
                    .with_tool_calls(calls)
                    .with_tokens(((m.text.len() + arguments) as u64).div_ceil(4) + 4);
                match &m.result_of {
                    Some((id, tool)) => view.with_result_of(id, tool),
                    None => view,
                }
            })
            .collect();
        f(&views)
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.with_views(|views| views.iter().map(MessageView::tokens).sum())
    }

    pub(crate) fn window(&self, context_length: u64, fixed_tokens: u64) -> WindowState {
        WindowState {
            context_length,
            fixed_tokens,
            prompt_tokens: fixed_tokens + self.tokens(),
            messages: self.messages.len(),
            ..WindowState::default()
        }
    }

    /// The messages from this position on.
    pub(crate) fn since(&self, from: usize) -> Self {
        Self {
            messages: self.messages[from..].to_vec(),
            last_id: self.last_id,
        }
    }

    pub(crate) fn at(&self, id: MessageId) -> &Message {
        self.messages.iter().find(|m| m.id == id.0).unwrap()
    }

    /// The window that a proposal makes of this one.
    pub(crate) fn apply(&self, compaction: &Compaction) -> Self {
        let mut next = Self {
            messages: Vec::new(),
            last_id: self.last_id,
        };
        for entry in &compaction.entries {
            match entry {
                Entry::Keep(id) => next.messages.push(self.at(*id).clone()),
                Entry::Replace(replacement) => {
                    let mut message = self.at(replacement.id).clone();
                    message.kind = MessageKind::Replaced;
                    if let Some(text) = &replacement.text {
                        message.text = text.clone();
                    }
                    for short in &replacement.arguments {
                        message.calls[short.index].2 = short.arguments.clone();
                    }
                    next.messages.push(message);
                }
                Entry::Summary { text, .. } => {
                    next.push("user", text.clone()).kind = MessageKind::Summary
                }
                Entry::StubResult { call, index, text } => {
                    let (id, tool, _) = self.at(*call).calls[*index].clone();
                    let stub = next.push("tool", text.clone());
                    stub.kind = MessageKind::Replaced;
                    stub.result_of = Some((id, tool));
                }
                Entry::Drop { .. } => {}
            }
        }
        next
    }

    /// Ids of calls that no result follows, and of results that no call precedes.
    fn loose_ends(&self) -> (HashSet<u64>, HashSet<u64>) {
        let mut open: HashMap<&str, Vec<u64>> = HashMap::new();
        let mut orphans = HashSet::new();
        let mut seen: HashSet<&str> = HashSet::new();
        let mut calls = HashSet::new();
        for message in &self.messages {
            for (id, _, _) in &message.calls {
                if seen.insert(id) || open.get(id.as_str()).is_none_or(Vec::is_empty) {
                    open.insert(id, vec![message.id]);
                } else {
                    let waiting = open.get_mut(id.as_str()).unwrap();
                    if waiting.iter().any(|at| *at != message.id) {
                        calls.extend(waiting.drain(..));
                    }
                    waiting.push(message.id);
                }
            }
            if let Some((id, _)) = &message.result_of {
                if !seen.contains(id.as_str()) {
                    orphans.insert(message.id);
                } else if let Some(waiting) = open.get_mut(id.as_str()).filter(|w| !w.is_empty()) {
                    waiting.remove(0);
                }
            }
        }
        calls.extend(open.into_values().flatten());
        (calls, orphans)
    }
}

pub(crate) fn filler(seed: usize, chars: usize) -> String {
    const WORDS: [&str; 12] = [
        "ledger", "the", "request", "of", "a", "handler", "when", "response", "under", "load",
        "is", "slow",
    ];
    let mut text = String::with_capacity(chars + 12);
    let mut at = seed * 7 + 3;
    while text.len() < chars {
        text.push_str(WORDS[at % WORDS.len()]);
        text.push(' ');
        at = at * 31 + 17;
        at %= 100_003;
    }
    text
}

/// What every proposal must hold to.
pub(crate) fn check(before: &Chat, compaction: &Compaction) -> Result<Chat, String> {
    let mut ids: Vec<u64> = compaction
        .entries
        .iter()
        .flat_map(|e| e.ids().iter().map(|id| id.0))
        .collect();
    ids.sort_unstable();
    let mut all: Vec<u64> = before.messages.iter().map(|m| m.id).collect();
    all.sort_unstable();
    if ids != all {
        return Err(format!(
            "ids are not covered exactly once: {ids:?} of {all:?}"
        ));
    }
    let position: HashMap<u64, usize> = before
        .messages
        .iter()
        .enumerate()
        .map(|(at, m)| (m.id, at))
        .collect();
    let kept: Vec<usize> = compaction
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Keep(id) | Entry::Replace(Replacement { id, .. }) => Some(position[&id.0]),
            _ => None,
        })
        .collect();
    if !kept.is_sorted() {
        return Err(format!("the order of what is kept changed: {kept:?}"));
    }
    let kept: HashSet<usize> = kept.into_iter().collect();
    before.with_views(|views| {
        for group in tool_groups(views) {
            let inside = group.clone().filter(|at| kept.contains(at)).count();
            let dropped = compaction.entries.iter().filter(
                |entry| matches!(entry, Entry::Drop { id, .. } if group.contains(&position[&id.0])),
            );
            if inside != 0 && inside + dropped.count() != group.len() {
                return Err(format!("the group {group:?} was split"));
            }
        }
        let verbatim = |at: usize| {
            compaction
                .entries
                .iter()
                .any(|entry| matches!(entry, Entry::Keep(id) if *id == views[at].id()))
        };
        match views.iter().rposition(MessageView::is_real_user) {
            Some(user) if !verbatim(user) => {
                Err("the user's last message is not there verbatim".into())
            }
            _ => Ok(()),
        }
    })?;

    let after = before.apply(compaction);
    let (open_before, _) = before.loose_ends();
    let (open_after, orphans_after) = after.loose_ends();
    let last_assistant = before
        .messages
        .iter()
        .rev()
        .find(|m| m.role == "assistant")
        .map(|m| m.id);
    for id in &open_after {
        if Some(*id) != last_assistant || !open_before.contains(id) {
            return Err(format!("the call in m{id} has no result"));
        }
    }
    if let Some(id) = last_assistant.filter(|id| open_before.contains(id)) {
        for message in &before.messages[position[&id]..] {
            let is_orphan = before.loose_ends().1.contains(&message.id);
            let kept = compaction
                .entries
                .contains(&Entry::Keep(MessageId(message.id)));
            if !kept && !is_orphan {
                return Err(format!("m{} is in flight and was touched", message.id));
            }
        }
    }
    if !orphans_after.is_empty() {
        return Err(format!("orphans: {orphans_after:?}"));
    }
    if after.tokens() >= before.tokens() {
        return Err(format!(
            "it grew from {} to {} tokens",
            before.tokens(),
            after.tokens()
        ));
    }
    let summaries = after
        .messages
        .iter()
        .filter(|m| m.text.contains(SUMMARY_MARK));
    for summary in summaries {
        if !summary.text.starts_with(SUMMARY_MARK)
            || summary.text.matches(SUMMARY_MARK).count() != 1
        {
            return Err(format!(
                "the summary's mark is not at its start alone: {}",
                summary.text
            ));
        }
    }
    Ok(after)
}

type Reply = Result<String, FailureKind>;

/// A host with a model that answers what it is told to, and a clock that it is told.
pub(crate) struct Host {
    pub(crate) model: Mutex<Option<ModelInfo>>,
    pub(crate) replies: Mutex<VecDeque<Reply>>,
    pub(crate) requests: Mutex<Vec<ModelRequest>>,
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) now: AtomicI64,
}

impl Host {
    pub(crate) fn without_model() -> Arc<Self> {
        Arc::new(Self {
            model: Mutex::new(None),
            replies: Mutex::default(),
            requests: Mutex::default(),
            log: Mutex::default(),
            now: AtomicI64::new(1_000_000),
        })
    }

    pub(crate) fn with_model(context_length: u64) -> Arc<Self> {
        let host = Self::without_model();
        *host.model.lock().unwrap() = Some(ModelInfo {
            name: "aux".into(),
            context_length,
        });
        host
    }

    pub(crate) fn will(&self, reply: Result<&str, FailureKind>) {
        self.replies
            .lock()
            .unwrap()
            .push_back(reply.map(str::to_owned));
    }

    pub(crate) fn calls(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    pub(crate) fn answer(text: &str) -> ModelAnswer {
        ModelAnswer {
            text: text.into(),
            model: "aux".into(),
            input_tokens: 0,
            output_tokens: 0,
        }
    }
}

impl HostServices for Host {
    fn model(&self) -> Option<ModelInfo> {
        self.model.lock().unwrap().clone()
    }

    /// A request larger than the window is refused as a provider would; then the replies in order; then
    /// notes.
    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        self.requests.lock().unwrap().push(request.clone());
        let window = self.model().unwrap().context_length;
        let used = self.count_tokens(&request.system)
            + self.count_tokens(&request.prompt)
            + request.max_tokens;
        if used > window {
            return Err(ModelFailure::new(
                FailureKind::TooLong,
                "context_length_exceeded",
            ));
        }
        match self.replies.lock().unwrap().pop_front() {
            Some(Ok(text)) => Ok(Self::answer(&text)),
            Some(Err(kind)) => Err(ModelFailure::new(kind, format!("failed: {kind:?}"))),
            None => Ok(Self::answer("## Goal\nThe model's notes.")),
        }
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        requests
            .iter()
            .map(|request| self.complete(request))
            .collect()
    }

    fn count_tokens(&self, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }

    fn log(&self, _level: LogLevel, message: &str) {
        self.log.lock().unwrap().push(message.into());
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn now_ms(&self) -> i64 {
        self.now.load(Ordering::Relaxed)
    }
}

/// An engine with a data directory of its own.
pub(crate) struct Session {
    pub(crate) engine: Compressor,
    pub(crate) dir: Arc<tempfile::TempDir>,
    compactions: u64,
}

impl Session {
    pub(crate) fn open(host: &Arc<Host>, settings: &str, window: &WindowState) -> Self {
        Self::open_in(
            Arc::new(tempfile::tempdir().unwrap()),
            host,
            settings,
            window,
        )
    }

    pub(crate) fn open_in(
        dir: Arc<tempfile::TempDir>,
        host: &Arc<Host>,
        settings: &str,
        window: &WindowState,
    ) -> Self {
        let engine = Compressor::open(&OpenRequest {
            session: "s",
            settings,
            data_dir: dir.path(),
            services: Services::new(Arc::clone(host) as Arc<dyn HostServices>),
            window,
            compaction: None,
        })
        .unwrap();
        Self {
            engine,
            dir,
            compactions: 0,
        }
    }

    pub(crate) fn compress(&mut self, chat: &Chat, order: &CompressOrder) -> Outcome {
        chat.with_views(|messages| self.engine.compress(&CompressRequest { messages, order }))
            .unwrap()
    }

    /// Compacts, checks, commits.
    pub(crate) fn compacted(&mut self, chat: &Chat, order: &CompressOrder) -> (Chat, Compaction) {
        match self.compress(chat, order) {
            Outcome::Compacted(compaction) => {
                let after = check(chat, &compaction).unwrap();
                self.compactions += 1;
                self.engine.committed(self.compactions);
                (after, compaction)
            }
            other => panic!("not compacted: {other:?}"),
        }
    }

    pub(crate) fn observe(&mut self, chat: &Chat) {
        chat.with_views(|views| self.engine.observe(views, 0))
            .unwrap();
    }
}

pub(crate) fn order(window: WindowState) -> CompressOrder {
    CompressOrder {
        window,
        ..CompressOrder::default()
    }
}

pub(crate) fn summary_of(compaction: &Compaction) -> &str {
    let mut texts = compaction.entries.iter().filter_map(|entry| match entry {
        Entry::Summary { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let text = texts.next().expect("a summary");
    assert!(texts.next().is_none(), "more than one summary");
    text
}
