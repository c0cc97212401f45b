//! A store over the transcript of a host that records what is delivered, and deliveries as most tests make them: without
//! revisions, at a time that is of no interest.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use contexture_engine_api::{Cut, Delivery, MessageId, MessageView};
use contexture_lcm::store::{Ingested, Source};
use contexture_lcm::{SessionId, Store, StoreError, StoreSettings};
use contexture_testkit::ScriptedHost;

/// The hosts of the stores, by the directories of these.
static HOSTS: Mutex<BTreeMap<PathBuf, Arc<ScriptedHost>>> = Mutex::new(BTreeMap::new());

/// The host of the store in a directory.
pub fn host_of(directory: &Path) -> Arc<ScriptedHost> {
    let mut hosts = HOSTS.lock().unwrap();
    let host = hosts.entry(directory.to_owned());
    Arc::clone(host.or_insert_with(ScriptedHost::without_model))
}

/// Opens the store in a directory, over the transcripts of its host.
pub fn open(directory: &Path, settings: StoreSettings) -> Result<Store, StoreError> {
    let store = Store::open(directory, settings)?;
    let services = host_of(directory).services();
    // Each session is read by its name.
    Ok(store.over(Source::new("", services, false)))
}

pub trait Ingest {
    /// Records a delivery in the host's transcript, and delivers it.
    fn tell(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
    ) -> Result<Ingested, StoreError>;

    fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
    ) -> Result<Ingested, StoreError> {
        self.tell(session, &Delivery::new(messages), 0)
    }

    fn cut(&self, session: SessionId, last: Option<MessageId>) -> Result<Ingested, StoreError> {
        let cut = Cut::after(last);
        self.tell(session, &Delivery::new(&[]).after(Some(cut)), 0)
    }
}

impl Ingest for Store {
    fn tell(
        &self,
        session: SessionId,
        delivery: &Delivery<'_>,
        now_ms: i64,
    ) -> Result<Ingested, StoreError> {
        // As a host does it: the index is built from the transcript, in the background.
        let name = self.session_info(session)?.name;
        host_of(self.path().parent().unwrap()).record_in(&name, delivery);
        self.deliver(session, delivery, now_ms)
    }
}
