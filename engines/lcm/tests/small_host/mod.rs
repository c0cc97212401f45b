//! A host as small as can be, for the engine's tests: it keeps its ids, its window and its compaction in a
//! file of its own, written before the engine is told, and goes on from there after a restart.
#![allow(
    clippy::unwrap_used, clippy::expect_used, dead_code, missing_docs, unreachable_pub
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contexture_engine_api::{
    Committed, Compaction, CompressOrder, CompressRequest, ContextEngine, CurrentCompaction, Cut,
    Delivery, EngineError, EngineFactory, Entry, FactoryRequest, HostInfo, MessageId, MessageKind,
    MessageView, Outcome, SUMMARY_MARK, StoreCommand, ToolCall, WindowState,
};
use contexture_lcm::Lcm;
use contexture_testkit::ScriptedHost;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a message says: the same for the same id, whoever asks.
pub fn text(id: u64) -> String {
    let words = "the words of it go on for a while ".repeat(2 + id as usize % 11);
    format!("message {id}, needle-{id}-x: {words}")
}

pub fn role(id: u64) -> &'static str {
    if id.is_multiple_of(2) {
        "assistant"
    } else {
        "user"
    }
}

pub fn raw(id: u64) -> String {
    json!({"role": role(id), "content": text(id)}).to_string()
}

/// A place in the window.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Slot {
    Said(u64),
    Summary(u64, String),
}

/// What the host's own file says.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    next_id: u64,
    /// Every message of the conversation.
    pub log: Vec<u64>,
    window: Vec<Slot>,
    compactions: u64,
    /// Each message that was ever said, and the one that it was last cut off after.
    said: Vec<u64>,
    /// The last message that the engine was shown.
    cursor: u64,
    /// The last message that stays after a cut which the engine was not told of.
    cut: Option<u64>,
    /// What the engine stored.
    artifacts: Vec<(String, String)>,
}

pub struct SmallHost {
    file: PathBuf,
    pub kept: Kept,
    pub engine: Box<dyn ContextEngine>,
    pub factory: Lcm,
    pub lends: Arc<ScriptedHost>,
    context_length: u64,
}

impl Kept {
    pub fn read(directory: &Path) -> Self {
        std::fs::read_to_string(directory.join("host.json")).map_or_else(
            |_| Self::default(),
            |text| serde_json::from_str(&text).unwrap(),
        )
    }

    /// Puts the record into a host that begins anew.
    fn lend(&self, host: &Arc<ScriptedHost>) {
        for id in &self.said {
            let (text, raw) = (text(*id), raw(*id));
            let views = [view(*id, &text, &raw)];
            host.record(&Delivery::new(&views));
        }
        // What is not in the log was cut off.
        for id in self.said.iter().filter(|id| !self.log.contains(id)) {
            host.outdate("s", MessageId(*id));
        }
        for (name, text) in &self.artifacts {
            host.services().put_artifact(name, Some(text)).unwrap();
        }
    }

    fn current(&self) -> Option<CurrentCompaction> {
        let summaries = self.window.iter().filter_map(|slot| match slot {
            Slot::Summary(_, text) => Some(text.clone()),
            Slot::Said(_) => None,
        });
        (self.compactions > 0).then(|| {
            CurrentCompaction::new(
                self.compactions,
                contexture_lcm::NAME.to_owned(),
                MessageId(0),
            )
            .summaries(summaries.collect())
        })
    }
}

pub fn factory(directory: &Path) -> Result<Lcm, EngineError> {
    Lcm::create(&FactoryRequest::new("{}", directory, &HostInfo::default()))
}

impl SmallHost {
    /// Opens the session and shows the engine what it has not seen.
    pub fn open(directory: &Path, context_length: u64) -> Result<Self, EngineError> {
        Self::open_apart(directory, directory, context_length)
    }

