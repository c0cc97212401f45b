//! The lazy DFA of an expression, and the meter of what its searches cost.

use std::ops::Range;

use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{NFA, State, WhichCaptures};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, MatchKind};
use regex_syntax::hir::Hir;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{PatternError, Stop};

/// How many bytes are read between two looks whether the search is cancelled.
const LOOK_BYTES: usize = 1 << 16;

/// How much work is done between two looks.
const LOOK_WORK: u64 = 50_000;

/// The work that any search may do, and how much more for each byte of text. A piece of work is a state of the NFA that is
/// visited to compute a transition of the DFA, which takes some nanoseconds.
const WORK: u64 = 2_000_000;
const WORK_A_BYTE: u64 = 10;

/// The work of a transition, whatever the size of its state.
const STEP_WORK: usize = 32;

/// The largest NFA, and the largest cache of a DFA, in bytes.
const NFA_BYTES: usize = 1 << 23;
const CACHE_BYTES: usize = 1 << 23;

/// Which way a text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the start of a match to its end: of all matches from the leftmost start, the preferred one.
    Forward,
    /// From the end of a match to its start: the longest one.
    Backward,
}

/// What the searches of an expression did, and what they may do.
#[derive(Debug)]
pub(crate) struct Meter {
    work: u64,
    allowed: u64,
    next_look: u64,
    /// The bytes that were read.
    pub(crate) read: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            work: 0,
            allowed: WORK,
            next_look: LOOK_WORK,
            read: 0,
        }
    }
}

impl Meter {
    /// Allows what a text of so many bytes may cost.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.allowed = self
            .allowed
            .saturating_add(WORK_A_BYTE.saturating_mul(bytes as u64));
    }

    /// Looks whether the search goes on.
    fn look(&mut self, cancelled: &dyn Fn() -> bool) -> Result<(), Stop> {
        self.next_look = self.work + LOOK_WORK;
        match cancelled() {
            true => Err(Stop::Cancelled),
            false => Ok(()),
        }
    }

    fn spend(&mut self, work: usize, cancelled: &dyn Fn() -> bool) -> Result<(), Stop> {
        self.work += work as u64;
        if self.work > self.allowed {
            return Err(Stop::TooCostly);
        }
        match self.work > self.next_look {
            true => self.look(cancelled),
            false => Ok(()),
        }
    }
}

/// An expression as a DFA that is built while a text is read.
///
/// Most of the time it reads a byte by one look into a table. To compute an entry of the table takes a walk through the NFA,
/// and that is what the [`Meter`] counts.
pub(crate) struct Automaton {
    dfa: DFA,
    cache: Cache,
    /// The size of each state: a byte or two for each state of the NFA in it.
    sizes: FxHashMap<LazyStateID, usize>,
    /// Which transitions were computed of those that the cache does not tell about: the ones from a state with a tag, and
    /// those at the end of a text.
    computed: FxHashSet<(LazyStateID, Option<u8>)>,
    /// The steps through the NFA that lead to no new place in a text: see [`detours`].
    detours: usize,
    /// The most of them after one byte that is read.
    detours_at_once: usize,
}

