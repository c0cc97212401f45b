//! The text of a summary.

use contexture_engine_api::{CompressOrder, EngineError};
use contexture_summaries::{Assignment, Written, marked, units};

use super::Compressor;
use crate::covered::Covered;
use crate::headings::HEADINGS;

impl Compressor {
    /// The summary's text: the model's where it can be had, else the digest.
    pub(super) fn write(
        &mut self,
        covered: &Covered<'_, '_>,
        tokens: u64,
        order: &CompressOrder,
    ) -> Result<Written, EngineError> {
        // From the originals, before anything of them is cleared or cut.
        let assignment = Assignment {
            messages: &covered.messages,
            readings: &self.readings,
            headings: &HEADINGS,
            previous: covered.previous.as_deref(),
            task: covered.task,
            tokens: tokens.saturating_sub(self.services.count_tokens(&marked(""))),
            order,
            staged: self.staged.as_ref(),
        };
        let material = || units(&covered.notes(&self.log));
        assignment.write(material, &mut self.cool_downs, &self.services)
    }
}
