//! A session that is written turn by turn, as the host does.

use std::sync::Arc;
use std::time::Duration;

use contexture_engine_api::MessageId;
use contexture_formats::{Format, read};
use contexture_transcript::{
    Fingerprint, Hold, HostText, InForce, KeptChange, Logged, NewArtifact, NewText, Origin, Record,
    RecordError, Saved, SessionChange, StoredSession, WireEntry, chain_link,
};

pub(crate) const WAIT: Duration = Duration::from_secs(10);

/// A session that is open.
pub(crate) struct Writer {
    pub(crate) hold: Option<Hold>,
    pub(crate) stored: StoredSession,
    pub(crate) saved: Saved,
}

/// What a turn adds, apart from messages.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) artifacts: Vec<NewArtifact>,
    pub(crate) host_texts: Vec<HostText>,
    pub(crate) in_force: Option<Option<InForce>>,
    pub(crate) cursor: Option<MessageId>,
    pub(crate) changes: Vec<KeptChange<'static>>,
}

impl Writer {
    pub(crate) fn open(record: &Arc<Record>, session: &str) -> Self {
        let hold = record.hold(session, WAIT).unwrap();
        let (stored, saved) = StoredSession::open(record, session).unwrap();
        Self {
            hold: Some(hold),
            stored,
            saved,
        }
    }

    /// Says texts as a user, stored with their words if `keeps` is set, and writes the turn.
    pub(crate) fn say(
        &mut self,
        texts: &[&str],
        keeps: bool,
        extra: Extra,
    ) -> Result<(), RecordError> {
        let from = self.saved.log.len();
        self.say_from(from, texts, &[], keeps, extra)
    }

    /// Keeps the first `from` messages of the log, cuts the others off, and says texts after them.
    /// `replaces` are the earlier forms of these.
    pub(crate) fn say_from(
        &mut self,
        from: usize,
        texts: &[&str],
        replaces: &[Option<MessageId>],
        keeps: bool,
        mut extra: Extra,
    ) -> Result<(), RecordError> {
        let messages: Vec<_> = (texts.iter())
            .map(|text| serde_json::json!({"role": "user", "content": text}))
            .collect();
        let body = serde_json::json!({"messages": messages}).to_string();
        let conversation = Arc::new(read(body, Some(Format::OpenAiChat)).unwrap().remove(0));
        self.saved.log.truncate(from);
        let sent_from = self.saved.sent.raw.len();
        let mut new = Vec::new();
        for (at, message) in conversation.messages().iter().enumerate() {
            let id = MessageId(self.saved.next_id.max(1));
            self.saved.next_id = id.0 + 1;
            let fingerprint = Fingerprint::of(message);
            let chain = self.saved.log.last().map_or(0, |last| last.chain);
            self.saved.log.push(Logged {
                id,
                fingerprint,
                chain: chain_link(chain, id, fingerprint.identity),
                replaces: replaces.get(at).copied().flatten(),
            });
            let unit = WireEntry {
                origin: Origin::Said(id),
                fingerprint,
                wires: 0..1,
            };
            self.saved.sent.push(&[id.0 * 7], [unit]);
            new.push(NewText {
                conversation: Arc::clone(&conversation),
                message: at,
                parts: vec![(0, id)],
            });
        }
        self.saved.host_texts.extend(extra.host_texts.clone());
        if let Some(in_force) = &extra.in_force {
            self.saved.compaction.clone_from(in_force);
        }
        self.saved.cursor = extra.cursor.or(self.saved.cursor);
        if !keeps {
            new.clear();
        }
        self.saved.facts.usage = "{\"tokens\": 1}".to_owned();
        self.saved.facts.format = Some(Format::OpenAiChat);
        let change = SessionChange {
            log_from: from,
            sent_from,
            texts: &new,
            artifacts: &extra.artifacts,
            host_texts: &extra.host_texts,
            in_force: extra.in_force.as_ref().map(Option::as_ref),
            cursor: extra.cursor.map(|cursor| (Some(cursor), None)),
            ..self.unchanged()
        };
        self.stored.save(&change, &mut extra.changes)
    }

    /// A change that changes nothing.
    fn unchanged(&self) -> SessionChange<'_> {
        SessionChange {
            next_id: self.saved.next_id,
            facts: &self.saved.facts,
            log: &self.saved.log,
            log_from: usize::MAX,
            sent: &self.saved.sent,
            sent_from: usize::MAX,
            rendered: &self.saved.rendered,
            rendered_from: usize::MAX,
            texts: &[],
            artifacts: &[],
            forgot: false,
            host_texts: &[],
            in_force: None,
            cursor: None,
        }
    }

    /// Writes what could not be written before, after the pause.
    pub(crate) fn save_again(&self) -> Result<(), RecordError> {
        let change = self.unchanged();
        while !self.stored.is_confirmed() {
            self.stored.save(&change, &mut Vec::new())?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ids of the log, in order.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.saved.log.iter().map(|logged| logged.id.0).collect()
    }
}