    /// The same, with the engine's files in a directory of their own.
    pub fn open_apart(
        own: &Path,
        directory: &Path,
        context_length: u64,
    ) -> Result<Self, EngineError> {
        let kept = Kept::read(own);
        let factory = factory(directory)?;
        let lends = ScriptedHost::without_model();
        kept.lend(&lends);
        let (window, compaction) = (window(context_length, 0), kept.current());
        let mut request = lends.open_request("{}", &window);
        request.data_dir = directory;
        let engine = factory.open(&request.compaction(compaction.as_ref()))?;
        let mut host = Self {
            file: own.join("host.json"),
            kept,
            engine,
            factory,
            lends,
            context_length,
        };
        host.show()?;
        Ok(host)
    }

    fn keep(&mut self) {
        let services = self.lends.services();
        let names = services.artifacts("").unwrap();
        self.kept.artifacts = (names.into_iter())
            .map(|name| {
                let text = services.artifact(&name).unwrap().unwrap();
                (name, text)
            })
            .collect();
        let new = self.file.with_extension("new");
        std::fs::write(&new, serde_json::to_string(&self.kept).unwrap()).unwrap();
        std::fs::rename(new, &self.file).unwrap();
    }

    /// Shows the engine what it has not seen, as far as the window and the log have it.
    pub fn show(&mut self) -> Result<(), EngineError> {
        let from = self.kept.cursor;
        let last = |id: u64| (id > 0).then_some(MessageId(id));
        let mut cut = self.kept.cut.map(|id| Cut::after(last(id)));
        let log = self.kept.log.iter().copied();
        let ids: Vec<u64> = log.filter(|id| *id > from).collect();
        if let (true, Some(_)) = (ids.is_empty(), cut) {
            let delivery = Delivery::new(&[]).after(cut);
            self.lends.record(&delivery);
            self.engine.observe(&delivery)?;
        }
        for piece in ids.chunks(256) {
            let texts: Vec<_> = piece.iter().map(|id| (text(*id), raw(*id))).collect();
            let views: Vec<_> = piece
                .iter()
                .zip(&texts)
                .map(|(id, (text, raw))| view(*id, text, raw))
                .collect();
            let delivery = Delivery::new(&views).after(cut.take());
            self.lends.record(&delivery);
            self.engine.observe(&delivery)?;
        }
        self.kept.cursor = ids.last().copied().unwrap_or(from);
        self.kept.cut = None;
        self.keep();
        Ok(())
    }

    /// A turn of `count` messages; gives the id of the last.
    pub fn turn(&mut self, count: usize) -> Result<u64, EngineError> {
        for _ in 0..count {
            self.kept.next_id += 1;
            let id = self.kept.next_id;
            self.kept.log.push(id);
            self.kept.said.push(id);
            self.kept.window.push(Slot::Said(id));
        }
        self.keep();
        self.show()?;
        Ok(self.kept.next_id)
    }

    /// The client takes its last `count` messages back; the engine learns of it at the next turn.
    pub fn rewind(&mut self, count: usize) {
        let shown = |slot: &Slot| matches!(slot, Slot::Said(_));
        let tail = self.kept.window.iter().rev().take_while(|slot| shown(slot));
        let count = count.min(tail.count());
        let stays = self.kept.log.len() - count;
        self.kept.log.truncate(stays);
        let last = self.kept.log.last().copied().unwrap_or(0);
        self.kept.cut = Some(self.kept.cut.map_or(last, |earlier| earlier.min(last)));
        self.kept.cursor = self.kept.cursor.min(last);
        let stays = self.kept.window.len() - count;
        self.kept.window.truncate(stays);
        self.keep();
    }

