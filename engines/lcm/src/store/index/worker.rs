//! The background thread that indexes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::build::catch_up;
use super::chunks::sweep;
use crate::store::{Database, SessionId};

/// The thread; dropping this ends and joins it.
pub(crate) struct IndexWorker {
    sender: Option<Sender<SessionId>>,
    thread: Option<JoinHandle<()>>,
}

impl IndexWorker {
    pub(crate) fn start(database: Arc<Database>) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("lcm-index".into())
            .spawn(move || run(&database, &receiver))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
        })
    }

    /// Tells the thread that a batch of this session is to be indexed.
    pub(crate) fn wake(&self, session: SessionId) {
        if let Some(sender) = &self.sender {
            // Without the thread the messages are scanned, which is slower, not wrong.
            let _ = sender.send(session);
        }
    }
}

impl Drop for IndexWorker {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(database: &Database, receiver: &Receiver<SessionId>) {
    let checkpointer = database.open_checkpointer();
    let checkpoint = || {
        if let Ok(connection) = &checkpointer {
            // The next checkpoint makes up for a failed one, or the writer does once the log is long.
            let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        }
    };
    let mut is_swept = false;
    while let Ok(session) = receiver.recv() {
        if !is_swept {
            is_swept = sweep(database).is_ok();
        }
        // Several deliveries may have requested the same while the last batch was indexed.
        let mut sessions = vec![session];
        sessions.extend(receiver.try_iter());
        sessions.sort_unstable();
        sessions.dedup();
        for session in sessions {
            // A failure (a full disk, a lock) is retried with the next batch; search scans until then.
            let _ = catch_up(database, session, || {
                checkpoint();
                Ok(())
            });
        }
        checkpoint();
    }
}
