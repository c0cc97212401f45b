//! A client that does what a play says, and after every turn looks whether the session is right.

use std::collections::HashSet;
use std::path::PathBuf;

use contexture_engine_api::CLEARED_TOOL_OUTPUT;
use serde_json::{Value, json};

use crate::act::{Act, Holds, Place, Reply, Words};
use crate::driver::{Driver, Outcome, PATIENT, tokens};
use crate::flaky::{FLAKY, Faults, schedule};
use crate::play::Play;
use crate::rules;
use crate::truth::{Said, Serial, Speaker, Truth, is_part, short};
use crate::wire::{Dialect, PIXEL, Request, Wire, carried, respell, texts};

/// What is wrong, by the check that found it.
#[derive(Debug, Clone)]
pub(crate) struct Wrong {
    pub(crate) check: &'static str,
    pub(crate) what: String,
}

fn wrong(check: &'static str) -> impl Fn(String) -> Wrong {
    move |what| Wrong { check, what }
}

/// What happened in sessions, to be printed.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) sessions: usize,
    pub(crate) turns: usize,
    pub(crate) messages: usize,
    pub(crate) compactions: usize,
    pub(crate) restarts: usize,
    pub(crate) losses: usize,
    pub(crate) faults: usize,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.turns += other.turns;
        self.messages += other.messages;
        self.compactions += other.compactions;
        self.restarts += other.restarts;
        self.losses += other.losses;
        self.faults += other.faults;
    }
}

/// A wire message of the client's list.
#[derive(Debug, Clone)]
struct Entry {
    bytes: String,
    /// The message that it is.
    whole: Option<Serial>,
    /// The messages that stand in it, that one among them.
    holds: Vec<Serial>,
}

impl Entry {
    fn of(said: &Said) -> Self {
        Self {
            bytes: said.bytes.clone(),
            whole: Some(said.serial),
            holds: vec![said.serial],
        }
    }
}

/// What a client holds: the system prompt and its list.
#[derive(Debug, Clone)]
struct Held {
    system: String,
    entries: Vec<Entry>,
}

impl Held {
    fn request(&self) -> Request {
        let messages = self
            .entries
            .iter()
            .map(|entry| entry.bytes.clone())
            .collect();
        Request {
            system: self.system.clone(),
            messages,
            ..Request::default()
        }
    }
}

impl Held {
    /// The same with the host's messages joined to neighbours of the same role: with `joiner` between the texts, or
    /// else as parts of one message. Two messages of the user stay two, because joining those would be an edit.
    fn joined(&self, joiner: Option<&str>) -> Self {
        let is_hosts = |entry: &Entry| entry.whole.is_none() && entry.bytes.contains("] #");
        let mut entries: Vec<Entry> = Vec::new();
        for entry in &self.entries {
            let mut entry = entry.clone();
            if let Some(bytes) = joiner
                .filter(|_| is_hosts(&entry))
                .and_then(|joiner| flat(&entry.bytes, joiner))
            {
                entry.bytes = bytes;
            }
            let both = entries.last().filter(|last| {
                (is_hosts(last) || is_hosts(&entry)) && !would_join_users(last, &entry)
            });
            match both.and_then(|last| together(&last.bytes, &entry.bytes, joiner)) {
                Some(bytes) => {
                    let holds = entries.pop().map_or_else(Vec::new, |last| last.holds);
                    entry.holds.extend(holds);
                    entry.whole = None;
                    entries.push(Entry { bytes, ..entry });
                }
                None => entries.push(entry),
            }
        }
        Self {
            system: self.system.clone(),
            entries,
        }
    }
}

/// A message of texts alone as a single text; `None` for any other.
fn flat(bytes: &str, joiner: &str) -> Option<String> {
    let mut message: Value = serde_json::from_str(bytes).ok()?;
    let parts = message["content"].as_array()?;
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
    message["content"] = json!(texts?.join(joiner));
    Some(message.to_string())
}

/// Whether words of the user's would meet if the two were joined, with nothing of the host's between them.
fn would_join_users(one: &Entry, next: &Entry) -> bool {
    let text = |entry: &Entry, is_last: bool| {
        let carries = carried(&entry.bytes).unwrap_or_default();
        let parts = parts_of(&carries);
        let part = if is_last { parts.last() } else { parts.first() };
        part.and_then(|part| part["text"].as_str())
            .unwrap_or_default()
            .to_owned()
    };
    // What is left of a message of which the rest was summarised is the user's too.
    let end = text(one, true);
    let is_said = match one.holds.is_empty() {
        true => !end.is_empty() && !end.ends_with(']') && !ends_with_seal(&end),
        false => !ends_with_seal(&end),
    };
    // The user may say what begins as a summary does.
    let is_next = next.whole.is_some() || !begins_with_mark(&text(next, false));
    is_said && !next.holds.is_empty() && is_next
}

/// Joins two user messages; `None` for any others.
fn together(one: &str, other: &str, joiner: Option<&str>) -> Option<String> {
    let [mut message, other] =
        [one, other].map(|bytes| serde_json::from_str::<Value>(bytes).unwrap_or_default());
    if [&message, &other]
        .iter()
        .any(|message| message["role"] != "user")
    {
        return None;
    }
    let key = if message["parts"].is_array() {
        "parts"
    } else {
        "content"
    };
    message[key] = match joiner {
        Some(joiner) => json!(format!(
            "{}{joiner}{}",
            message["content"].as_str()?,
            other["content"].as_str()?
        )),
        None if key == "parts" => {
            let parts = |message: &Value| message[key].as_array().cloned().unwrap_or_default();
            json!([parts(&message), parts(&other)].concat())
        }
        None => {
            let parts = |message: &Value| {
                carried(&message.to_string())
                    .map(|carries| parts_of(&carries))
                    .unwrap_or_default()
            };
            json!([parts(&message), parts(&other)].concat())
        }
    };
    Some(message.to_string())
}

/// The last messages after a compaction, and what it was made under.
#[derive(Debug, Clone, Copy)]
struct Tail {
    messages: usize,
    tokens: u64,
    window: u64,
    engine: &'static str,
}

/// A copy of the record, and what it has.
#[derive(Debug, Clone)]
struct Record {
    files: PathBuf,
    stored: HashSet<Serial>,
    ever_stored: HashSet<Serial>,
    in_transcript: HashSet<Serial>,
    transcript_is_lost: bool,
    /// Of what it lacks, this was reported before it was made.
    missing: HashSet<Serial>,
}

