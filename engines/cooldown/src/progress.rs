//! Whether compacting helps. Two compactions in a row that did not help stop it, so that no
//! conversation is compacted on every turn for nothing.

use contexture_engine_api::grouped;

/// A compaction that saves less than this share of the prompt does not help.
const HELPS_FROM: f64 = 0.10;
/// Unhelpful compactions in a row before it stops.
const TRIES: u32 = 2;
/// Growth of the prompt, as a share of the threshold, after which it is worth another try.
const RETRY_GROWTH: f64 = 0.10;

/// How the compactions of a session went.
#[derive(Debug, Default)]
pub struct Progress {
    unhelpful: u32,
    stopped: Option<Stopped>,
}

#[derive(Debug)]
struct Stopped {
    reason: String,
    /// The prompt's tokens at which it is tried again.
    retry_at: u64,
}

impl Progress {
    /// A compaction took the prompt from `before` to `after` tokens.
    pub fn compacted(&mut self, before: u64, after: u64, threshold: u64) {
        let saved = before.saturating_sub(after);
        if saved as f64 >= before as f64 * HELPS_FROM {
            *self = Self::default();
            return;
        }
        self.unhelpful += 1;
        if self.unhelpful >= TRIES {
            self.stop(
                format!(
                    "the last {} compactions each saved less than 10 % (the last one {} of \
                     {} tokens), so compacting has stopped until the prompt has grown or it is forced",
                    self.unhelpful,
                    grouped(saved),
                    grouped(before)
                ),
                after,
                threshold,
            );
        }
    }

    /// Compacting cannot help a prompt of this size.
    pub fn stop(&mut self, reason: String, prompt_tokens: u64, threshold: u64) {
        let growth = ((threshold as f64 * RETRY_GROWTH).round() as u64).max(1);
        self.stopped = Some(Stopped {
            reason,
            retry_at: prompt_tokens.saturating_add(growth),
        });
    }

    /// Why not to compact a prompt of this size, where there is a reason.
    pub fn stopped(&self, prompt_tokens: u64) -> Option<&str> {
        self.stopped
            .as_ref()
            .filter(|stopped| prompt_tokens < stopped.retry_at)
            .map(|stopped| stopped.reason.as_str())
    }

    /// Whether it stopped at some size of the prompt.
    pub fn reason(&self) -> Option<&str> {
        self.stopped.as_ref().map(|stopped| stopped.reason.as_str())
    }

    /// The window or the conversation is another one now.
    pub fn things_changed(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_unhelpful_compactions_stop_it_until_the_prompt_has_grown() {
        let mut progress = Progress::default();
        progress.compacted(100_000, 95_000, 90_000);
        assert_eq!(progress.stopped(100_000), None);
        progress.compacted(100_000, 95_000, 90_000);
        assert!(
            progress
                .stopped(100_000)
                .is_some_and(|reason| reason.contains("5,000 of 100,000"))
        );
        assert_eq!(progress.stopped(104_000), None);
    }

    #[test]
    fn a_helpful_one_starts_the_count_anew() {
        let mut progress = Progress::default();
        progress.compacted(100, 95, 50);
        progress.compacted(100, 90, 50);
        progress.compacted(100, 95, 50);
        assert_eq!(progress.stopped(100), None);
        progress.compacted(100, 95, 50);
        assert!(progress.stopped(99).is_some());
        progress.things_changed();
        assert_eq!(progress.stopped(99), None);
    }
}
