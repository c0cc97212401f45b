//! Pairs tool calls with their results.
//!
//! Providers reject a call without a result and a result without a call. Conversations can have
//! both, for example after an interruption, or if a compaction removed a message. [`paired`]
//! adds a placeholder for each missing result and turns each result without a call into a user
//! message. It also makes the ids of calls unique, because models reuse them.
//!
//! The algorithm works on [`Entry`]s and is the same for all providers. [`Forms`] contains the
//! functions that change the JSON of a provider's entries.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{Ids, Notes};

/// A part of a conversation, reduced to what matters for pairing. Its JSON is complete.
pub(super) enum Entry {
    /// Something that makes calls, with the ids of its calls.
    Calls(Value, Vec<String>),
    /// The result of the call with this id, which may be missing or not unique.
    Result(Value, String),
    Other(Value),
}

impl Entry {
    pub(super) fn into_value(self) -> Value {
        let (Self::Calls(value, _) | Self::Result(value, _) | Self::Other(value)) = self;
        value
    }
}

/// The functions that change the entries of one format. [`paired`] calls them, so it does not have
/// to know the JSON of any provider.
pub(super) struct Forms {
    /// Whether a result has to follow its call immediately.
    pub(super) adjacent: bool,
    /// Sets the ids of the calls in an entry.
    pub(super) set_calls: fn(&mut Value, &[String]),
    /// Sets the id of the call that a result answers.
    pub(super) set_result: fn(&mut Value, &str),
    /// Returns a placeholder for a missing result, given the entry with the call, the index of
    /// the call in it, and its id.
    pub(super) stub: fn(&Value, usize, &str) -> Value,
    /// Converts a result that has no call into something that the provider accepts.
    pub(super) orphan: fn(Value) -> Value,
}

/// Pairs calls with results, so that each call has exactly one result after it and each result
/// has a call. If an id is used more than once, a result belongs to the newest calls that lack one,
/// and among calls that were made together they pair in order. Each returned entry comes with its
/// index among the old ones, and a new entry with that of the call it belongs to.
pub(super) fn paired(entries: Vec<Entry>, forms: &Forms, notes: &mut Notes) -> Vec<(usize, Entry)> {
    let result_of = match_results(&entries, notes);
    let mut pairing = Pairing {
        forms,
        notes,
        call_of: (result_of.iter())
            .map(|(call, result)| (*result, *call))
            .collect(),
        result_of,
        ids: Ids::default(),
        given: HashMap::new(),
        slots: entries.into_iter().map(Some).collect(),
        out: Vec::new(),
    };
    for at in 0..pairing.slots.len() {
        match pairing.slots[at].take() {
            Some(Entry::Calls(value, ids)) => pairing.push_calls(at, value, ids),
            Some(Entry::Result(value, id)) => pairing.push_result(at, value, id),
            Some(other) => pairing.out.push((at, other)),
            // It was moved after its call.
            None => {}
        }
    }
    pairing.out
}

/// A call, as the indices of its entry and of the call in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct CallAt {
    entry: usize,
    call: usize,
}

/// Finds the result of each call, as the index of its entry.
fn match_results(entries: &[Entry], notes: &mut Notes) -> HashMap<CallAt, usize> {
    // For each id, the calls that still lack a result.
    let mut open: HashMap<&str, Vec<CallAt>> = HashMap::new();
    // For each entry, the number of answers and other words before it. It is the same for calls
    // that were made together.
    let mut before = Vec::with_capacity(entries.len());
    let mut count = 0;
    let mut result_of = HashMap::new();
    let mut early = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        before.push(count);
        match entry {
            Entry::Calls(_, ids) => {
                for (call, id) in ids.iter().enumerate() {
                    let call = CallAt { entry: at, call };
                    open.entry(id).or_default().push(call);
                }
            }
            Entry::Result(_, id) => {
                count += 1;
                let open = open.get_mut(id.as_str()).filter(|open| !open.is_empty());
                match open {
                    Some(open) => {
                        // A call that was left without a result must not take that of a later one.
                        let newest = open.last().map(|call| before[call.entry]);
                        let first = open.partition_point(|call| Some(before[call.entry]) < newest);
                        result_of.insert(open.remove(first), at);
                    }
                    None => early.push(at),
                }
            }
            // Reasoning has no role, and stands between calls that were made together.
            Entry::Other(value) => count += usize::from(value.get("role").is_some()),
        }
    }
    // A result that came before its call is used only if no later one fits.
    for at in early {
        if let Entry::Result(_, id) = &entries[at]
            && let Some(open) = open.get_mut(id.as_str()).filter(|open| !open.is_empty())
        {
            result_of.insert(open.remove(0), at);
            notes.one("a result before its call was moved after it");
        }
    }
    result_of
}