pub(crate) struct Client {
    pub(crate) driver: Driver,
    wire: Wire,
    truth: Truth,
    system: String,
    /// What the client sent last time: this or that.
    holds: Holds,
    /// What was handed out last and what came since; none where the client could not do with it what it did.
    handed: Option<Held>,
    /// Said, and not sent yet.
    fresh: Vec<Said>,
    /// The calls that wait for their results.
    calls: Vec<String>,
    /// What the client went back to, and what followed it that nothing of the body shows.
    gone_back: Option<(Value, Vec<Said>)>,
    /// How many of the last messages are the last answer.
    answer: usize,
    /// What was sent last, where nothing but an answer came since.
    sent: Option<Held>,
    /// What went in last and what came out.
    crossed: Option<(Request, Request)>,
    /// Messages that are nowhere any more, and were reported.
    missing: HashSet<Serial>,
    /// Whether a turn while the engine was out, or another had the session, has warned that texts are not stored. What is
    /// missing when the engine is back was said then.
    loss_was_said: bool,
    /// The messages that the transcript had when it was last looked at.
    in_transcript: HashSet<Serial>,
    /// The record was lost, and with it the transcript. It begins anew with what the client holds by then.
    transcript_is_lost: bool,
    tail: Option<Tail>,
    /// A copy of what the engine derived.
    backup: Option<PathBuf>,
    record: Option<Record>,
    faults: Faults,
    /// A failure came, and the store was not right again since; how many turns ago.
    trouble: Option<usize>,
    /// The session is opened anew before the next turn.
    let_in: bool,
    pub(crate) figures: Figures,
}

impl Client {
    pub(crate) fn new(driver: Driver, wire: Wire) -> Self {
        Self {
            faults: schedule(&driver.home()),
            trouble: None,
            let_in: false,
            driver,
            wire,
            truth: Truth::default(),
            system: wire.first_request().system,
            holds: Holds::Originals,
            handed: None,
            fresh: Vec::new(),
            calls: Vec::new(),
            gone_back: None,
            answer: 0,
            sent: None,
            crossed: None,
            missing: HashSet::new(),
            loss_was_said: false,
            in_transcript: HashSet::new(),
            transcript_is_lost: false,
            tail: None,
            backup: None,
            record: None,
            figures: Figures {
                sessions: 1,
                ..Figures::default()
            },
        }
    }

    /// Does one act after the other.
    pub(crate) fn play(&mut self, play: &Play) -> Result<(), Wrong> {
        for (at, act) in play.acts.iter().enumerate() {
            let here = |Wrong { check, what }| Wrong {
                check,
                what: format!("act {at}: {what}"),
            };
            self.act(act).map_err(here)?;
        }
        self.finish()
    }

    pub(crate) fn act(&mut self, act: &Act) -> Result<(), Wrong> {
        let drive = wrong("drive");
        match act {
            Act::Turn {
                words,
                holds,
                dialect,
                repeats,
                reply,
            } => {
                self.holds = *holds;
                self.say(*words);
                let held = self.list(*holds, *dialect);
                self.send(&held, *repeats)?;
                self.reply(*reply)?;
            }
            Act::SendAgain(reply) => {
                if let Some(held) = self.sent.clone() {
                    self.drop_answer();
                    self.send(&held, 0)?;
                    self.reply(*reply)?;
                }
            }
            Act::LoseAnswer => self.drop_answer(),
            Act::Edit { at, words } => self.edit(*at, *words),
            Act::Rewind { at } => self.rewind(*at),
            Act::Insert {
                at,
                words,
                answered,
            } => self.insert(*at, *words, *answered),
            Act::Restart { in_order } => {
                self.figures.restarts += 1;
                self.driver.restart(*in_order).map_err(drive)?;
            }
            Act::ChangeProcess => {
                self.figures.restarts += 1;
                self.driver.change_process().map_err(drive)?;
            }
            Act::Window { tokens, at_once } => {
                self.driver.set_window(*tokens, *at_once).map_err(drive)?;
            }
            Act::ChangeEngine => {
                let other = if self.driver.engine() == self.driver.configured() {
                    "compressor"
                } else {
                    self.driver.configured()
                };
                self.driver.set_engine(other).map_err(drive)?;
            }
            Act::LoseRecord => {
                self.lose();
                self.transcript_is_lost = true;
                self.driver.lose_record().map_err(drive)?;
                self.truth.stored.clear();
                self.truth.ever_stored.clear();
            }
            // What is derived of the conversation is made anew, whatever befalls it.
            Act::LoseStore => {
                self.lose();
                self.driver.lose_store().map_err(drive)?;
            }
            Act::BackUp if self.is_lossless() && !self.truth.stored.is_empty() => {
                self.backup = self.driver.back_up().map_err(drive)?;
            }
            Act::PutBack => {
                if let Some(file) = self.backup.clone() {
                    self.lose();
                    self.driver.put_back(&file).map_err(drive)?;
                }
            }
            Act::BackUp => {}
            Act::BackUpRecord => {
                self.record = self
                    .driver
                    .back_up_record()
                    .map_err(drive)?
                    .map(|files| Record {
                        files,
                        stored: self.truth.stored.clone(),
                        ever_stored: self.truth.ever_stored.clone(),
                        in_transcript: self.in_transcript.clone(),
                        transcript_is_lost: self.transcript_is_lost,
                        missing: self.missing.clone(),
                    });
            }
            Act::RestoreRecord => {
                if let Some(record) = self.record.clone() {
                    self.lose();
                    self.driver.restore_record(&record.files).map_err(drive)?;
                    self.truth.stored = record.stored;
                    self.truth.ever_stored = record.ever_stored;
                    self.in_transcript = record.in_transcript;
                    self.transcript_is_lost = record.transcript_is_lost;
                    self.missing.extend(record.missing);
                    // What a summary of later stands for is nowhere, so the client goes back to its originals.
                    (self.handed, self.sent) = (None, None);
                }
            }
            Act::Fail(fault) => self.faults.add(*fault),
        }
        Ok(())
    }

    fn lose(&mut self) {
        self.figures.losses += 1;
        self.crossed = None;
        self.tail = None;
    }

    fn is_lossless(&self) -> bool {
        !matches!(
            self.driver.engine(),
            "compressor" | "keep-tail" | "two-layer" | "tiered" | "virtual-files"
        )
    }

    // What is said.

    fn text(&self, words: Words, after: u32) -> (String, Option<String>) {
        let is_empty = words == Words::Empty && matches!(self.wire, Wire::Anthropic | Wire::Gemini);
        let words = if is_empty { Words::GoOn } else { words };
        words.text(self.truth.next_serial() + after)
    }

    fn user(&mut self, words: Words) -> Said {
        let (text, word) = self.text(words, 0);
        let message = self.wire.user(&text, words == Words::Image);
        self.truth.make(Speaker::User, &message, word)
    }

