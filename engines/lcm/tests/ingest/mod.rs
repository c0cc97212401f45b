//! A delivery as most tests make it: without revisions, at a time that is of no interest.
#![allow(missing_docs, unreachable_pub)]

use contexture_engine_api::MessageView;
use contexture_lcm::store::{Delivery, Ingested};
use contexture_lcm::{SessionId, Store, StoreError};

pub trait Ingest {
    fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<Ingested, StoreError>;
}

impl Ingest for Store {
    fn ingest(
        &self,
        session: SessionId,
        messages: &[MessageView<'_>],
        chain: u64,
    ) -> Result<Ingested, StoreError> {
        let delivery = Delivery {
            messages,
            chain,
            revisions: &[],
            now_ms: 0,
        };
        self.deliver(session, &delivery)
    }
}