impl Automaton {
    /// # Errors
    /// It is too large.
    pub(crate) fn new(hir: &Hir, direction: Direction) -> Result<Self, PatternError> {
        let (is_reverse, matches) = match direction {
            Direction::Forward => (false, MatchKind::LeftmostFirst),
            Direction::Backward => (true, MatchKind::All),
        };
        let nfa = NFA::config()
            .reverse(is_reverse)
            .nfa_size_limit(Some(NFA_BYTES))
            .which_captures(WhichCaptures::None);
        let nfa = NFA::compiler().configure(nfa).build_from_hir(hir);
        let nfa = nfa.map_err(|_| PatternError::TooLarge)?;
        let (detours, detours_at_once) = detours(&nfa);
        let dfa = DFA::config()
            .match_kind(matches)
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true);
        let dfa = DFA::builder().configure(dfa).build_from_nfa(nfa);
        let dfa = dfa.map_err(|_| PatternError::TooLarge)?;
        Ok(Self {
            cache: dfa.create_cache(),
            dfa,
            sizes: FxHashMap::default(),
            computed: FxHashSet::default(),
            detours,
            detours_at_once,
        })
    }

    /// The end of the first match after `at`; any match's if `earliest`.
    pub(crate) fn end(
        &mut self,
        text: &[u8],
        at: usize,
        earliest: bool,
        meter: &mut Meter,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Option<usize>, Stop> {
        let from = at;
        let mut state = self.start(at.checked_sub(1).map(|before| text[before]))?;
        let mut last = None;
        let mut at = at;
        while at < text.len() {
            meter.look(cancelled)?;
            let until = text.len().min(at + LOOK_BYTES);
            for (at, byte) in (at..).zip(&text[at..until]) {
                state = self.step(state, *byte, meter, cancelled)?;
                // A match is noticed one byte after its end.
                if state.is_match() {
                    last = Some(at);
                }
                if state.is_dead() || earliest && last.is_some() {
                    meter.read += (at - from) as u64;
                    return Ok(last);
                }
            }
            at = until;
        }
        meter.read += (at - from) as u64;
        let state = self.compute(state, None, meter, cancelled)?;
        Ok(if state.is_match() { Some(at) } else { last })
    }

    /// The start of the longest match that ends where `range` does, and is in it.
    pub(crate) fn begin(
        &mut self,
        text: &[u8],
        range: Range<usize>,
        meter: &mut Meter,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<usize, Stop> {
        let mut state = self.start(text.get(range.end).copied())?;
        let mut first = range.end;
        let mut at = range.end;
        loop {
            if (range.end - at).is_multiple_of(LOOK_BYTES) {
                meter.look(cancelled)?;
            }
            state = match at.checked_sub(1) {
                Some(before) => self.step(state, text[before], meter, cancelled)?,
                None => self.compute(state, None, meter, cancelled)?,
            };
            if state.is_match() {
                first = at;
            }
            if state.is_dead() || at <= range.start {
                break;
            }
            at -= 1;
        }
        meter.read += (range.end - at) as u64;
        Ok(first)
    }

    /// The state to begin with next to this byte.
    fn start(&mut self, beside: Option<u8>) -> Result<LazyStateID, Stop> {
        let start = start::Config::new()
            .anchored(Anchored::Yes)
            .look_behind(beside);
        self.grow(|dfa, cache| dfa.start_state(cache, &start).ok())
    }

    /// Lets the cache grow by a state, and keeps its size.
    fn grow(
        &mut self,
        next: impl FnOnce(&DFA, &mut Cache) -> Option<LazyStateID>,
    ) -> Result<LazyStateID, Stop> {
        let Self { dfa, cache, .. } = self;
        let (used, clears) = (cache.memory_usage(), cache.clear_count());
        // There is no error, for the cache is cleared as often as it is full.
        let state = next(dfa, cache).ok_or(Stop::TooCostly)?;
        if cache.clear_count() != clears {
            // The numbers of the states now mean others.
            self.sizes.clear();
            self.computed.clear();
        }
        let row = size_of::<LazyStateID>() << dfa.byte_classes().stride2();
        let grown = cache.memory_usage().saturating_sub(used);
        if grown > row {
            self.sizes.insert(state, grown - row);
        }
        Ok(state)
    }

    #[inline(always)]
    fn step(
        &mut self,
        state: LazyStateID,
        byte: u8,
        meter: &mut Meter,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<LazyStateID, Stop> {
        if !state.is_tagged() {
            let next = self.dfa.next_state_untagged(&self.cache, state, byte);
            if !next.is_unknown() {
                return Ok(next);
            }
        }
        self.compute(state, Some(byte), meter, cancelled)
    }

    /// Where a byte leads, or the end of the text.
    #[inline(never)]
    fn compute(
        &mut self,
        state: LazyStateID,
        byte: Option<u8>,
        meter: &mut Meter,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<LazyStateID, Stop> {
        let class = byte.map(|byte| self.dfa.byte_classes().get(byte));
        let is_told = !state.is_tagged() && byte.is_some();
        let is_new = is_told || self.computed.insert((state, class));
        let size = self.size(state);
        let next = self.grow(|dfa, cache| match byte {
            Some(byte) => dfa.next_state(cache, state, byte).ok(),
            None => dfa.next_eoi_state(cache, state).ok(),
        })?;
        if is_new {
            let detours = size.saturating_mul(self.detours_at_once);
            let work = STEP_WORK + size + self.size(next) + self.detours.min(detours);
            meter.spend(work, cancelled)?;
        }
        Ok(next)
    }

    fn size(&self, state: LazyStateID) -> usize {
        self.sizes.get(&state).copied().unwrap_or_default()
    }
}

/// The states to go on at without reading.
fn branches(state: &State) -> impl Iterator<Item = StateID> {
    let (many, two): (&[StateID], _) = match state {
        State::Union { alternates } => (alternates, None),
        State::BinaryUnion { alt1, alt2 } => (&[], Some([*alt1, *alt2])),
        State::Look { next, .. } => (&[], Some([*next, *next])),
        _ => (&[], None),
    };
    many.iter().copied().chain(two.into_iter().flatten())
}

/// The branches of an NFA that do not lead to a state of their own that reads, in all and after any one byte; the others
/// are as many as the states that they lead to. Without bound if they are more than 100 after one byte.
fn detours(nfa: &NFA) -> (usize, usize) {
    let states = nfa.states();
    let reads = |state: StateID| branches(nfa.state(state)).next().is_none();
    let mut is_seen = vec![false; states.len()];
    let mut is_detour = |to: &StateID| {
        let is_new = !std::mem::replace(&mut is_seen[to.as_usize()], true);
        !(is_new && reads(*to))
    };
    let all = states.iter().flat_map(branches);
    let all = all.filter(|to| is_detour(to)).count();
    let mut most = 0;
    let mut seen_from = vec![usize::MAX; states.len()];
    let mut stack = Vec::new();
    for (from, state) in states.iter().enumerate() {
        let mut count = 0;
        stack.extend(branches(state));
        while let Some(to) = stack.pop() {
            let is_new = std::mem::replace(&mut seen_from[to.as_usize()], from) != from;
            count += usize::from(!(is_new && reads(to)));
            if count > 100 {
                return (all, usize::MAX);
            }
            if is_new {
                stack.extend(branches(nfa.state(to)));
            }
        }
        most = most.max(count);
    }
    (all, most)
}