    /// The results of the calls in flight, or else the user's words.
    fn say(&mut self, words: Words) {
        let gone_back = self.gone_back.take();
        if self.calls.is_empty() {
            let said = self.user(words);
            // Whoever goes back to words and says the same sends what a client sends that has lost all behind them
            // that it was shown. Of what a summary in front of them hides, nothing tells whether it was left.
            let is_same = |(words, _): &(Value, _)| *words == said.carries;
            let is_shown = self.holds != Holds::Originals;
            if let Some((_, hidden)) = gone_back.filter(|gone| is_shown && is_same(gone)) {
                self.truth.may_be_left.extend(hidden);
            }
            self.fresh.push(said);
            return;
        }
        let calls = std::mem::take(&mut self.calls);
        let texts: Vec<_> = (0..)
            .zip(&calls)
            .map(|(after, _)| words.text(self.truth.next_serial() + after))
            .collect();
        let results: Vec<_> = calls
            .iter()
            .zip(&texts)
            .map(|(id, (text, _))| (id.as_str(), text.clone()))
            .collect();
        let word = (words == Words::GoOn).then_some("go on");
        for (at, message) in self.wire.results(&results, word).iter().enumerate() {
            let speaker = if at < results.len() {
                Speaker::Tools
            } else {
                Speaker::User
            };
            let own = texts.get(at).and_then(|(_, own)| own.clone());
            let said = self.truth.make(speaker, message, own);
            self.fresh.push(said);
        }
    }

    fn reply(&mut self, reply: Reply) -> Result<(), Wrong> {
        let (mut text, word) = self.text(reply.words, 0);
        if self.wire != Wire::Chat && reply.calls > 0 && reply.words == Words::Empty {
            text.clear();
        }
        let calls: Vec<_> = (0..u32::from(reply.calls))
            .map(|at| {
                let number = self.truth.next_serial() + at;
                let id = if reply.same_ids { at } else { number * 10 + at };
                (format!("call_{id}"), number)
            })
            .collect();
        self.calls = calls.iter().map(|(id, _)| id.clone()).collect();
        let messages = self.wire.answer(&text, reply.thinks, &calls);
        let mut word = word;
        let said: Vec<Said> = messages
            .iter()
            .map(|message| {
                // Nobody can search what is encrypted, as the thoughts of the Responses API are.
                let is_readable = message["type"] != "reasoning";
                let has_word = word
                    .as_ref()
                    .is_some_and(|word| is_readable && message.to_string().contains(word));
                let word = if has_word { word.take() } else { None };
                self.truth.make(Speaker::Model, message, word)
            })
            .collect();
        self.answer = said.len();
        if reply.untold {
            self.fresh.extend(said);
            return Ok(());
        }
        let items: Vec<&str> = said.iter().map(|said| said.bytes.as_str()).collect();
        let input = self.crossed.as_ref().map(|(_, out)| reported(out));
        let usage = input.filter(|_| reply.usage);
        self.driver.answer(&items, usage).map_err(wrong("answer"))?;
        if let Some(handed) = &mut self.handed {
            handed.entries.extend(said.iter().map(Entry::of));
        }
        self.truth.branch.extend(said);
        Ok(())
    }

    /// The client has not got the last answer.
    fn drop_answer(&mut self) {
        let untold = self.fresh.len().min(self.answer);
        let told = self.answer - untold;
        if self.answer == 0 {
            return;
        }
        self.fresh.truncate(self.fresh.len() - untold);
        self.truth.cut(self.truth.branch.len() - told);
        if let Some(handed) = &mut self.handed {
            handed.entries.truncate(handed.entries.len() - told);
        }
        self.answer = 0;
        self.calls.clear();
    }

    /// What is not sent yet is sent with what is changed: it is part of the conversation from here on.
    fn settle(&mut self) {
        if let Some(handed) = &mut self.handed {
            handed.entries.extend(self.fresh.iter().map(Entry::of));
        }
        self.truth.branch.append(&mut self.fresh);
        self.sent = None;
        self.answer = 0;
    }

    /// Where a message stands in what was handed out; a client that does not see it there goes back to its
    /// originals.
    fn in_handed(&mut self, serial: Serial) -> Option<(&mut Held, usize)> {
        let at = self
            .handed
            .as_ref()?
            .entries
            .iter()
            .position(|entry| entry.whole == Some(serial));
        if at.is_none() {
            self.handed = None;
        }
        Some((self.handed.as_mut()?, at?))
    }

    fn edit(&mut self, at: Place, words: Words) {
        self.settle();
        if self.truth.branch.is_empty() {
            return;
        }
        let at = at.index(self.truth.branch.len());
        let Said {
            serial,
            speaker,
            bytes,
            ..
        } = self.truth.branch[at].clone();
        let (text, own) = self.text(words, 0);
        let message = match speaker {
            Speaker::User => self.wire.user(&text, words == Words::Image),
            _ => match with_text(&bytes, &text) {
                Some(message) => message,
                None => return,
            },
        };
        let edited = self.truth.make(speaker, &message, own);
        if let Some((handed, place)) = self.in_handed(serial) {
            handed.entries[place] = Entry::of(&edited);
        }
        self.truth.replace(at, edited);
    }

    /// A message of the user's that is not the first.
    fn some_user(&self, at: Place) -> Option<Said> {
        let users = self
            .truth
            .branch
            .iter()
            .skip(1)
            .filter(|said| said.speaker == Speaker::User);
        let users: Vec<&Said> = users.collect();
        (!users.is_empty()).then(|| users[at.index(users.len())].clone())
    }

    fn rewind(&mut self, at: Place) {
        self.settle();
        let Some(said) = self.some_user(at) else {
            return;
        };
        let before = self.truth.branch.iter().map(|other| other.serial);
        let before: Vec<Serial> = before.take_while(|other| *other != said.serial).collect();
        if let Some((handed, place)) = self.in_handed(said.serial) {
            let holds = |entries: &[Entry]| -> HashSet<Serial> {
                let holds = entries.iter().flat_map(|entry| &entry.holds);
                holds.copied().collect()
            };
            let is_summary = |entry: &Entry| entry.bytes.contains("[END OF CONTEXT COMPACTION] #");
            let shown = holds(&handed.entries);
            let stays = holds(&handed.entries[..place]);
            // A summary behind the message may hide some before it. Without the summary, what is left is what a client
            // has that went back to before those.
            if handed.entries[place..].iter().any(is_summary)
                && !before.iter().all(|other| stays.contains(other))
            {
                self.handed = None;
            } else {
                handed.entries.truncate(place);
                let behind = self.truth.branch.iter().skip(before.len());
                let hidden = behind.filter(|other| !shown.contains(&other.serial));
                self.gone_back = Some((said.carries.clone(), hidden.cloned().collect()));
            }
        }
        if let Some(place) = self.truth.place(said.serial) {
            self.truth.cut(place);
        }
        self.calls.clear();
    }

