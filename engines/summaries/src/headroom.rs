//! Decides when an engine compacts and when it waits.
//!
//! The general rules are those of the interface ([`WindowState::may_compact`], [`roomy`]).
//! [`Headroom`] also remembers the size of the prompt at which a compaction could not make room, so
//! that the engine does not try in vain on every turn. Read [`Headroom::decide`] first, which an
//! engine calls before each turn, and [`Headroom::refuses`], which it calls once it knows what a
//! compaction would leave. [`to_host_tokens`] converts between the two counts of tokens involved.

use contexture_engine_api::{
    CompressOrder, Decision, LogLevel, Services, WindowState, grouped, roomy,
};

/// The share by which the prompt has to grow before another attempt is worthwhile.
const RETRY_GROWTH: f64 = 0.10;

/// The effect of a compaction. All three sizes are tokens in the same count, of either the host or
/// the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The size of the prompt before the compaction, including the system prompt and the tools.
    pub before: u64,
    /// The size of the prompt after the compaction, or an estimate of it.
    pub after: u64,
    /// The size at which a compaction is due. If it is 0, a compaction is always due, and then
    /// nothing has to stay free.
    pub trigger: u64,
}

/// What an engine knows about the room that its compactions can make. Each session has its own. A
/// new one knows nothing and permits everything that the interface permits.
#[derive(Debug, Default)]
pub struct Headroom {
    stopped: Option<Stopped>,
}

#[derive(Debug)]
struct Stopped {
    reason: String,
    retry_at: u64,
}

impl Headroom {
    /// Whether to compact a prompt that has reached its trigger. `after` is the expected size
    /// afterwards, in the tokens of [`WindowState::best_prompt_tokens`]. A prompt that no longer
    /// fits is never held back by an earlier attempt.
    pub fn decide(&self, window: &WindowState, after: u64) -> Decision {
        match self.stopped(window) {
            Some(reason) if window.fits() => Decision::No(reason.to_owned()),
            _ => window.may_compact(after),
        }
    }

    /// Returns the reason not to make a compaction of these sizes: it does not leave a quarter of
    /// the trigger free, or it does not pay yet. `None` if the order is forced, if the window
    /// requires a compaction, or if there is no such reason. A refusal is remembered as by
    /// [`stop`](Self::stop).
    pub fn refuses(&mut self, order: &CompressOrder, sizes: Sizes) -> Option<String> {
        let window = &order.window;
        if order.force || window.requires_compaction() || sizes.trigger == 0 {
            return None;
        }
        let Sizes {
            before,
            after,
            trigger,
        } = sizes;
        let reason = match after > roomy(trigger) {
            true if after >= before => format!(
                "apart from what has to stay, nothing can be made smaller; {}",
                window.until_required()
            ),
            true => format!(
                "what has to stay takes {} of {} tokens, but a compaction may leave no more than {}, a quarter \
                 below its trigger of {}; {}",
                grouped(after),
                grouped(before),
                grouped(roomy(trigger)),
                grouped(trigger),
                window.until_required()
            ),
            false => match window.may_compact(in_providers(after, before, window)) {
                Decision::No(reason) => reason,
                _ => return None,
            },
        };
        self.stop(reason.clone(), window);
        Some(reason)
    }

    /// Records that a compaction of these sizes was applied to the prompt in `window`. If it did
    /// not get below its trigger, the next one waits until the prompt has grown.
    pub fn committed(&mut self, window: &WindowState, sizes: Sizes) {
        self.stopped = None;
        if sizes.after >= sizes.trigger && sizes.trigger > 0 {
            let reason = format!(
                "the last compaction left {} tokens, and its trigger is {}: the next one is tried when the prompt has \
                 grown",
                grouped(sizes.after),
                grouped(sizes.trigger)
            );
            self.stop_at(reason, in_providers(sizes.after, sizes.before, window));
        }
    }

    /// Records that compacting cannot help the prompt in this window, or that it was refused. No
    /// further attempt is made until the prompt has grown by a tenth, unless it no longer fits.
    pub fn stop(&mut self, reason: String, window: &WindowState) {
        self.stop_at(reason, window.best_prompt_tokens());
    }

    /// Records that the host refused a proposal, and logs why. Without this, the engine would make
    /// the same proposal again.
    pub fn refused(
        &mut self,
        compaction: u64,
        reason: &str,
        window: &WindowState,
        services: &Services,
    ) {
        let line = format!("compaction {compaction} was refused: {reason}");
        services.log(LogLevel::Warn, &line);
        self.stop(line, window);
    }

    fn stop_at(&mut self, reason: String, prompt: u64) {
        // At least one token, or an empty prompt would be retried at once.
        let growth = ((prompt as f64 * RETRY_GROWTH).round() as u64).max(1);
        self.stopped = Some(Stopped {
            reason,
            retry_at: prompt.saturating_add(growth),
        });
    }

    /// The reason not to compact the prompt in this window, or `None` if nothing was recorded or
    /// the prompt has grown enough since.
    pub fn stopped(&self, window: &WindowState) -> Option<&str> {
        self.stopped
            .as_ref()
            .filter(|stopped| window.best_prompt_tokens() < stopped.retry_at)
            .map(|stopped| stopped.reason.as_str())
    }

    /// The recorded reason not to compact, whatever the size of the prompt is now. Use it for a
    /// status, not for a decision.
    pub fn reason(&self) -> Option<&str> {
        self.stopped.as_ref().map(|stopped| stopped.reason.as_str())
    }

    /// Forgets the recorded reason. Call it when the window or the conversation was replaced, since
    /// earlier attempts say nothing about the new one.
    pub fn things_changed(&mut self) {
        self.stopped = None;
    }
}

/// The factor that converts the provider's tokens to the host's. `counted` is the host's count of
/// the prompt in `window`, and the provider's count of the same prompt is the correct one. The
/// factor is kept between 0.5 and 2, and is 1 if the window reports no size.
pub fn to_host_tokens(counted: u64, window: &WindowState) -> f64 {
    match window.best_prompt_tokens() {
        0 => 1.0,
        best => (counted as f64 / best as f64).clamp(0.5, 2.0),
    }
}

/// Converts tokens to the provider's count. `before` is the size of the prompt in `window`, in the
/// same unit as `tokens`.
fn in_providers(tokens: u64, before: u64, window: &WindowState) -> u64 {
    let scale = window.best_prompt_tokens() as f64 / before.max(1) as f64;
    (tokens as f64 * scale) as u64
}

#[cfg(test)]
mod tests;
