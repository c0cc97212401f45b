//! What the tests of the history share: a machine with logs of agents, and imports into a history.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use contexture_history::{Found, History, Hit, ImportReport, Importer, Kind, Places, Query};
use tempfile::TempDir;

/// A user's home directory, with a home of Contexture in it.
pub(crate) struct Machine(TempDir);

impl Machine {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path(".contexture")
    }

    pub(crate) fn put(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Adds text at the end of a file.
    pub(crate) fn append(&self, name: &str, text: &str) {
        use std::io::Write;
        let mut file = std::fs::File::options()
            .append(true)
            .open(self.path(name))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Imports what agents have in their usual places.
    pub(crate) fn import(&self) -> ImportReport {
        self.import_with(false, &[])
    }

    pub(crate) fn import_named(&self, named: &Path) -> ImportReport {
        self.import_with(false, &[named.to_owned()])
    }

    pub(crate) fn import_with(&self, redacts: bool, named: &[PathBuf]) -> ImportReport {
        let places = Places::new(self.0.path(), &|_| None);
        let mut importer = Importer::open(&self.home(), redacts).unwrap();
        importer.run(&places, named, &mut |_| true).unwrap()
    }

    pub(crate) fn history(&self) -> History {
        History::open(&self.home()).unwrap().unwrap()
    }

    pub(crate) fn search(&self, words: &str) -> Found {
        self.history().search(&Query::new(words)).unwrap()
    }

    /// The only hit of a search.
    #[track_caller]
    pub(crate) fn only(&self, words: &str) -> Hit {
        let found = self.search(words);
        assert!(found.has_all_words, "`{words}` is not found");
        assert_eq!(found.matches, 1, "`{words}`: {:#?}", found.hits);
        found.hits.into_iter().next().unwrap()
    }

    /// Checks that each word is found once, in a message of this kind, agent and project, and that
    /// the call has its result beside it.
    #[track_caller]
    pub(crate) fn holds(&self, agent: &str, project: Option<&str>, words: &[(&str, Kind)]) {
        for (word, kind) in words {
            let hit = self.only(word);
            let message = &hit.message;
            assert_eq!(message.kind, *kind, "`{word}`: {message:#?}");
            assert_eq!(message.agent, agent, "`{word}`");
            assert_eq!(message.project.as_deref(), project, "`{word}`");
            assert!(
                !hit.matches.is_empty(),
                "`{word}` is not marked in `{}`",
                hit.snippet
            );
        }
    }

    /// Checks that a call and its result are shown together, without any neighbours.
    #[track_caller]
    pub(crate) fn pairs(&self, call: &str, result: &str) {
        let (call, result) = (self.only(call).message, self.only(result).message);
        for asked in [&call, &result] {
            let excerpt = self.history().read(&asked.id, 0).unwrap().unwrap();
            let ids: Vec<_> = excerpt.messages.iter().map(|message| &message.id).collect();
            assert_eq!(ids, [&call.id, &result.id]);
            assert_eq!(&excerpt.messages[excerpt.at].id, &asked.id);
        }
    }
}