    fn insert(&mut self, at: Place, words: Words, pair: bool) {
        self.settle();
        let Some(next) = self.some_user(at) else {
            return;
        };
        let mut new = vec![self.user(words)];
        if pair {
            let (text, own) = self.text(words, 0);
            let answer = self.wire.answer(&text, false, &[]);
            new.push(self.truth.make(Speaker::Model, &answer[0], own));
        }
        if let Some((handed, place)) = self.in_handed(next.serial) {
            let entries = new.iter().map(Entry::of);
            handed.entries.splice(place..place, entries);
        }
        if let Some(place) = self.truth.place(next.serial) {
            self.truth.branch.splice(place..place, new);
        }
    }

    // What is sent, and what comes of it.

    fn list(&mut self, holds: Holds, dialect: Dialect) -> Held {
        self.settle();
        let originals = || Held {
            system: self.system.clone(),
            entries: self.truth.branch.iter().map(Entry::of).collect(),
        };
        let mut held = match (&self.handed, holds) {
            (Some(handed), Holds::Handed) => handed.clone(),
            (None, _) | (_, Holds::Originals) => originals(),
            (Some(handed), joins) => handed.joined(joins.joiner()),
        };
        for entry in &mut held.entries {
            entry.bytes = respell(&entry.bytes, dialect);
        }
        held
    }

    fn send(&mut self, held: &Held, repeats: u8) -> Result<(), Wrong> {
        self.figures.turns += 1;
        if std::mem::take(&mut self.let_in) {
            // What came too late may still have come.
            self.faults.wait();
            self.driver.restart(true).map_err(wrong("drive"))?;
        }
        let request = held.request();
        let body = self.wire.write(&request);
        let mut before: Option<String> = None;
        for _ in 0..=repeats {
            let outcome = self
                .driver
                .turn(self.wire, &body)
                .map_err(wrong("turn fails"))?;
            let out = self.wire.read(&outcome.body).map_err(wrong("body"))?;
            if let Some(before) = before.filter(|before| *before != outcome.body) {
                let what = if outcome.compacted {
                    "and compacts again"
                } else {
                    "without a compaction"
                };
                let what = format!(
                    "the same body again {what}: {}",
                    first_difference(&before, &outcome.body)
                );
                return Err(wrong("same body")(what));
            }
            self.check(held, &request, &out, &outcome)?;
            // A failure may have kept the engine from what it does at the next try.
            before = self.trouble.is_none().then_some(outcome.body);
            self.crossed = Some((request.clone(), out));
        }
        self.sent = Some(held.clone());
        Ok(())
    }

    fn check(
        &mut self,
        held: &Held,
        request: &Request,
        out: &Request,
        outcome: &Outcome,
    ) -> Result<(), Wrong> {
        let entries = self.entries(&out.messages)?;
        self.figures.compactions += usize::from(outcome.compacted);
        self.figures.messages = self.truth.branch.len() + self.truth.left.len();

        let excuses = &outcome.excuses;
        let usable = self.driver.window() * 9 / 10;
        let size = count(out);
        // Nobody counts alike, to the token.
        if size > usable + usable / 20 && excuses.is_empty() {
            return Err(wrong("fits")(format!(
                "{size} tokens for {usable}, and no word of it ({}): {}",
                outcome.decision, outcome.body
            )));
        }
        let own: HashSet<String> = rules::broken(self.wire, request).into_iter().collect();
        let broken = rules::broken(self.wire, out)
            .into_iter()
            .find(|rule| !own.contains(rule));
        if let Some(rule) = broken {
            return Err(wrong("rules")(format!(
                "{rule}: {}",
                out.messages.join("\n")
            )));
        }
        self.check_neighbours(held, &entries)?;
        self.check_words(held, &entries)?;
        self.check_left(request, out)?;
        // What it rewrites is what came since, in front of which nothing changes.
        let is_prefix_kept = outcome.only_rewritten && self.driver.engine() == "virtual-files";
        if !outcome.compacted || is_prefix_kept {
            self.check_prefix(request, out)?;
        } else {
            if !outcome.only_rewritten {
                self.check_tail(&entries, outcome.stood_in)?;
            }
        }
        let stored = self.stored()?;
        self.check_transcript(held, &stored)?;
        self.check_store(held, outcome, &stored)?;
        self.handed = Some(Held {
            system: out.system.clone(),
            entries,
        });
        Ok(())
    }

    /// What a body is made of, told by what it carries: from the end, where nothing was summarised.
    fn entries(&self, messages: &[String]) -> Result<Vec<Entry>, Wrong> {
        let mut end = self.truth.branch.len();
        let mut entries = Vec::with_capacity(messages.len());
        let carried: Vec<Value> = (messages.iter())
            .map(|bytes| carried(bytes).map_err(wrong("body")))
            .collect::<Result<_, _>>()?;
        // What stands before the first summary is told from the beginning: the same may have been said again later,
        // where the summary hides it.
        let is_summary = |bytes: &String| bytes.contains("[END OF CONTEXT COMPACTION] #");
        let first = messages.iter().position(is_summary).unwrap_or(0);
        let both = self.truth.branch.iter().zip(&carried).take(first);
        let head = both.take_while(|(said, carries)| said.carries == **carries);
        let head = head.count();
        for (number, bytes) in messages.iter().enumerate().rev() {
            let carries = &carried[number];
            if let Some(said) = self.truth.branch.get(number).filter(|_| number < head) {
                entries.push(Entry {
                    bytes: bytes.clone(),
                    ..Entry::of(said)
                });
                continue;
            }
            let earlier = &self.truth.branch[..end];
            // What stands before it in the body and was said only later shows that it is not that message, but
            // the host's own words: a tool may have said the like.
            let is_passed_over = |at: usize| {
                carried[..number].iter().any(|before| {
                    let said = earlier.iter().position(|said| said.carries == *before);
                    said.is_some_and(|said| said > at)
                })
            };
            let mut entry = Entry {
                bytes: bytes.clone(),
                whole: None,
                holds: Vec::new(),
            };
            // The words may be what is left of a later message of which the rest was summarised.
            let is_left = |at: usize, holds: &[Serial], words: &Value| {
                let later = earlier[at + 1..].iter();
                let mut later = later.filter(|said| !holds.contains(&said.serial));
                later.any(|said| is_part(words, &said.carries))
            };
            let whole = earlier.iter().rposition(|said| said.carries == *carries);
            let whole = whole.filter(|at| !is_passed_over(*at) && !is_left(*at, &[], carries));
            if let Some(at) = whole {
                entry.whole = Some(earlier[at].serial);
                entry.holds.push(earlier[at].serial);
                end = at;
            } else {
                // Several in one, or one beside a summary: each of them is in it whole.
                let mut parts = parts_of(carries);
                for (at, said) in earlier.iter().enumerate().rev() {
                    let own = parts_of(&said.carries);
                    let is_in = |own: &Value| parts.iter().any(|part| holds(part, own));
                    if beside_content(&said.carries) == beside_content(carries)
                        && !own.is_empty()
                        && own.iter().all(is_in)
                        && !is_passed_over(at)
                        && !is_left(at, &entry.holds, &said.carries)
                    {
                        parts.retain(|part| !own.iter().any(|own| holds(part, own)));
                        entry.holds.push(said.serial);
                        end = at;
                    }
                }
            }
            entries.push(entry);
        }
        entries.reverse();
        Ok(entries)
    }

