//! The provider's prompt cache, and the bill.
//!
//! Anthropic: <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>. A prefix is written at each
//! breakpoint, and found again at a breakpoint or up to 20 blocks before it. Reads cost 10 % of the base price, writes
//! 125 % (five minutes) or 200 % (an hour). Less than the model's smallest cacheable prompt is neither.
//! OpenAI: <https://platform.openai.com/docs/guides/prompt-caching>. Every prefix from 1024 tokens on, in steps of 128.
//! Gemini's implicit cache is taken to be the same: <https://ai.google.dev/gemini-api/docs/caching>.

use std::collections::HashMap;
use std::time::Duration;

use crate::answer::Usage;
use crate::models;
use crate::prompt::{Block, Ttl};
use crate::request::{Api, Request};

/// "The system checks … working backwards … at most 20 blocks before each explicit breakpoint."
const LOOK_BACK: usize = 20;
/// OpenAI's automatic cache: how long a prefix is kept.
const AUTOMATIC: Duration = Duration::from_secs(600);

/// What all answers cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bill {
    /// The sum, by the list prices of the models that were asked.
    pub dollars: f64,
    /// What the same tokens would have cost without any cache.
    pub dollars_uncached: f64,
    /// The tokens, summed up.
    pub usage: Usage,
    /// How many answers are in it.
    pub answers: u64,
}

#[derive(Default)]
pub(crate) struct Cache {
    /// When a prefix runs out, and how long it lives from its last use.
    kept: HashMap<[u8; 32], (Duration, Duration)>,
    /// How many entries there may be before those that ran out are thrown away.
    sweep_at: usize,
    pub(crate) bill: Bill,
}

impl Cache {
    /// What a prompt reads and writes at this time. The output is not in it.
    pub(crate) fn charge(&mut self, request: &Request, blocks: &[Block], now: Duration) -> Usage {
        if self.kept.len() > self.sweep_at {
            self.kept.retain(|_, (until, _)| *until > now);
            self.sweep_at = 1000 + self.kept.len() * 2;
        }
        let total = blocks.last().map_or(0, |block| block.tokens);
        let smallest = models::smallest_cacheable(request.model());
        if request.api != Api::Messages {
            return self.automatic(blocks, now, total);
        }
        let breakpoints: Vec<usize> = (0..blocks.len())
            .filter(|at| blocks[*at].marker.is_some() && blocks[*at].tokens >= smallest)
            .collect();
        let found = |breakpoint: &usize| {
            let from = (breakpoint + 1).saturating_sub(LOOK_BACK);
            (from..=*breakpoint)
                .rev()
                .find(|at| self.has(&blocks[*at], now))
        };
        let hit = breakpoints.iter().filter_map(found).max();
        let read = hit.map_or(0, |at| blocks[at].tokens);
        let mut usage = Usage {
            cache_read: read,
            ..Usage::default()
        };
        // "Mixing different TTLs": what lies before the last marker of an hour is written for an hour, the rest up to
        // the last marker for five minutes.
        let mut written = read;
        for ttl in [Ttl::Hour, Ttl::FiveMinutes] {
            let ends = breakpoints
                .iter()
                .rfind(|at| blocks[**at].marker == Some(ttl));
            let until = ends.map_or(0, |at| blocks[*at].tokens);
            let new = until.saturating_sub(written);
            written += new;
            match ttl {
                Ttl::Hour => usage.cache_write_1h = new,
                Ttl::FiveMinutes => usage.cache_write_5m = new,
            }
        }
        usage.input = total - written;
        // What is used lives on.
        for block in hit.map_or(&[][..], |at| &blocks[..=at]) {
            if let Some((until, lives)) = self.kept.get_mut(&block.prefix)
                && *until > now
            {
                *until = now + *lives;
            }
        }
        for at in breakpoints {
            let lives = match blocks[at].marker {
                Some(Ttl::Hour) => Duration::from_secs(3600),
                _ => Duration::from_secs(300),
            };
            let entry = self.kept.entry(blocks[at].prefix).or_default();
            // One that ran out is a new one.
            let before = if entry.0 > now {
                *entry
            } else {
                Default::default()
            };
            *entry = (before.0.max(now + lives), before.1.max(lives));
        }
        usage
    }

    fn has(&self, block: &Block, now: Duration) -> bool {
        self.kept
            .get(&block.prefix)
            .is_some_and(|(until, _)| *until > now)
    }

    fn automatic(&mut self, blocks: &[Block], now: Duration, total: u64) -> Usage {
        let hit = blocks.iter().rfind(|block| self.has(block, now));
        // The last token is always processed.
        let read = hit.map_or(0, |block| {
            block.tokens.min(total.saturating_sub(1)) / 128 * 128
        });
        let read = if read >= 1024 { read } else { 0 };
        for block in blocks {
            self.kept.insert(block.prefix, (now + AUTOMATIC, AUTOMATIC));
        }
        Usage {
            cache_read: read,
            input: total - read,
            ..Usage::default()
        }
    }

    /// Puts an answer on the bill.
    pub(crate) fn bill(&mut self, model: &str, usage: Usage) {
        let price = models::price(model);
        let read_and_written = usage.cache_read as f64 * 0.1
            + usage.cache_write_5m as f64 * 1.25
            + usage.cache_write_1h as f64 * 2.0;
        let output = usage.output as f64 * price.output;
        self.bill.dollars += ((usage.input as f64 + read_and_written) * price.input + output) / 1e6;
        self.bill.dollars_uncached += (usage.prompt() as f64 * price.input + output) / 1e6;
        self.bill.answers += 1;
        let sum = &mut self.bill.usage;
        sum.input += usage.input;
        sum.cache_read += usage.cache_read;
        sum.cache_write_5m += usage.cache_write_5m;
        sum.cache_write_1h += usage.cache_write_1h;
        sum.output += usage.output;
    }
}
