//! A delivery as most tests make it: without revisions, at a time that is of no interest.
#![allow(missing_docs, unreachable_pub, dead_code)]

use contexture_engine_api::{Cut, Delivery, MessageId, MessageView};
use contexture_lcm::store::Ingested;
use contexture_lcm::{SessionId, Store, StoreError};

pub trait Ingest {
    fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<Ingested, StoreError>;

    fn cut(&self, session: SessionId, last: Option<MessageId>) -> Result<Ingested, StoreError>;
}

impl Ingest for Store {
    fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<Ingested, StoreError> {
        self.deliver(session, &Delivery::new(messages, chain), 0)
    }

    fn cut(&self, session: SessionId, last: Option<MessageId>) -> Result<Ingested, StoreError> {
        self.deliver(
            session,
            &Delivery::new(&[], 0).after(Some(Cut::after(last))),
            0,
        )
    }
}
