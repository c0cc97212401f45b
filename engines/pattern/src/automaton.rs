//! The deterministic form of a program, built state by state while a text is read, and cached.
//!
//! A state is the list of nodes at which the program may go on, the preferred ones first, together with what a look-around
//! may ask of the character before. Branches and look-arounds are followed when the next symbol is known, so that both
//! sides are. A match is therefore noticed one symbol after its end, and at the end of a text by the symbol of its edge.

use std::sync::Arc;

use regex_syntax::hir::Look;
use rustc_hash::FxHashMap;

use crate::Stop;
use crate::alphabet::{Lettered, Symbol, kind};
use crate::compile::{Node, NodeId};

/// How many bytes are read between two looks whether the search is cancelled.
pub(crate) const LOOK_BYTES: usize = 1 << 16;

/// How much work is done between two looks.
const LOOK_WORK: u64 = 50_000;

/// The work that any search may do, and how much more for each byte of text. A piece of work is a node that is visited,
/// which takes some nanoseconds.
const WORK: u64 = 3_000_000;
const WORK_A_BYTE: u64 = 6;

/// What a cache holds at most: entries of its table, and nodes in its states.
const CACHE_ENTRIES: usize = 1 << 21;
const CACHE_NODES: usize = 1 << 21;

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
    pub(crate) fn look(&mut self, cancelled: &dyn Fn() -> bool) -> Result<(), Stop> {
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

type StateId = u32;

/// The state without nodes.
const DEAD: StateId = 0;
/// A bit of a table entry: the expression matches before the symbol.
const MATCH: u32 = 1 << 31;
/// A table entry that was not computed.
const UNKNOWN: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    nodes: Box<[NodeId]>,
    /// What a look-around may ask of the character before.
    before: u8,
}

/// A program and the states that were built of it.
#[derive(Debug)]
pub(crate) struct Automaton {
    program: Lettered,
    direction: Direction,
    kinds: Arc<[u8]>,
    states: Vec<State>,
    /// For each state, where each symbol leads.
    table: Vec<u32>,
    known: FxHashMap<State, StateId>,
    /// How many nodes all states have.
    nodes: usize,
    visited: Marks,
    added: Marks,
    stack: Vec<NodeId>,
    next: Vec<NodeId>,
}

/// Which nodes were seen in the current round.
#[derive(Debug)]
struct Marks {
    rounds: Vec<u32>,
    round: u32,
}

impl Marks {
    fn new(count: usize) -> Self {
        Self {
            rounds: vec![0; count],
            round: 0,
        }
    }

    fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.rounds.fill(0);
            self.round = 1;
        }
    }

    /// Whether a node is seen for the first time.
    #[inline]
    fn is_new(&mut self, node: NodeId) -> bool {
        let mark = &mut self.rounds[node as usize];
        std::mem::replace(mark, self.round) != self.round
    }
}

/// A run of an automaton over a text.
pub(crate) struct Run<'a> {
    automaton: &'a mut Automaton,
    state: StateId,
}

/// What a symbol led to.
pub(crate) struct Step {
    /// Whether the expression matches before the symbol.
    pub(crate) is_match: bool,
    /// Whether nothing can match after it.
    pub(crate) is_dead: bool,
}

impl Automaton {
    pub(crate) fn new(program: Lettered, direction: Direction, kinds: Arc<[u8]>) -> Self {
        let count = program.nodes.len();
        let mut automaton = Self {
            program,
            direction,
            kinds,
            states: Vec::new(),
            table: Vec::new(),
            known: FxHashMap::default(),
            nodes: 0,
            visited: Marks::new(count),
            added: Marks::new(count),
            stack: Vec::new(),
            next: Vec::new(),
        };
        automaton.clear();
        automaton
    }