    /// The user's last words are there, and what nobody said is marked.
    fn check_words(&self, held: &Held, entries: &[Entry]) -> Result<(), Wrong> {
        let sent = held.entries.iter().flat_map(|entry| &entry.holds);
        let sent = sent
            .filter_map(|serial| self.truth.place(*serial))
            .map(|at| &self.truth.branch[at]);
        let last = sent
            .filter(|said| said.is_of_user())
            .max_by_key(|said| self.truth.place(said.serial));
        // The words beside the results of tools may stay while the results are shortened.
        let last = last
            .filter(|said| said.speaker == Speaker::User)
            .map(|said| said.serial);
        // The last words may also be those left of a message of which the results were summarised.
        let is_left = |entry: &Entry| {
            let parts = carried(&entry.bytes).map(|carries| parts_of(&carries));
            let is_word = |part: &Value| part["text"].as_str().is_some_and(|text| !text.is_empty());
            let mixed = self.truth.branch.iter();
            let mixed = mixed.filter(|said| said.speaker == Speaker::Tools);
            let words = mixed.flat_map(|said| parts_of(&said.carries));
            let words: Vec<Value> = words.filter(is_word).collect();
            entry.holds.is_empty()
                && parts.is_ok_and(|parts| {
                    let mut parts = parts.iter();
                    parts.any(|part| words.iter().any(|word| holds(part, word)))
                })
        };
        // They may also be ones of which the client has a shorter form alone: those of the user's that an engine shortened
        // when they were not the last, and that are the last since what followed them was taken back.
        let is_short_word = |entry: &Entry| {
            let message = carried(&entry.bytes).unwrap_or_default();
            let is_short = |part: &Value| {
                let text = part["text"].as_str().unwrap_or_default();
                SHORT_MARKS.iter().any(|mark| text.starts_with(mark))
            };
            entry.holds.is_empty()
                && message["role"] == "user"
                && parts_of(&message).iter().any(is_short)
        };
        let last = last.filter(|last| {
            let behind = held.entries.iter().rev();
            let mut behind = behind.take_while(|entry| !entry.holds.contains(last));
            !behind.any(|entry| is_left(entry) || is_short_word(entry))
        });
        let is_summary = |entry: &Entry| entry.bytes.contains("[END OF CONTEXT COMPACTION] #");
        let head = entries.iter().position(is_summary).unwrap_or(0);
        // Which of equal messages stands in front of a summary, a body does not tell, nor whether words are those left
        // beside results or the same words alone.
        let carries = |serial: &Serial| {
            let at = self.truth.place(*serial)?;
            Some(&self.truth.branch[at].carries)
        };
        let is_there = |last| {
            let is_equal = |held: &Serial| carries(held) == carries(&last);
            let words = carries(&last).map(parts_of).unwrap_or_default();
            let has_words = |entry: &Entry| {
                let parts = carried(&entry.bytes).map(|carries| parts_of(&carries));
                let parts = parts.unwrap_or_default();
                let is_in = |word| parts.iter().any(|part| holds(part, word));
                words.iter().all(is_in)
            };
            let (head, rest) = entries.split_at(head);
            head.iter()
                .any(|entry| entry.whole.as_ref().is_some_and(is_equal))
                || (rest.iter())
                    .any(|entry| entry.holds.contains(&last) || is_left(entry) && has_words(entry))
        };
        // An engine may keep them as a file, and show their beginning.
        let is_file = |entry: &Entry| entry.bytes.contains("[file user-");
        let is_kept = entries.iter().any(is_file);
        if let Some(last) = last.filter(|last| !is_there(*last) && !is_kept) {
            return Err(wrong("last words")(format!(
                "message {last}, the user's last, is not in the body as it was said: {}",
                entries
                    .iter()
                    .map(|entry| entry.bytes.as_str())
                    .collect::<Vec<_>>()
                    .join("\n"),
            )));
        }
        let came: HashSet<&str> = held
            .entries
            .iter()
            .map(|entry| entry.bytes.as_str())
            .collect();
        for entry in entries
            .iter()
            .filter(|entry| entry.whole.is_none() && !came.contains(entry.bytes.as_str()))
        {
            let marks = [
                "[CONTEXT COMPACTION]",
                "[Old tool output cleared",
                "【历史摘要】",
                "[virtual files",
            ];
            let mut marks = marks.iter().chain(&SHORT_MARKS);
            let is_marked = marks.any(|mark| entry.bytes.contains(mark));
            // A call whose arguments were shortened has no place for a mark.
            let calls = ["tool_calls", "tool_use", "function_call", "functionCall"]
                .iter()
                .any(|call| entry.bytes.contains(call));
            // Words beside results of tools stay where the results are summarised.
            let carries = carried(&entry.bytes).map_err(wrong("body"))?;
            let is_marked = is_marked || self.truth.has_part(&carries);
            if !is_marked && !calls && entry.holds.is_empty() {
                return Err(wrong("unmarked")(entry.bytes.clone()));
            }
        }
        Ok(())
    }

    /// Nothing tells of a message that was cut off, except what the client sent itself. The old words of an edited
    /// message may stand in a summary behind it.
    fn check_left(&self, request: &Request, out: &Request) -> Result<(), Wrong> {
        let is_cut = |said: &&Said| !self.truth.edited.contains(&said.serial);
        let left: HashSet<&str> = (self.truth.left.iter().filter(is_cut))
            .flat_map(|said| names(&said.bytes))
            .collect();
        let there: HashSet<&str> = (self.truth.branch.iter())
            .flat_map(|said| names(&said.bytes))
            .collect();
        let tells = |request: &Request, name: &str| {
            let mut texts = request.messages.iter().chain([&request.system]);
            texts.any(|text| text.contains(name))
        };
        let told = left
            .difference(&there)
            .find(|name| tells(out, name) && !tells(request, name));
        told.map_or(Ok(()), |name| {
            Err(wrong("told")(format!(
                "{name} was left, and is told of: {}",
                out.messages.join("\n")
            )))
        })
    }

