//! Compactions of a conversation that no request brought, by an engine that does as it is told.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::{MessageView, Replacement};
use contexture_testkit::Script;
use tempfile::TempDir;

use super::*;
use crate::testing::{conversation, engines, ids, scripted, talk};

struct Scene {
    _home: TempDir,
    engine: Opened,
    script: Script,
    compactor: Compactor,
    current: ConversationState,
}

impl Scene {
    /// A conversation of five messages. `session` is the test's own.
    fn new(session: &str) -> Self {
        let (home, engines) = engines("");
        let (engine, script) = scripted(&engines, session);
        let mut current = conversation(&talk(0..5));
        current.new_since_compaction = true;
        Self {
            _home: home,
            engine,
            script,
            compactor: Compactor::new(engines.config(), Warnings::of(session)),
            current,
        }
    }

    fn compact(&mut self) -> Result<CompactionReport, String> {
        let ask = Ask {
            force: true,
            ..Ask::default()
        };
        let Self {
            engine, current, ..
        } = self;
        (self.compactor).attempt(engine, current, &ask, Way::Compress)
    }

    fn window(&self) -> Vec<MessageId> {
        self.current
            .window
            .entries()
            .iter()
            .map(WindowEntry::id)
            .collect()
    }
}

/// A summary of all messages but the last `kept`, and these.
fn summary_and(request: &CompressRequest<'_>, kept: usize) -> Outcome {
    let (old, last) = request.messages.split_at(request.messages.len() - kept);
    let covers = old.iter().map(MessageView::id).collect();
    let mut entries = vec![Entry::summary("what was said", covers)];
    entries.extend(last.iter().map(|message| Entry::Keep(message.id())));
    Outcome::Compacted(Compaction::new(entries))
}

#[test]
fn a_proposal_that_holds_is_put_in_force_and_the_engine_told() {
    let mut scene = Scene::new("compactor-holds");
    scene.script.compacts(|request| summary_and(request, 1));
    let report = scene.compact().unwrap();
    assert!(report.is_made());
    assert!(report.tokens_after < report.tokens_before / 2, "{report:?}");
    assert_eq!(scene.window(), ids([6, 5]));
    assert!(!scene.current.new_since_compaction);
    let history = &scene.current.history;
    let covers = history.host_texts.covers(MessageId(6)).unwrap();
    assert_eq!(covers.iter().collect::<Vec<_>>(), ids(1..=4));
    let left_out = &history.in_force().unwrap().window.left_out;
    assert_eq!(left_out.iter().collect::<Vec<_>>(), ids(1..=4));
    let committed = scene.script.take_committed();
    assert_eq!(committed.len(), 1);
    assert_eq!(committed[0].inserted, ids([6]));
}

#[test]
fn a_proposal_that_breaks_the_contract_changes_nothing() {
    let mut scene = Scene::new("compactor-breaks");
    // The other messages are left out without a word.
    scene.script.compacts(|request| {
        let last = request.messages.last().map(MessageView::id);
        let kept = last.map(Entry::Keep).into_iter().collect();
        Outcome::Compacted(Compaction::new(kept))
    });
    let before = Arc::clone(&scene.current.window);
    let failure = scene.compact().unwrap_err();
    assert!(failure.contains("breaks the contract"), "{failure}");
    assert!(Arc::ptr_eq(&before, &scene.current.window));
    assert!(scene.current.history.in_force().is_none());
    assert_eq!(scene.script.take_discarded().len(), 1);
    assert_eq!(scene.engine.failures(), 1);
}

#[test]
fn what_comes_from_keep_from_on_is_not_compacted() {
    let mut scene = Scene::new("compactor-keep-from");
    scene.script.compacts(|request| summary_and(request, 1));
    let ask = Ask {
        force: true,
        keep_from: Some(MessageId(4)),
        ..Ask::default()
    };
    let (engine, current) = (&mut scene.engine, &mut scene.current);
    let report = (scene.compactor).attempt(engine, current, &ask, Way::Compress);
    assert!(report.unwrap().is_made());
    assert_eq!(scene.window(), ids([6, 3, 4, 5]));
}

#[test]
fn an_engine_with_nothing_to_do_leaves_the_window() {
    let mut scene = Scene::new("compactor-idle");
    let report = scene.compact().unwrap();
    assert_eq!(report.outcome, OutcomeKind::NothingToDo);
    assert_eq!(
        (report.kept, report.tokens_before),
        (5, report.tokens_after)
    );
}

#[test]
fn after_a_rewrite_what_is_new_is_still_to_be_compacted() {
    let mut scene = Scene::new("compactor-rewrites");
    scene.script.rewrites(|request| {
        let (first, rest) = request.messages.split_first()?;
        let shorter = Replacement::new(first.id()).text(Some("[truncated: it said much]".into()));
        let mut entries = vec![Entry::Replace(shorter)];
        entries.extend(rest.iter().map(|message| Entry::Keep(message.id())));
        Some(Compaction::new(entries))
    });
    let (engine, current) = (&mut scene.engine, &mut scene.current);
    let report = (scene.compactor).rewrite(engine, current);
    assert!(report.unwrap().unwrap().is_made());
    assert!(scene.current.new_since_compaction);
    assert_eq!(scene.current.state().compactions, 0);
}
