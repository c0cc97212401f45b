//! An engine that is wrong on purpose for each row of the table: every row can fail.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use contexture_engine_api::*;
use contexture_testkit::conformance::{Checking, Report, Row, Subject, check_engine};
use serde_json::{Value, json};

/// Keeps the last twelve messages and puts a line in place of the others, but for one fault.
struct Faulty {
    fault: Option<Row>,
    services: Services,
    /// What it was shown, as JSON text.
    seen: Vec<(MessageId, String)>,
    asked: AtomicU64,
    commits: Commits,
    /// What sessions of one factory share that should share nothing.
    shared: Arc<Mutex<String>>,
}

/// What the status says of compactions.
#[derive(Clone, Copy, PartialEq)]
enum Commits {
    Nothing,
    /// How often the engine was told of one, which is the fault.
    Counted(u64),
    /// How far the work is that began in the background when the session was opened.
    Work(Instant),
}

impl Faulty {
    fn has(&self, row: Row) -> bool {
        self.fault == Some(row)
    }

    /// Everything up to the tail, without the last words of the user, which stay.
    fn summary(&self, middle: &[MessageView<'_>]) -> String {
        let mut text = format!("{} messages were left out.", middle.len());
        if self.has(Row::Growth) {
            // An earlier summary is never made smaller.
            let all: String = middle.iter().map(|message| message.text()).collect();
            text.extend(all.chars().take(all.chars().count() * 19 / 20));
        }
        if self.has(Row::Edits) {
            text.extend(
                self.seen
                    .iter()
                    .map(|(_, raw)| raw.chars().take(60).collect::<String>()),
            );
        }
        if self.has(Row::Sessions) {
            text.push_str(&self.shared.lock().unwrap());
        }
        text
    }
}

impl ContextEngine for Faulty {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let tokens = window.best_prompt_tokens();
        let figures = match self.has(Row::Idempotence) {
            true => format!("asked {asked} times"),
            false => format!("{tokens} tokens"),
        };
        match tokens * 2 >= window.context_length {
            true => Decision::Yes(figures),
            false => Decision::No(figures),
        }
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        let messages = request.messages;
        if self.has(Row::Panics) {
            panic!("on purpose");
        }
        while self.has(Row::Time) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.has(Row::Model) {
            let asks = ModelRequest::new("summary", "Summarise.", "Something.", 100);
            self.services
                .complete(&asks)
                .map_err(|_| EngineError::Other("no summary".into()))?;
        }
        let tail = safe_cut(messages, messages.len().saturating_sub(12));
        let words = messages.iter().rposition(MessageView::is_real_user);
        let words = words.filter(|at| *at < tail && !self.has(Row::Contract));
        let (until, from) = words.map_or((tail, tail), |at| {
            // A result may come after the user's next words.
            let after = safe_cut_after(messages, at + 1);
            (safe_cut(messages, at), after.min(tail))
        });
        let mut entries: Vec<_> = messages
            .iter()
            .map(|message| Entry::Keep(message.id()))
            .collect();
        for span in [from..tail, 0..until] {
            let middle = &messages[span.clone()];
            let text = self.summary(middle);
            let tokens: u64 = middle.iter().map(MessageView::tokens).sum();
            if self.services.count_tokens(&text) + 80 < tokens {
                let covers = middle.iter().map(MessageView::id).collect();
                entries.splice(span, [Entry::summary(text, covers)]);
            }
        }
        if entries.iter().all(|entry| matches!(entry, Entry::Keep(_))) {
            return Ok(Outcome::NothingToDo(match self.has(Row::Outcomes) {
                true => String::new(),
                false => "there is too little".into(),
            }));
        }
        Ok(Outcome::Compacted(Compaction::new(entries)))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        if let Some(cut) = delivery.cut.filter(|_| !self.has(Row::Edits)) {
            self.seen.retain(|(id, _)| cut.keeps(*id));
        }
        let revised = |id| delivery.revisions.iter().any(|(_, old)| *old == id);
        self.seen.retain(|(id, _)| !revised(*id));
        for message in delivery.messages {
            let is_known = self.seen.iter().any(|(id, _)| *id == message.id());
            if is_known && self.has(Row::Resends) {
                return Err(EngineError::Other(format!("{} again", message.id())));
            }
            if is_known {
                continue;
            }
            self.seen.push((message.id(), message.raw().to_owned()));
            let first: String = message.text().split(' ').take(1).collect();
            self.shared.lock().unwrap().clone_from(&first);
        }
        Ok(())
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let schema = match self.has(Row::Tools) {
            true => json!("a pattern"),
            false => json!({"type": "object", "properties": {"pattern": {"type": "string"}}}),
        };
        vec![ToolSpec::new("find", "Finds.", schema)]
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        match (call.name.as_str(), arguments["pattern"].as_str()) {
            ("find", Some(pattern)) => Ok(format!("{pattern} is nowhere")),
            ("find", None) => Err(EngineError::InvalidInput("`pattern` is missing".into())),
            _ => Err(EngineError::Unsupported(call.name.clone())),
        }
    }

