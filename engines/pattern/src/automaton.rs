//! The lazy DFA of an expression, and the meter for the cost of its searches.
//!
//! [`Automaton`] wraps the lazy DFA of `regex-automata` and steps through it byte by byte, so that
//! work can be counted and a search can be cancelled between two bytes. [`Automaton::end`] finds
//! the end of a match, and [`Automaton::begin`] its start. [`Meter`] counts the work of all
//! searches and stops one that exceeds its allowance. Only transitions that have to be computed
//! count as work, since reading a byte through the cache takes almost no time.

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

/// The number of bytes that are read between two calls of the cancel function.
const LOOK_BYTES: usize = 1 << 16;

/// The amount of work that is done between two calls of the cancel function.
const LOOK_WORK: u64 = 50_000;

/// The work that any search may do, and the work allowed in addition for each byte of text. One
/// unit is a state of the NFA that is visited to compute a transition of the DFA, which takes a few
/// nanoseconds.
const WORK: u64 = 2_000_000;
const WORK_A_BYTE: u64 = 10;

/// The work of computing a transition, whatever the size of its state.
const STEP_WORK: usize = 32;

/// The largest NFA and the largest cache of a DFA, in bytes.
const NFA_BYTES: usize = 1 << 23;
const CACHE_BYTES: usize = 1 << 23;

/// The direction in which a text is read. It also decides which of several matches is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the start of a match to its end. Of all matches with the leftmost start, the preferred
    /// one is found.
    Forward,
    /// From the end of a match to its start. The longest match is found.
    Backward,
}

/// What the searches of an expression have done, and what they may do.
#[derive(Debug)]
pub(crate) struct Meter {
    work: u64,
    allowed: u64,
    next_look: u64,
    /// The number of bytes that were read so far, by all searches.
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
    /// Adds the work that a text of this many bytes may cost.
    pub(crate) fn allow(&mut self, bytes: usize) {
        self.allowed = self
            .allowed
            .saturating_add(WORK_A_BYTE.saturating_mul(bytes as u64));
    }

    /// Calls the cancel function, and schedules the next call.
    fn look(&mut self, cancelled: &dyn Fn() -> bool) -> Result<(), Stop> {
        self.next_look = self.work + LOOK_WORK;
        match cancelled() {
            true => Err(Stop::Cancelled),
            false => Ok(()),
        }
    }

    /// Adds work that was done. Fails if it exceeds the allowance, or if the search is cancelled.
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
/// Most of the time, reading a byte is one look-up in a table. Computing a missing entry of the
/// table requires a walk through the NFA, and that is what the [`Meter`] counts.
pub(crate) struct Automaton {
    dfa: DFA,
    cache: Cache,
    /// The size of each state: one or two bytes for each state of the NFA in it.
    sizes: FxHashMap<LazyStateID, usize>,
    /// The transitions that were computed and that the cache does not report: those from a tagged
    /// state, and those at the end of a text.
    computed: FxHashSet<(LazyStateID, Option<u8>)>,
    /// The number of branches in the NFA that do not lead to a new reading state. See [`detours`].
    detours: usize,
    /// The largest number of them after any one byte.
    detours_at_once: usize,
}

impl Automaton {
    /// Compiles an expression for one direction.
    ///
    /// # Errors
    /// [`PatternError::TooLarge`] if the NFA or the DFA exceeds its limit of memory.
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

    /// Returns the end of the first match that starts at or after `at`. If `earliest` is true,
    /// returns the end of any match as soon as one is known.
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
                // The DFA reports a match one byte after its end.
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

    /// Returns the start of the longest match that ends at the end of `range` and begins inside it.
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
            // At the end of the range this looks at once, so that even a short search can be
            // cancelled.
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

    /// Returns the state in which a search begins next to this byte. The byte decides about word
    /// boundaries and line starts.
    fn start(&mut self, beside: Option<u8>) -> Result<LazyStateID, Stop> {
        let start = start::Config::new()
            .anchored(Anchored::Yes)
            .look_behind(beside);
        self.grow(|dfa, cache| dfa.start_state(cache, &start).ok())
    }

    /// Lets the cache grow by one state, and records the size of that state.
    fn grow(
        &mut self,
        next: impl FnOnce(&DFA, &mut Cache) -> Option<LazyStateID>,
    ) -> Result<LazyStateID, Stop> {
        let Self { dfa, cache, .. } = self;
        let (used, clears) = (cache.memory_usage(), cache.clear_count());
        // There is no error, because the cache is cleared whenever it is full.
        let state = next(dfa, cache).ok_or(Stop::TooCostly)?;
        if cache.clear_count() != clears {
            // After clearing, the same numbers stand for other states.
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

    // This is the inner loop of every search, so the common case must be a single look-up.
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

    /// Computes the state that a byte leads to, or the end of the text if there is no byte. Counts
    /// the work if the transition is new.
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
        // `step` takes a known transition from the cache, so one that arrives here is new. The
        // cache does not report those from tagged states and at the end of a text, so `computed`
        // remembers them.
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

/// Returns the states that are reached from this one without reading a byte.
fn branches(state: &State) -> impl Iterator<Item = StateID> {
    let (many, two): (&[StateID], _) = match state {
        State::Union { alternates } => (alternates, None),
        State::BinaryUnion { alt1, alt2 } => (&[], Some([*alt1, *alt2])),
        State::Look { next, .. } => (&[], Some([*next, *next])),
        _ => (&[], None),
    };
    many.iter().copied().chain(two.into_iter().flatten())
}

/// Counts the branches of an NFA that do not lead to a reading state of their own, in total and at
/// most after any one byte. The other branches are as many as the states they lead to, so they are
/// covered by the size of a state. The second number is unbounded if more than 100 follow one byte.
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
            // Counting further would take quadratic time for large alternations.
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