    /// Checks that a message of the host has a neighbour of its role only if the client itself sent it that way,
    /// because many clients join such messages into one.
    fn check_neighbours(&self, held: &Held, entries: &[Entry]) -> Result<(), Wrong> {
        let role = |entry: &Entry| {
            let message: Value = serde_json::from_str(&entry.bytes).unwrap_or_default();
            message["role"].as_str().unwrap_or_default().to_owned()
        };
        // Of a message that two-layer or tiered made shorter, or that virtual-files keeps as a file, the first words are
        // left: "[truncated: 437 chars] said00027z", "[COMPACTED: said00027z".
        let shortened = |entry: &Entry, is_behind: bool| -> Option<Serial> {
            let found = ["chars] said", "[COMPACTED: said", r"searches it]\nsaid"]
                .iter()
                .find_map(|cut| {
                    if is_behind {
                        entry.bytes.rsplit_once(cut)
                    } else {
                        entry.bytes.split_once(cut)
                    }
                });
            found?.1.split('z').next()?.parse().ok()
        };
        // Whether the message of this entry had a neighbour of its role before or after it when it came.
        let had_neighbour = |entry: &Entry, is_behind: bool| {
            let serial = if is_behind {
                entry.holds.iter().max()
            } else {
                entry.holds.iter().min()
            };
            let serial = serial.copied().or_else(|| shortened(entry, is_behind));
            // Of a message of which a part was summarised the words at its end are left.
            let edge = |entry: &Entry| {
                let carries = carried(&entry.bytes).unwrap_or_default();
                let parts = parts_of(&carries);
                let part = if is_behind {
                    parts.last()
                } else {
                    parts.first()
                };
                part.and_then(|part| part["text"].as_str().map(str::to_owned))
            };
            held.entries.windows(2).any(|pair| {
                let own = if is_behind { &pair[0] } else { &pair[1] };
                let is_left = entry.whole.is_none() && edge(entry).is_some();
                let is_own = serial.is_some_and(|serial| own.holds.contains(&serial))
                    || (is_left && edge(entry) == edge(own));
                is_own && role(&pair[0]) == role(&pair[1])
            })
        };
        // Whether the words that meet were said one after the other. Those in front may be what is left of a message of
        // which the rest was summarised, or a shorter form.
        let were_said_so = |one: &Entry, next: &Entry| {
            // The later one may be a shorter form, too.
            let short = shortened(next, false).filter(|_| next.holds.is_empty());
            let at = next.holds.iter().min().copied().or(short);
            let at = at.and_then(|serial| self.truth.place(serial)?.checked_sub(1));
            let Some(before) = at.map(|at| &self.truth.branch[at]) else {
                return false;
            };
            let is_its_end = |entry: &Entry| {
                let [own, left] = [Ok(before.carries.clone()), carried(&entry.bytes)]
                    .map(|carries| parts_of(&carries.unwrap_or_default()));
                own.last().is_some() && own.last() == left.last()
            };
            let is_short_of_it = |entry: &Entry| {
                let carries = carried(&entry.bytes).unwrap_or_default();
                let parts = parts_of(&carries);
                let end = parts.last().and_then(|part| part["text"].as_str());
                end.is_some_and(ends_with_short_seal)
                    && shortened(entry, true) == Some(before.serial)
            };
            match one.holds.iter().max() {
                Some(last) => {
                    (short.is_some() || would_join_users(one, next)) && *last == before.serial
                }
                None => {
                    would_join_users(one, next) && is_its_end(one)
                        || next.whole.is_some() && is_short_of_it(one)
                }
            }
        };
        for pair in entries.windows(2) {
            let [one, next] = pair else { continue };
            let is_hosts = |entry: &Entry| entry.whole.is_none() && entry.bytes.contains("] #");
            let is_said = matches!(role(one).as_str(), "user" | "assistant");
            if is_said
                && role(one) == role(next)
                && (is_hosts(one) || is_hosts(next))
                && !had_neighbour(one, true)
                && !had_neighbour(next, false)
                && !were_said_so(one, next)
            {
                return Err(wrong("neighbours")(format!(
                    "{}\n{}",
                    one.bytes, next.bytes
                )));
            }
        }
        Ok(())
    }

    /// Where the client goes on with the bytes that it sent, or that it got, so does the body.
    fn check_prefix(&self, request: &Request, out: &Request) -> Result<(), Wrong> {
        let Some((sent, handed)) = &self.crossed else {
            return Ok(());
        };
        let goes_on = |before: &Request| {
            request.system == before.system && request.messages.starts_with(&before.messages)
        };
        // A client that inserts words in front of the same words sends what it sent, but behind it what the host added.
        // It may respell both.
        let carries = |messages: &[String]| -> Vec<Value> {
            let carried = messages.iter().map(|message| carried(message));
            carried.map(Result::unwrap_or_default).collect()
        };
        let (all_sent, all_handed) = (carries(&sent.messages), carries(&handed.messages));
        let is_added = |message: &String| {
            let carries = carried(message).unwrap_or_default();
            all_handed.contains(&carries) && !all_sent.contains(&carries)
        };
        let mut behind = request.messages.iter().skip(sent.messages.len());
        let goes_on_from_sent = goes_on(sent) && !behind.any(is_added);
        if !goes_on_from_sent && !goes_on(handed) {
            return Ok(());
        }
        let whence = if goes_on_from_sent {
            "sent"
        } else {
            "was handed"
        };
        if out.system != handed.system {
            let what = format!(
                "goes on from what it {whence}, system prompt: {} -> {}",
                handed.system, out.system
            );
            return Err(wrong("prefix")(what));
        }
        let same = out
            .messages
            .iter()
            .zip(&handed.messages)
            .take_while(|(now, before)| now == before)
            .count();
        // What the user says next joins the message that the user said last, where roles alternate.
        let is_joined = same + 1 == handed.messages.len()
            && out.messages.get(same).is_some_and(|now| {
                let parts = |message| carried(message).map(|carries| parts_of(&carries));
                match (parts(now), parts(&handed.messages[same])) {
                    (Ok(now), Ok(before)) => !before.is_empty() && now.starts_with(&before),
                    _ => false,
                }
            });
        match same == handed.messages.len() || is_joined {
            true => Ok(()),
            false => {
                let now = out.messages.get(same).map_or("nothing", String::as_str);
                let what = format!(
                    "the client goes on from what it {whence}, and message {same} of {} was {} and is {}",
                    handed.messages.len(),
                    short(&json!(handed.messages[same])),
                    short(&json!(now)),
                );
                Err(wrong("prefix")(what))
            }
        }
    }