    fn background(&mut self, _request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        // Whatever it is answered, it asks again.
        let asks = ModelRequest::new("summary", "Summarise.", "Something.", 100);
        let call = BackgroundCall::new(1, Vec::new(), asks);
        self.has(Row::Background)
            .then_some(call)
            .into_iter()
            .collect()
    }

    fn committed(&mut self, _committed: &Committed) {
        if let Commits::Counted(times) = &mut self.commits {
            *times += 1;
        }
    }

    fn status(&self) -> Value {
        if self.has(Row::Status) {
            return json!("all is well");
        }
        let commits = match self.commits {
            Commits::Nothing => 0,
            Commits::Counted(times) => times,
            Commits::Work(began) => began.elapsed().as_micros().min(50_000) as u64,
        };
        json!({"messages": self.seen.len(), "commits": commits})
    }
}

struct Factory {
    fault: Option<Row>,
    commits: Commits,
    shared: Arc<Mutex<String>>,
}

impl Factory {
    fn new(fault: Option<Row>, commits: Commits) -> Self {
        let shared = Arc::default();
        Self {
            fault,
            commits,
            shared,
        }
    }
}

impl EngineFactory for Factory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self::new(None, Commits::Nothing))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        if self.fault == Some(Row::Opens) && request.services.model().is_none() {
            return Err(EngineError::Settings("a model is needed".into()));
        }
        Ok(Box::new(Faulty {
            fault: self.fault,
            services: request.services.clone(),
            seen: Vec::new(),
            asked: AtomicU64::new(0),
            commits: match self.commits {
                Commits::Work(_) => Commits::Work(Instant::now()),
                commits => commits,
            },
            shared: self.shared.clone(),
        }))
    }
}

fn checked(fault: Option<Row>) -> Report {
    checked_with(fault, Commits::Nothing)
}

fn checked_with(fault: Option<Row>, commits: Commits) -> Report {
    let subject = Subject::new("faulty", About::default(), move |_| {
        Ok(Box::new(Factory::new(fault, commits)))
    });
    let mut how = Checking::default();
    how.generated = 6;
    if fault == Some(Row::Time) {
        how.patience = Duration::from_millis(500);
    }
    check_engine(subject, how)
}

#[test]
fn an_engine_without_a_fault_holds_every_row() {
    let report = checked(None);
    assert_eq!(report.broken().collect::<Vec<_>>(), [], "{report}");
    for row in Row::ALL {
        assert!(report.of(row).cases > 0, "{row:?} was not looked at");
    }
}

#[test]
fn a_fault_breaks_its_row_and_the_table_says_where() {
    for row in Row::ALL {
        let report = checked(Some(row));
        let held = report.of(row);
        assert!(held.broken > 0, "{row:?}: {report}");
        let why = held.why.as_deref().unwrap();
        assert!(why.starts_with("in \""), "{why}");
        let table = report.to_string();
        let name = format!("{row:?}").to_lowercase();
        assert!(table.contains(&format!("\n{name}: {why}")), "{table}");
        // Nothing else is said of it than what follows from the fault.
        let others: Vec<_> = report.broken().filter(|other| *other != row).collect();
        let follows: &[Row] = match row {
            Row::Growth => &[Row::Edits, Row::Sessions],
            // What the sessions share is of the last message.
            Row::Sessions => &[Row::Edits],
            _ => &[],
        };
        assert!(
            others.iter().all(|other| follows.contains(other)),
            "{row:?}: {report}"
        );
    }
}

#[test]
fn a_compaction_that_is_counted_twice_is_told_from_work_in_the_background() {
    let counted = checked_with(None, Commits::Counted(0));
    let why = counted.of(Row::Idempotence).why.clone().unwrap();
    assert!(why.contains("told of a compaction twice"), "{why}");
    let works = checked_with(None, Commits::Work(Instant::now()));
    assert_eq!(works.broken().collect::<Vec<_>>(), [], "{works}");
}