/// Writes the entries anew, each call with its result.
struct Pairing<'f> {
    forms: &'f Forms,
    notes: &'f mut Notes,
    result_of: HashMap<CallAt, usize>,
    call_of: HashMap<usize, CallAt>,
    /// Gives the calls their ids.
    ids: Ids,
    /// The ids that were given so far.
    given: HashMap<CallAt, String>,
    /// The old entries that were not written yet.
    slots: Vec<Option<Entry>>,
    out: Vec<(usize, Entry)>,
}

impl Pairing<'_> {
    /// Writes an entry with calls, the results that must move after it, and placeholders for those
    /// that are missing.
    fn push_calls(&mut self, at: usize, mut value: Value, old: Vec<String>) {
        let new: Vec<String> = (old.iter())
            .map(|id| self.ids.give(id, self.notes))
            .collect();
        if new != old {
            (self.forms.set_calls)(&mut value, &new);
        }
        let calls = (0..new.len()).map(|call| CallAt { entry: at, call });
        self.given.extend(calls.clone().zip(new.iter().cloned()));
        let stubs: Vec<_> = (calls.clone())
            .filter(|call| !self.result_of.contains_key(call))
            .map(|CallAt { call, .. }| (call, (self.forms.stub)(&value, call, &new[call])))
            .collect();
        self.notes.add(
            "a call without a result got a result that says so",
            stubs.len(),
        );
        self.out.push((at, Entry::Calls(value, new.clone())));
        let mut results: Vec<usize> = calls
            .filter_map(|call| self.result_of.get(&call).copied())
            // If results need not be adjacent, only those before their call have to move.
            .filter(|result| self.forms.adjacent || *result < at)
            .collect();
        results.sort_unstable();
        // The user is told only if something really moved.
        let in_place = results
            .iter()
            .enumerate()
            .all(|(step, result)| *result == at + 1 + step);
        if !in_place && self.forms.adjacent {
            self.notes
                .one("results were moved directly after their calls");
        }
        for result in results {
            if let Some(Entry::Result(value, id)) = self.slots[result].take() {
                self.push_result(result, value, id);
            }
        }
        for (call, stub) in stubs {
            self.out.push((at, Entry::Result(stub, new[call].clone())));
        }
    }

    /// Writes a result with the new id of its call. If the call comes later, the result stays in
    /// its slot, and the call takes it along.
    fn push_result(&mut self, at: usize, mut value: Value, id: String) {
        let Some(call) = self.call_of.get(&at) else {
            self.notes
                .one("a result without a call was changed to a user message");
            let message = (self.forms.orphan)(value);
            self.out.push((at, Entry::Other(message)));
            return;
        };
        let Some(new) = self.given.get(call) else {
            self.slots[at] = Some(Entry::Result(value, id));
            return;
        };
        if *new != id {
            (self.forms.set_result)(&mut value, new);
        }
        self.out.push((at, Entry::Result(value, new.clone())));
    }
}

/// Joins entries to messages with their blocks in the member `key`. Adjacent results form one user
/// message. What the user said in the messages of these results is added after them. `of` has the
/// message that each of the old entries came from.
pub(super) fn joined(entries: Vec<(usize, Entry)>, of: &[usize], key: &str) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    // The messages that the results in the last message came from.
    let mut results_of: Option<Vec<usize>> = None;
    for (at, entry) in entries {
        let origin = of.get(at).copied().unwrap_or(0);
        match entry {
            Entry::Result(result, _) => match (&mut results_of, messages.last_mut()) {
                (Some(origins), Some(last)) => {
                    origins.push(origin);
                    if let Some(blocks) = last[key].as_array_mut() {
                        blocks.push(result);
                    }
                }
                _ => {
                    messages.push(json!({"role": "user", key: [result]}));
                    results_of = Some(vec![origin]);
                }
            },
            Entry::Other(message)
                if message["role"] == "user"
                    && results_of
                        .as_ref()
                        .is_some_and(|origins| origins.contains(&origin)) =>
            {
                let last = messages
                    .last_mut()
                    .and_then(|last| last[key].as_array_mut());
                let blocks = message[key].as_array().cloned().unwrap_or_default();
                if let Some(last) = last {
                    last.extend(blocks);
                }
                results_of = None;
            }
            Entry::Other(message) | Entry::Calls(message, _) => {
                messages.push(message);
                results_of = None;
            }
        }
    }
    messages
}