    /// Compacts where the engine says so; `say` is told before and after.
    pub fn compact_if_due(&mut self, say: &mut dyn FnMut(&str)) -> Result<bool, EngineError> {
        let said: Vec<(u64, String, String, MessageKind)> = self
            .kept
            .window
            .iter()
            .map(|slot| match slot {
                Slot::Said(id) => (*id, text(*id), raw(*id), MessageKind::Original),
                Slot::Summary(id, text) => (
                    *id,
                    text.clone(),
                    json!({"role": "user", "content": text}).to_string(),
                    MessageKind::Summary,
                ),
            })
            .collect();
        let views: Vec<_> = said
            .iter()
            .map(|(id, text, raw, kind)| view(*id, text, raw).with_kind(*kind))
            .collect();
        let tokens = views.iter().map(MessageView::tokens).sum();
        let state = window(self.context_length, tokens);
        if !matches!(
            self.engine.should_compress(&state),
            contexture_engine_api::Decision::Yes(_)
        ) {
            return Ok(false);
        }
        say("compressing");
        let order = CompressOrder::default().window(state);
        let outcome = self
            .engine
            .compress(&CompressRequest::new(&views, &order))?;
        let Outcome::Compacted(compaction) = outcome else {
            say("nothing to do");
            return Ok(false);
        };
        let window = self.rendered(&compaction);
        self.kept.window = window;
        self.kept.compactions += 1;
        self.keep();
        say("host committed");
        self.engine
            .committed(&Committed::new(self.kept.compactions));
        self.keep();
        say("compacted");
        Ok(true)
    }

    fn rendered(&mut self, compaction: &Compaction) -> Vec<Slot> {
        let mut window = Vec::new();
        for entry in &compaction.entries {
            match entry {
                Entry::Keep(id) => {
                    let kept = self.kept.window.iter().find(|slot| match slot {
                        Slot::Said(said) => said == &id.0,
                        Slot::Summary(said, _) => said == &id.0,
                    });
                    window.push(kept.expect("an id of the window").clone());
                }
                Entry::Replace(replacement) => window.push(Slot::Said(replacement.id.0)),
                Entry::Summary(summary) => {
                    self.kept.next_id += 1;
                    let text = format!("{SUMMARY_MARK}\n{}", summary.text);
                    window.push(Slot::Summary(self.kept.next_id, text));
                }
                _ => {}
            }
        }
        window
    }

    pub fn tool(&mut self, name: &str, arguments: &Value) -> Value {
        let call = ToolCall::new(name.to_owned(), arguments.to_string());
        serde_json::from_str(&self.engine.call_tool(&call).unwrap()).unwrap()
    }

    /// Fails if the store is not sound, or does not know each message of the log once.
    pub fn check(&mut self, context: &str) {
        let verified = self.factory.manage(&StoreCommand::Verify).unwrap();
        assert_eq!(verified["ok"], true, "{context}: {verified}");
        let doctor = self.tool("lcm_doctor", &json!({}));
        assert_eq!(doctor["ok"], true, "{context}: {doctor}");
        let status = self.tool("lcm_status", &json!({}));
        let count = self.kept.log.len();
        assert_eq!(status["in_conversation"], count, "{context}: {status}");
        let mut found = Vec::new();
        let mut cursor = json!("");
        while !cursor.is_null() {
            let page = json!({"cursor": cursor, "limit": 200});
            let page = self.tool("lcm_recent", &page);
            let messages = page["messages"].as_array().unwrap().iter();
            found.extend(messages.map(|message| {
                let id = message["id"].as_str().unwrap()[1..].parse::<u64>().unwrap();
                let shown = message["text"].as_str().unwrap().trim_end_matches('…');
                assert!(text(id).starts_with(shown), "{context}: {message}");
                id
            }));
            cursor = page["next_cursor"].clone();
        }
        found.reverse();
        assert_eq!(found, self.kept.log, "{context}");
    }
}

pub fn window(context_length: u64, prompt_tokens: u64) -> WindowState {
    WindowState::default()
        .context_length(context_length)
        .max_output_tokens(200)
        .prompt_tokens(prompt_tokens)
}

pub fn view<'a>(id: u64, text: &'a str, raw: &'a str) -> MessageView<'a> {
    MessageView::new(MessageId(id), role(id))
        .with_text(text)
        .with_raw(raw)
        .with_tokens((text.len() as u64).div_ceil(4))
}