    /// Over like compactions what stays word for word behind the summary does not shrink, in messages and in tokens.
    /// Where one turn is a large part of it, what stays is a matter of chance.
    fn check_tail(&mut self, entries: &[Entry], stood_in: bool) -> Result<(), Wrong> {
        let marks = ["[CONTEXT COMPACTION]", "【历史摘要】"];
        let is_summary = |entry: &Entry| marks.iter().any(|mark| entry.bytes.contains(mark));
        let last = entries
            .iter()
            .rev()
            .take_while(|entry| entry.whole.is_some() || !is_summary(entry))
            .filter(|entry| entry.whole.is_some());
        let tail = Tail {
            messages: last.clone().count(),
            // As they were said: a client may spell the same with twice the tokens.
            tokens: (last.filter_map(|entry| self.truth.place(entry.whole?)))
                .map(|at| tokens(&self.truth.branch[at].bytes))
                .sum(),
            window: self.driver.window(),
            engine: match stood_in {
                true => "compressor",
                false => self.driver.engine(),
            },
        };
        let before = self.tail.replace(tail);
        // What those keep is counted in messages and turns.
        if matches!(self.driver.engine(), "keep-tail" | "two-layer" | "tiered") {
            return Ok(());
        }
        // One that does not fit its window was no compaction's doing.
        let alike = before.filter(|before| {
            (before.window, before.engine) == (tail.window, tail.engine)
                && before.tokens <= before.window
        });
        let Some(before) = alike else { return Ok(()) };
        let (mut turn, mut largest) = (0, 0);
        let (mut messages, mut longest) = (0, 0);
        for said in &self.truth.branch {
            if said.speaker == Speaker::User {
                (turn, messages) = (0, 0);
            }
            turn += tokens(&said.bytes);
            messages += 1;
            (largest, longest) = (largest.max(turn), longest.max(messages));
        }
        // They keep twenty messages if these fit: lcm beside its summaries, and otherwise a tenth of the room; the compressor
        // beside the first three, in three quarters of its threshold, and otherwise a fifth of that. A sixth, a quarter and a
        // twelfth of the window leave space for the system prompt, the tools and the summary.
        let of = |said: &mut dyn Iterator<Item = &Said>| -> u64 {
            said.map(|said| tokens(&said.bytes)).sum()
        };
        let as_many = of(&mut self.truth.branch.iter().rev().take(before.messages));
        let fit = match tail.engine {
            "compressor" => as_many + of(&mut self.truth.branch.iter().take(3)) <= tail.window / 4,
            "virtual-files" => true,
            _ => as_many <= tail.window / 6,
        };
        let promised = match fit {
            true => before.tokens,
            false => before.tokens.min(tail.window / 12),
        };
        let shrinks = tail.messages + longest < before.messages && tail.tokens + largest < promised;
        match shrinks && largest * 3 < promised {
            false => Ok(()),
            true => Err(wrong("tail")(format!(
                "{tail:?} after {before:?}, and the largest turn has {largest} tokens"
            ))),
        }
    }

    /// The messages of the transcript.
    fn stored(&mut self) -> Result<Vec<Value>, Wrong> {
        let wires = self.driver.transcript().map_err(wrong("transcript"))?;
        let items = wires.iter().flat_map(|raw| items(raw));
        let messages = items.map(|item| carried(&item.to_string()).map_err(wrong("transcript")));
        messages.collect()
    }

    /// The transcript has what was said, once, in order, and nothing else, whatever the engine does.
    fn check_transcript(&mut self, held: &Held, stored: &[Value]) -> Result<(), Wrong> {
        if self.transcript_is_lost {
            return Ok(());
        }
        let holds = held.entries.iter().flat_map(|entry| &entry.holds);
        let required = holds.chain(&self.in_transcript).copied();
        let found = (self.truth).compare(stored, &required.collect());
        self.in_transcript = found.map_err(|(check, what)| Wrong {
            check,
            what: format!("transcript: {what}"),
        })?;
        Ok(())
    }

    /// The store has what was said, once, in order, and nothing else.
    fn check_store(
        &mut self,
        held: &Held,
        outcome: &Outcome,
        stored: &[Value],
    ) -> Result<(), Wrong> {
        if !self.is_lossless() || self.is_in_trouble()? {
            let says_so = |warning: &String| warning.contains("is not stored");
            self.loss_was_said |= outcome.warnings.iter().any(says_so);
            return Ok(());
        }
        let mut required: HashSet<Serial> = held
            .entries
            .iter()
            .flat_map(|entry| entry.holds.clone())
            .collect();
        required.extend(&self.truth.stored);
        if self.transcript_is_lost {
            // Whether the host or the tool said that a result was cleared, the record alone knows.
            let is_cleared = |said: &&Said| {
                said.speaker == Speaker::Tools && said.bytes.contains(CLEARED_TOOL_OUTPUT)
            };
            for said in self.truth.branch.iter().filter(is_cleared) {
                required.remove(&said.serial);
            }
            // Several items of the Responses API are one answer, which is stored whole or not at all.
            let answers = held.entries.chunk_by(|one, next| {
                matches!((rank(one), rank(next)), (Some(one), Some(next))
                    if one < next || (one == next && one != 1))
            });
            let is_shortened = |entry: &Entry| {
                entry.whole.is_none() && !entry.bytes.contains("[END OF CONTEXT COMPACTION] #")
            };
            for answer in answers.filter(|answer| answer.iter().any(is_shortened)) {
                for entry in answer.iter().filter(|entry| rank(entry).is_some()) {
                    entry.holds.iter().for_each(|serial| {
                        required.remove(serial);
                    });
                }
            }
        }
        match self.truth.compare(stored, &required) {
            // The original of a shortened result is gone with the record. Unless an answer after it proves whose words
            // they are, they count as the tool's.
            Err(("export: nobody said", _)) if self.transcript_is_lost => return Ok(()),
            Err((check, what)) => return Err(Wrong { check, what }),
            Ok(found) => self.truth.stored = found,
        }
        self.truth.ever_stored.extend(&self.truth.stored);
        let branch = self.truth.branch.iter().map(|said| said.serial);
        let missing: HashSet<Serial> = branch
            .filter(|serial| !self.truth.stored.contains(serial))
            .collect();
        let newly: Vec<&Serial> = missing.difference(&self.missing).collect();
        let was_said = std::mem::take(&mut self.loss_was_said);
        if !newly.is_empty() && outcome.warnings.is_empty() && !was_said {
            return Err(wrong("unreported loss")(format!(
                "{newly:?} are nowhere any more, and no warning says so"
            )));
        }
        self.missing = missing;
        Ok(())
    }

    /// Whether a failure came in this turn, or an earlier one keeps the engine out. It is let in again by the
    /// next turn but one.
    fn is_in_trouble(&mut self) -> Result<bool, Wrong> {
        let fired = self.faults.fired();
        self.figures.faults += fired;
        if fired > 0 {
            self.trouble = Some(0);
        }
        let Some(turns) = &mut self.trouble else {
            return Ok(false);
        };
        *turns += 1;
        let turns = *turns;
        let is_out = self.driver.engine_is_shut_out();
        self.let_in = is_out && turns > 1;
        if !is_out && fired == 0 {
            self.trouble = None;
        }
        Ok(self.trouble.is_some())
    }

    /// What failed is over, and one more turn is right. From here on calls have all the time that they need: only what
    /// fails on purpose may fail.
    fn recover(&mut self) -> Result<(), Wrong> {
        self.faults.clear();
        self.faults.wait();
        (self.driver.set_configuration(PATIENT)).map_err(wrong("drive"))?;
        self.is_in_trouble()?;
        self.trouble = None;
        self.say(Words::Plain(9));
        let held = self.list(self.holds, Dialect::AsIs);
        self.send(&held, 1)
    }

