//! What Layer 2 summarises: everything before the recent turns.

use std::ops::Range;

use contexture_engine_api::MessageKind;

use crate::outline::Outline;
use crate::settings::Settings;

/// The share of the threshold that important older messages may take, if the recent turns leave it.
const IMPORTANT_SHARE: f64 = 0.25;
/// The share of it that a chain of summaries may take before its older half becomes one.
const CHAIN_SHARE: f64 = 0.25;
/// A turn of fewer tokens shares its summary with the next one.
const MIN_LINK: u64 = 400;
/// The most summaries of turns that are made at once; what is older shares one.
const LINKS_AT_ONCE: usize = 8;

/// What is summarised: the messages of each summary, which stands where its first one stood.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) summaries: Vec<Vec<usize>>,
}

/// The room for what is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// How many tokens the conversation should have at most.
    pub(crate) threshold: u64,
    /// The share of the threshold that recent turns may take.
    pub(crate) recent: f64,
    /// The tokens besides the messages.
    pub(crate) fixed: u64,
}

impl Split {
    /// What to summarize; `None` if there are only recent turns. `tokens` and `importance` have one value for each
    /// message.
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
            // A summary of one summary says nothing new.
            [one] => !is_summary(*one),
            _ => true,
        };
        Self {
            summaries: summaries.into_iter().filter(is_new).collect(),
        }
    }
}

/// Where the recent turns begin: as many as are configured where they fit, else fewer, else the newest part of the
/// running one.
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
    // From the most turns to the least.
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
        let is_needed = cut > latest || cut == outline.messages.len();
        if !is_needed && from(unit.start) > room {
            break;
        }
        cut = unit.start;
    }
    cut
}

/// Units before the cut whose messages are important, the most important first, as far as there is room.
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

/// A summary for each turn; earlier summaries stay, until they take too much room: then the older half becomes one.
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
