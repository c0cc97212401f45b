//! From a parsed expression to a program: nodes that read a character, branch, or look around.

use regex_syntax::hir::{Class, Hir, HirKind, Look, Repetition};
use rustc_hash::FxHashMap;

use crate::automaton::Direction;
use crate::{MAX_STEPS, PatternError};

/// The number of a node.
pub(crate) type NodeId = u32;

/// A step of a program.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    /// Reads one character of a class, which is an index into the program's classes.
    Read { class: u32, next: NodeId },
    /// Goes on at each of these; the first ones are preferred.
    Branch(Vec<NodeId>),
    /// Goes on if this holds here.
    Look { look: Look, next: NodeId },
    /// The expression matches up to here.
    Match,
}

/// Ranges of characters, sorted, both ends included.
pub(crate) type Ranges = Vec<(u32, u32)>;

/// A program, and the classes of characters that its nodes read.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) nodes: Vec<Node>,
    pub(crate) start: NodeId,
    pub(crate) classes: Vec<Ranges>,
}

impl Program {
    /// Compiles an expression, to be read in this direction. If `anywhere`, a match may begin at any later place, and
    /// earlier places are preferred.
    ///
    /// # Errors
    /// It has more than [`MAX_STEPS`] nodes.
    pub(crate) fn new(
        hir: &Hir,
        direction: Direction,
        anywhere: bool,
    ) -> Result<Self, PatternError> {
        let mut compiler = Compiler {
            direction,
            nodes: vec![Node::Match],
            classes: Vec::new(),
            known: FxHashMap::default(),
            calls: 0,
        };
        let mut start = compiler.compile(hir, 0)?;
        if anywhere {
            let branch = compiler.push(Node::Branch(Vec::new()))?;
            let class = compiler.class(vec![(0, u32::from(char::MAX))]);
            let skip = compiler.push(Node::Read {
                class,
                next: branch,
            })?;
            compiler.nodes[branch as usize] = Node::Branch(vec![start, skip]);
            start = branch;
        }
        Ok(Self {
            nodes: compiler.nodes,
            start,
            classes: compiler.classes,
        })
    }
}

struct Compiler {
    direction: Direction,
    nodes: Vec<Node>,
    classes: Vec<Ranges>,
    known: FxHashMap<Ranges, u32>,
    /// Parts of the expression that were compiled, each copy of a repeated one included.
    calls: usize,
}

impl Compiler {
    fn push(&mut self, node: Node) -> Result<NodeId, PatternError> {
        if self.nodes.len() >= MAX_STEPS {
            return Err(PatternError::TooLarge);
        }
        self.nodes.push(node);
        Ok(self.nodes.len() as NodeId - 1)
    }

    fn class(&mut self, ranges: Ranges) -> u32 {
        if let Some(known) = self.known.get(&ranges) {
            return *known;
        }
        let id = self.classes.len() as u32;
        self.known.insert(ranges.clone(), id);
        self.classes.push(ranges);
        id
    }

    /// Compiles a part, after which the program goes on at `next`; returns where the part begins.
    fn compile(&mut self, hir: &Hir, next: NodeId) -> Result<NodeId, PatternError> {
        self.calls += 1;
        if self.calls > 4 * MAX_STEPS {
            return Err(PatternError::TooLarge);
        }
        let direction = self.direction;
        match hir.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                // An expression over text has no other literals.
                let text = String::from_utf8_lossy(&literal.0);
                let mut next = next;
                let mut read = |c: char| {
                    let class = self.class(vec![(u32::from(c), u32::from(c))]);
                    next = self.push(Node::Read { class, next })?;
                    Ok(())
                };
                match direction {
                    Direction::Forward => text.chars().rev().try_for_each(&mut read)?,
                    Direction::Backward => text.chars().try_for_each(&mut read)?,
                }
                Ok(next)
            }
            HirKind::Class(class) => {
                let class = self.class(ranges(class));
                self.push(Node::Read { class, next })
            }
            HirKind::Look(look) => self.push(Node::Look { look: *look, next }),
            HirKind::Repetition(repetition) => self.repetition(repetition, next),
            HirKind::Capture(capture) => self.compile(&capture.sub, next),
            HirKind::Concat(parts) => {
                let mut next = next;
                let mut part = |part| {
                    next = self.compile(part, next)?;
                    Ok(())
                };
                match direction {
                    Direction::Forward => parts.iter().rev().try_for_each(&mut part)?,
                    Direction::Backward => parts.iter().try_for_each(&mut part)?,
                }
                Ok(next)
            }
            HirKind::Alternation(branches) => {
                let branches = branches.iter().map(|branch| self.compile(branch, next));
                let branches = branches.collect::<Result<_, _>>()?;
                self.push(Node::Branch(branches))
            }
        }
    }

    fn repetition(
        &mut self,
        repetition: &Repetition,
        next: NodeId,
    ) -> Result<NodeId, PatternError> {
        let Repetition {
            min,
            max,
            greedy,
            sub,
        } = repetition;
        let branch = |once: NodeId, next: NodeId| {
            Node::Branch(match greedy {
                true => vec![once, next],
                false => vec![next, once],
            })
        };
        let mut entry = next;
        let mut copies = *min;
        match max {
            Some(max) => {
                for _ in *min..*max {
                    let once = self.compile(sub, entry)?;
                    entry = self.push(branch(once, next))?;
                }
            }
            None => {
                let again = self.push(Node::Branch(Vec::new()))?;
                let once = self.compile(sub, again)?;
                self.nodes[again as usize] = branch(once, next);
                entry = match copies {
                    // What may be empty counts as one that is there or not, as the `regex` crate has it.
                    0 if sub
                        .properties()
                        .minimum_len()
                        .is_none_or(|least| least == 0) =>
                    {
                        self.push(branch(once, next))?
                    }
                    0 => again,
                    _ => once,
                };
                copies = copies.saturating_sub(1);
            }
        }
        for _ in 0..copies {
            entry = self.compile(sub, entry)?;
        }
        Ok(entry)
    }
}

pub(crate) fn ranges(class: &Class) -> Ranges {
    match class {
        Class::Unicode(class) => class
            .iter()
            .map(|range| (u32::from(range.start()), u32::from(range.end())))
            .collect(),
        // In an expression over text, these are ASCII.
        Class::Bytes(class) => class
            .iter()
            .map(|range| (u32::from(range.start()), u32::from(range.end())))
            .collect(),
    }
}
