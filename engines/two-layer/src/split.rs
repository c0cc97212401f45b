//! Decides what Layer 2 summarises: everything before the recent turns.
//!
//! [`Split::of`] first finds the cut before the recent turns. Then it takes out what has to stay
//! before the cut, namely the user's last message and important older messages if there is room for
//! them. The rest is one summary, or a chain of them if each turn gets its own. The result lists
//! only positions. The texts are written by `engine::summarising`, and the engine decides how much
//! room the recent turns may take.

use std::ops::Range;

use contexture_engine_api::MessageKind;

use crate::outline::Outline;
use crate::settings::Settings;

/// The share of the threshold that important older messages may take, if the recent turns leave
/// that much.
const IMPORTANT_SHARE: f64 = 0.25;
/// The share of the threshold that a chain of summaries may take before its older half is
/// summarised into one.
const CHAIN_SHARE: f64 = 0.25;
/// A turn of fewer tokens than this shares its summary with the next one.
const MIN_LINK: u64 = 400;
/// The largest number of turns that are summarised separately in one compaction. Older turns share
/// one summary.
const LINKS_AT_ONCE: usize = 8;

/// The summaries to write, each as the positions of the messages that it replaces. A summary stands
/// in place of its first message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) summaries: Vec<Vec<usize>>,
}

/// The room for the messages that are kept, in estimated tokens. `recent` is the part of it for the
/// recent turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) threshold: u64,
    pub(crate) recent: f64,
    /// The tokens of the prompt besides the messages, such as the system prompt.
    pub(crate) fixed: u64,
}

impl Split {
    /// Decides what to summarize. The result is empty if there are only recent turns or nothing
    /// new. `tokens` and `importance` have one value for each message.
    pub(crate) fn of(
        outline: &Outline<'_, '_>,
        settings: &Settings,
        room: Room,
        tokens: &[u64],
        importance: Option<&[f64]>,
    ) -> Self {
        let share = |share: f64| (room.threshold as f64 * share) as u64;
        let recent = share(room.recent).saturating_sub(room.fixed);
        let cut = cut(outline, settings, tokens, recent);
        let mut leaves: Vec<bool> = (0..outline.messages.len()).map(|at| at < cut).collect();
        let mut stays = |unit: &Range<usize>| leaves[unit.clone()].fill(false);
        if let Some(question) = outline.question {
            stays(&outline.units[outline.unit_of(question)]);
        }
        if let Some(importance) = importance {
            let least = settings.keep_important.unwrap_or(f64::INFINITY);
            // Important messages get only what the recent turns leave, or the compaction would not
            // make room.
            let left = recent.saturating_sub(tokens[cut..].iter().sum());
            for unit in important(
                outline,
                importance,
                least,
                cut,
                tokens,
                share(IMPORTANT_SHARE).min(left),
            ) {
                stays(&unit);
            }
        }
        let leaving = (0..cut).filter(|at| leaves[*at]);
        let is_summary = |at: usize| outline.messages[at].kind() == MessageKind::Summary;
        let summaries = match settings.per_turn_summaries {
            false => vec![leaving.collect::<Vec<usize>>()],
            true => chain(outline, leaving.collect(), tokens, share(CHAIN_SHARE)),
        };
        let is_new = |covers: &Vec<usize>| match covers.as_slice() {
            [] => false,
            // Summarising a single summary again adds nothing and loses detail.
            [one] => !is_summary(*one),
            _ => true,
        };
        Self {
            summaries: summaries.into_iter().filter(is_new).collect(),
        }
    }
}