    /// What is looked at once: that everything left can be read, and that nothing else was ever stored.
    fn finish(&mut self) -> Result<(), Wrong> {
        if self.driver.configured() == FLAKY {
            self.recover()?;
        }
        if !self.is_lossless()
            || self.truth.stored.is_empty()
            || self.fresh.len() != self.answer.min(self.fresh.len())
        {
            return Ok(());
        }
        self.driver.verify().map_err(wrong("verify"))?;
        self.driver.doctor().map_err(wrong("doctor"))?;
        for mark in [
            "CONTEXT COMPACTION",
            "Shortened to save context",
            "tool output cleared",
        ] {
            for id in self.driver.find(mark).map_err(wrong("search"))? {
                let raw = self.driver.stored(&id).map_err(wrong("search"))?;
                for item in items(&raw) {
                    let carries = carried(&item.to_string()).map_err(wrong("search"))?;
                    if !self.truth.was_said(&carries) {
                        return Err(wrong("invented")(format!(
                            "{id} is stored: {}",
                            short(&carries)
                        )));
                    }
                }
            }
        }
        for said in self.truth.left.iter().rev().take(20) {
            let Some(word) = said
                .word
                .as_ref()
                .filter(|_| self.truth.stored_ever(said.serial))
            else {
                continue;
            };
            if self.driver.find(word).map_err(wrong("search"))?.is_empty() {
                return Err(wrong("left")(format!(
                    "{} was left, and cannot be found any more",
                    said.serial
                )));
            }
        }
        Ok(())
    }
}

/// What begins the shorter form of a message.
const SHORT_MARKS: [&str; 4] = [
    "[Shortened to save", "[truncated: ", "[COMPACTED: ", "[file ",
];

/// The place in an answer of what is an item of one with the Responses API: thoughts, text, calls.
fn rank(entry: &Entry) -> Option<u8> {
    let item: Value = serde_json::from_str(&entry.bytes).ok()?;
    match item["type"].as_str()? {
        "reasoning" => Some(0),
        "message" if item["role"] == "assistant" => Some(1),
        "function_call" => Some(2),
        _ => None,
    }
}

/// What a message is beside its content: its role, its calls, the call that it answers.
fn beside_content(carries: &Value) -> Value {
    let mut rest = carries.clone();
    rest["content"] = Value::Null;
    rest
}

/// Its content, part by part.
fn parts_of(carries: &Value) -> Vec<Value> {
    carries["content"].as_array().cloned().unwrap_or_default()
}

/// Whether a part is another one, or is that one with a summary before or behind it.
fn holds(part: &Value, other: &Value) -> bool {
    let (Some(text), Some(own)) = (part["text"].as_str(), other["text"].as_str()) else {
        return part == other;
    };
    if own.is_empty() {
        // An empty text joined to a summary.
        let is_host_before = text.trim().is_empty() || ends_with_seal(text);
        return part == other || (text.ends_with("\n\n") && is_host_before);
    }
    part == other
        || text.match_indices(own).any(|(at, _)| {
            let (before, behind) = (&text[..at], &text[at + own.len()..]);
            text != own
                && (before.trim().is_empty() || ends_with_seal(before))
                && (behind.trim().is_empty() || begins_with_mark(behind))
        })
}

/// Whether a summary ends here.
fn ends_with_seal(text: &str) -> bool {
    text.trim_end()
        .rsplit_once("[END OF CONTEXT COMPACTION] #")
        .is_some_and(|(_, sum)| sum.len() == 8)
}

/// Whether the shorter form of a message ends here.
fn ends_with_short_seal(text: &str) -> bool {
    let seal = text.rsplit_once("\n[#");
    seal.is_some_and(|(_, sum)| sum.len() == 9 && sum.ends_with(']'))
}

/// Whether a summary begins here.
fn begins_with_mark(text: &str) -> bool {
    text.trim_start().starts_with("[CONTEXT COMPACTION]")
}

/// The JSON values of a wire message: several where it is made of several items.
fn items(raw: &str) -> Vec<Value> {
    let list = format!("[{raw}]");
    serde_json::from_str(&list).unwrap_or_else(|_| {
        serde_json::Deserializer::from_str(raw)
            .into_iter()
            .map_while(Result::ok)
            .collect()
    })
}

/// A message that is not the user's with another text; none where it has none.
fn with_text(bytes: &str, text: &str) -> Option<Value> {
    let mut message: Value = serde_json::from_str(bytes).ok()?;
    let has_thought = ["\"thinking\"", "\"thought\""]
        .iter()
        .any(|thought| bytes.contains(thought));
    let place = match &mut message {
        message if has_thought && message["role"] != "user" => return None,
        message if message["output"].is_string() => &mut message["output"],
        message if message["content"].is_string() => &mut message["content"],
        message if message["parts"].is_array() => {
            let parts = message["parts"].as_array_mut()?.iter_mut();
            let output = "/functionResponse/response/output";
            let mut texts = parts.filter_map(|part| match part["text"].is_string() {
                true => part.get_mut("text"),
                false => part.pointer_mut(output),
            });
            texts.next()?
        }
        message => {
            let mut parts = message["content"].as_array_mut()?.iter_mut();
            let part =
                parts.find(|part| part["text"].is_string() || part["content"].is_string())?;
            let key = if part["text"].is_string() {
                "text"
            } else {
                "content"
            };
            &mut part[key]
        }
    };
    *place = json!(text);
    Some(message)
}

/// What the model of the sessions charges for an image of one tile (platform.openai.com, "Images and vision": 70 and 140).
const IMAGE_TOKENS: u64 = 210;

/// What a provider reports for a request: its tools and images too, and a few tokens more for each message.
fn reported(request: &Request) -> u64 {
    let images = (request.messages.iter()).map(|message| message.matches(PIXEL).count() as u64);
    count(request)
        + tokens(&request.tools)
        + 4 * (request.messages.len() as u64 + 1)
        + IMAGE_TOKENS * images.sum::<u64>()
}

/// What a model reads in a request, at least.
fn count(request: &Request) -> u64 {
    let mut read = String::new();
    for message in request.messages.iter().chain([&request.system]) {
        texts(
            &serde_json::from_str(message).unwrap_or_default(),
            &mut read,
        );
    }
    tokens(&read)
}

fn first_difference(one: &str, other: &str) -> String {
    let at = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other)
        .count();
    let around = |text: &str| {
        let from = text.floor_char_boundary(at.saturating_sub(60));
        let to = text.floor_char_boundary(at + 120);
        text[from..to.min(text.len())].to_owned()
    };
    format!("`{}` and then `{}`", around(one), around(other))
}

/// The words and paths in a text that tell messages apart: `said00027z`, `src/27.rs`.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && !"/.".contains(c));
    words.filter(|word| word.starts_with("said0") || word.starts_with("src/"))
}