    /// Begins to read at a place beside which such a character is.
    pub(crate) fn run(&mut self, before: u8) -> Run<'_> {
        let state = State {
            nodes: [self.program.start].into(),
            before: before & self.program.asked,
        };
        let state = self.intern(state);
        Run {
            automaton: self,
            state,
        }
    }

    fn clear(&mut self) {
        self.states.clear();
        self.table.clear();
        self.known.clear();
        self.nodes = 0;
        self.intern(State {
            nodes: Box::default(),
            before: 0,
        });
    }

    fn intern(&mut self, state: State) -> StateId {
        if let Some(known) = self.known.get(&state) {
            return *known;
        }
        let stride = self.kinds.len();
        let is_full = self.table.len() + stride > CACHE_ENTRIES
            || self.nodes + state.nodes.len() > CACHE_NODES;
        if is_full && self.states.len() > 1 {
            self.clear();
        }
        let id = self.states.len() as StateId;
        self.nodes += state.nodes.len();
        let fill = if state.nodes.is_empty() {
            DEAD
        } else {
            UNKNOWN
        };
        self.table.resize(self.table.len() + stride, fill);
        self.states.push(state.clone());
        self.known.insert(state, id);
        id
    }

    /// Computes where a symbol leads from a state, and keeps it.
    #[cold]
    #[inline(never)]
    fn compute(
        &mut self,
        from: StateId,
        symbol: Symbol,
        meter: &mut Meter,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<u32, Stop> {
        let Self {
            program,
            direction,
            kinds,
            states,
            visited,
            added,
            stack,
            next,
            ..
        } = self;
        let state = &states[from as usize];
        let after = kinds[usize::from(symbol)];
        let (left, right) = match direction {
            Direction::Forward => (state.before, after),
            Direction::Backward => (after, state.before),
        };
        visited.begin();
        added.begin();
        next.clear();
        let mut is_match = false;
        let mut work = state.nodes.len();
        'nodes: for node in &state.nodes {
            stack.push(*node);
            while let Some(node) = stack.pop() {
                work += 1;
                if !visited.is_new(node) {
                    continue;
                }
                match &program.nodes[node as usize] {
                    Node::Read { class, next: to } => {
                        if program.classes[*class as usize].has(symbol) && added.is_new(*to) {
                            next.push(*to);
                        }
                    }
                    Node::Branch(branches) => stack.extend(branches.iter().rev()),
                    Node::Look { look, next } => {
                        if holds(*look, left, right) {
                            stack.push(*next);
                        }
                    }
                    Node::Match => {
                        is_match = true;
                        if *direction == Direction::Forward {
                            // What is less preferred does not count any more.
                            stack.clear();
                            break 'nodes;
                        }
                    }
                }
            }
        }
        // A new state is hashed, copied, and has a row in the table.
        work += 16 + 2 * next.len() + kinds.len() / 8;
        if *direction == Direction::Backward {
            // The order means nothing, and without it there are fewer states.
            next.sort_unstable();
        }
        meter.spend(work, cancelled)?;
        let next = match next.is_empty() || after & kind::EDGE != 0 {
            true => DEAD,
            false => {
                let state = State {
                    nodes: next.as_slice().into(),
                    before: after & program.asked,
                };
                let states = self.states.len();
                let id = self.intern(state);
                if self.states.len() < states {
                    // The cache was cleared, and `from` with it.
                    return Ok(id | if is_match { MATCH } else { 0 });
                }
                id
            }
        };
        let entry = next | if is_match { MATCH } else { 0 };
        self.table[from as usize * self.kinds.len() + usize::from(symbol)] = entry;
        Ok(entry)
    }
}

impl Run<'_> {
    /// Reads a symbol.
    #[inline(always)]
    pub(crate) fn step(
        &mut self,
        symbol: Symbol,
        meter: &mut Meter,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Step, Stop> {
        let stride = self.automaton.kinds.len();
        let mut entry = self.automaton.table[self.state as usize * stride + usize::from(symbol)];
        if entry == UNKNOWN {
            entry = self
                .automaton
                .compute(self.state, symbol, meter, cancelled)?;
        }
        self.state = entry & !MATCH;
        Ok(Step {
            is_match: entry & MATCH != 0,
            is_dead: self.state == DEAD,
        })
    }
}

/// Whether a look-around holds between two characters.
fn holds(look: Look, before: u8, after: u8) -> bool {
    use kind::{ASCII_WORD, CARRIAGE_RETURN, EDGE, LINE_FEED, WORD};
    let is = |side: u8, kinds: u8| side & kinds != 0;
    let boundary = |word: u8| (is(before, word), is(after, word));
    match look {
        Look::Start => is(before, EDGE),
        Look::End => is(after, EDGE),
        Look::StartLF => is(before, EDGE | LINE_FEED),
        Look::EndLF => is(after, EDGE | LINE_FEED),
        Look::StartCRLF => {
            is(before, EDGE | LINE_FEED) || is(before, CARRIAGE_RETURN) && !is(after, LINE_FEED)
        }
        Look::EndCRLF => {
            is(after, EDGE | CARRIAGE_RETURN)
                || is(after, LINE_FEED) && !is(before, CARRIAGE_RETURN)
        }
        Look::WordAscii => matches!(boundary(ASCII_WORD), (true, false) | (false, true)),
        Look::WordAsciiNegate => matches!(boundary(ASCII_WORD), (true, true) | (false, false)),
        Look::WordStartAscii => boundary(ASCII_WORD) == (false, true),
        Look::WordEndAscii => boundary(ASCII_WORD) == (true, false),
        Look::WordStartHalfAscii => !is(before, ASCII_WORD),
        Look::WordEndHalfAscii => !is(after, ASCII_WORD),
        Look::WordUnicode => matches!(boundary(WORD), (true, false) | (false, true)),
        Look::WordUnicodeNegate => matches!(boundary(WORD), (true, true) | (false, false)),
        Look::WordStartUnicode => boundary(WORD) == (false, true),
        Look::WordEndUnicode => boundary(WORD) == (true, false),
        Look::WordStartHalfUnicode => !is(before, WORD),
        Look::WordEndHalfUnicode => !is(after, WORD),
    }
}