/// Returns the position at which the recent turns begin. As many turns as configured are kept if
/// they fit, otherwise fewer. If not even the latest one fits, the newest part of it is kept.
fn cut(outline: &Outline<'_, '_>, settings: &Settings, tokens: &[u64], room: u64) -> usize {
    let from = |at: usize| tokens[at..].iter().sum::<u64>();
    let whole = |at: usize| {
        outline
            .units
            .get(outline.unit_of(at))
            .map_or(at, |unit| unit.start)
    };
    let something_new = |at: usize| {
        let before = &outline.messages[..at];
        before
            .iter()
            .any(|message| message.kind() != MessageKind::Summary)
    };
    let latest = whole(outline.waits_from);
    let turns = outline.turns();
    let recent = turns.iter().rev().take(settings.keep_recent_turns.max(1));
    // From the most turns to the fewest, so the search below starts at the other end and keeps the
    // most that fit.
    let recent: Vec<usize> = recent.map(|at| whole(*at).min(latest)).collect();
    let fits = recent
        .iter()
        .rev()
        .find(|at| something_new(**at) && from(**at) <= room);
    if let Some(at) = fits {
        return *at;
    }
    let mut cut = outline.messages.len();
    for unit in outline.units.iter().rev() {
        // Calls in flight have to stay, whatever they take.
        let is_needed = cut > latest || cut == outline.messages.len();
        if !is_needed && from(unit.start) > room {
            break;
        }
        cut = unit.start;
    }
    cut
}

/// Returns the units before the cut whose importance is at least `least`, the most important first,
/// as far as they fit into `room` tokens. Summaries do not count as important.
fn important(
    outline: &Outline<'_, '_>,
    importance: &[f64],
    least: f64,
    cut: usize,
    tokens: &[u64],
    room: u64,
) -> Vec<Range<usize>> {
    let is_said = |at: usize| {
        matches!(
            outline.messages[at].kind(),
            MessageKind::Original | MessageKind::Replaced
        )
    };
    let score = |unit: &Range<usize>| {
        let said = unit.clone().filter(|at| is_said(*at));
        said.map(|at| importance[at]).fold(0.0, f64::max)
    };
    let before = outline.units.iter().filter(|unit| unit.end <= cut);
    let mut units: Vec<(f64, &Range<usize>)> = before
        .map(|unit| (score(unit), unit))
        .filter(|(score, _)| *score >= least)
        .collect();
    units.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.start.cmp(&a.1.start)));
    let mut used = 0;
    let fits = units.into_iter().filter(|(_, unit)| {
        let size: u64 = tokens[(*unit).clone()].iter().sum();
        let fits = used + size <= room;
        used += if fits { size } else { 0 };
        fits
    });
    fits.map(|(_, unit)| unit.clone()).collect()
}

/// Returns the messages of each new summary, one for each turn. Earlier summaries stay in the
/// window until they take more than `room` tokens. Then the older half of them is summarised into
/// one.
fn chain(
    outline: &Outline<'_, '_>,
    leaving: Vec<usize>,
    tokens: &[u64],
    room: u64,
) -> Vec<Vec<usize>> {
    let turns = outline.turns();
    let is_summary = |at: &usize| outline.messages[*at].kind() == MessageKind::Summary;
    let (links, said): (Vec<usize>, Vec<usize>) = leaving.into_iter().partition(is_summary);
    let mut chain: Vec<Vec<usize>> = Vec::new();
    let mut turn = None;
    for at in said {
        let own = turns.partition_point(|begin| *begin <= at);
        let is_short = |link: &[usize]| link.iter().map(|at| tokens[*at]).sum::<u64>() < MIN_LINK;
        match chain.last_mut() {
            Some(link) if turn == Some(own) || is_short(link) => link.push(at),
            _ => chain.push(vec![at]),
        }
        turn = Some(own);
    }
    let many = chain.len().saturating_sub(LINKS_AT_ONCE);
    if many > 0 {
        let oldest: Vec<usize> = chain.drain(..=many).flatten().collect();
        chain.insert(0, oldest);
    }
    let size: u64 = links.iter().map(|at| tokens[*at]).sum();
    if size > room && links.len() > 1 {
        chain.insert(0, links[..links.len().div_ceil(2)].to_vec());
    }
    chain
}
