//! Assembles the tool calls of a chat completion from their deltas.
//!
//! OpenAI's deltas begin a call with its index, id and name, and continue with pieces of its
//! arguments. Servers that are almost compatible leave out the index or always send 0, send no id
//! or send the name after it, repeat id and name with every piece, or send the arguments as an
//! object. [`Calls::add`] assigns every piece to its call in all of these cases.
//!
//! The result says what the client may see of the piece, as [`ShownDelta`]. Calls of the engine's
//! tools are hidden. As long as the name of a call is not known, it is held back. The client sees
//! its own calls with indexes that have no gaps. [`chat`](super::chat) does the rest of the answer.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use super::{Call, ToolNames, set, string};

/// Who answers a call. The name of the tool decides, and it may arrive after other pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The name has not arrived yet.
    Unknown,
    Engine,
    Client,
}

/// One delta of a call, with defaults for members that the server left out.
#[derive(Debug)]
struct CallDelta {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl CallDelta {
    /// Reads a delta. Missing members become empty or None, so that every kind of server is handled
    /// in the same way afterwards.
    fn of(value: &Value) -> Self {
        let function = &value["function"];
        Self {
            index: value["index"].as_u64(),
            id: string(value, "id"),
            name: string(function, "name"),
            arguments: match &function["arguments"] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                // Some servers send an object instead of its JSON text.
                other => other.to_string(),
            },
        }
    }
}

/// A call that is still being received. Its pieces are joined as they arrive.
#[derive(Debug)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// The other members of the first piece, which are passed on with the call.
    more: Value,
    owner: Owner,
}

/// Whether the arguments received so far are a complete JSON object.
impl PartialCall {
    fn is_complete(&self) -> bool {
        serde_json::from_str::<serde_json::Map<String, Value>>(&self.arguments).is_ok()
    }

    /// Whether a piece that seems to belong to this call begins another one. It does if it names a
    /// tool again, and is not just a repetition of this call's head.
    fn is_over_before(&self, piece: &CallDelta) -> bool {
        let is_named_anew = !piece.name.is_empty() && !self.name.is_empty();
        let is_other = piece.name != self.name;
        let is_again = piece.id == self.id && piece.arguments == self.arguments;
        let has_more = !piece.arguments.is_empty() || piece.id.is_empty();
        is_named_anew
            && (!is_again || self.id.is_empty())
            && (is_other || (has_more && self.is_complete()))
    }

    /// The call as a member of `tool_calls`, with everything that was received. `salt` is used if
    /// the call needs an id.
    fn value(&self, salt: u128) -> Value {
        let mut value = self.more.clone();
        set(&mut value, "id", json!(self.id_or_own(salt)));
        if !value["type"].is_string() {
            set(&mut value, "type", json!("function"));
        }
        let mut function = value["function"].clone();
        set(&mut function, "name", json!(self.name));
        set(&mut function, "arguments", json!(self.arguments));
        set(&mut value, "function", function);
        value
    }

    /// The id of the call. If the server sent none, an id is generated from `salt` and the call,
    /// because the result has to name it.
    fn id_or_own(&self, salt: u128) -> String {
        match self.id.as_str() {
            "" => {
                let what = format!("{salt} {} {}", self.name, self.arguments);
                format!("call_{:016x}", xxh3_64(what.as_bytes()))
            }
            id => id.to_owned(),
        }
    }
}

/// What the client may see of a delta that was just added.
#[derive(Debug, PartialEq)]
pub(super) enum ShownDelta {
    /// Nothing, because the call is the engine's, or its owner is not known yet.
    Nothing,
    /// The piece as it arrived, as part of the client's call with this index.
    Delta(u64),
    /// This value instead of the piece. It includes everything that was held back while the owner
    /// was unknown.
    Instead(Value),
}

/// All calls of one round, in the order in which they began. It is emptied when the round ends.
#[derive(Debug)]
pub(super) struct Calls {
    all: Vec<PartialCall>,
    /// Makes generated ids differ from those of other rounds, because the ids of one conversation
    /// must be unique.
    salt: u128,
}

impl Default for Calls {
    fn default() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            all: Vec::new(),
            salt: now.map_or(0, |now| now.as_nanos()),
        }
    }
}

impl Calls {
    /// Whether any of the calls is the engine's, and whether any is the client's. Calls without a
    /// known owner count as the client's.
    pub(super) fn owners(&self) -> (bool, bool) {
        let any = |wanted: bool| {
            let mut all = self.all.iter();
            all.any(|call| (call.owner == Owner::Engine) == wanted)
        };
        (any(true), any(false))
    }

    /// Adds a piece to its call or begins a new one. Returns what the client may see of it. The
    /// client already has `before` calls of earlier rounds.
    pub(super) fn add(&mut self, value: &Value, tools: &ToolNames, before: u64) -> ShownDelta {
        let piece = CallDelta::of(value);
        let found = self.find(&piece);
        let position = found.unwrap_or(self.all.len());
        let was = match self.all.get_mut(position) {
            Some(call) => {
                if call.id.is_empty() {
                    call.id.clone_from(&piece.id);
                }
                if call.name.is_empty() {
                    call.name.clone_from(&piece.name);
                }
                call.index = call.index.or(piece.index);
                // Some servers send the complete arguments once more, which must not be appended.
                if !(call.arguments == piece.arguments && call.is_complete()) {
                    call.arguments.push_str(&piece.arguments);
                }
                Some(call.owner)
            }
            None => {
                self.begin(value, piece);
                None
            }
        };
        let Some(call) = self.all.get_mut(position) else {
            return ShownDelta::Nothing;
        };
        // If there are no tools to hide, a call need not wait for its name.
        if call.owner == Owner::Unknown && (!call.name.is_empty() || tools.is_empty()) {
            call.owner = match tools.contains(&call.name) {
                true => Owner::Engine,
                false => Owner::Client,
            };
        }
        match (call.owner, was) {
            (Owner::Engine | Owner::Unknown, _) => ShownDelta::Nothing,
            (Owner::Client, Some(Owner::Unknown)) => {
                ShownDelta::Instead(self.whole(position, before))
            }
            (Owner::Client, _) => ShownDelta::Delta(self.shown_as(position, before)),
        }
    }

    pub(super) fn add_whole(&mut self, value: &Value, tools: &ToolNames) {
        let piece = CallDelta::of(value);
        let owner = match tools.contains(&piece.name) {
            true => Owner::Engine,
            false => Owner::Client,
        };
        self.begin(value, piece);
        if let Some(call) = self.all.last_mut() {
            call.owner = owner;
        }
    }

    fn begin(&mut self, value: &Value, piece: CallDelta) {
        let mut more = value.clone();
        if let Some(more) = more.as_object_mut() {
            // The client gets an index of its own.
            more.remove("index");
        }
        if !more["function"].is_object() {
            set(&mut more, "function", json!({}));
        }
        // The results of two calls with the same id could not be told apart, so the second one gets
        // an id of its own.
        let is_taken = self.all.iter().any(|call| call.id == piece.id);
        self.all.push(PartialCall {
            index: piece.index,
            id: if is_taken { String::new() } else { piece.id },
            name: piece.name,
            arguments: piece.arguments,
            more,
            owner: Owner::Unknown,
        });
    }

    /// The position of the call that a piece belongs to. None if the piece begins a new call.
    fn find(&self, piece: &CallDelta) -> Option<usize> {
        let last_of = |is_it: &dyn Fn(&PartialCall) -> bool| self.all.iter().rposition(is_it);
        let by_id = match piece.id.as_str() {
            "" => None,
            id => last_of(&|call| call.id == id),
        };
        let by_index = piece
            .index
            .and_then(|index| last_of(&|call| call.index == Some(index)));
        let found = match (piece.id.is_empty(), piece.index) {
            (false, Some(_)) => match by_index.and_then(|at| Some((at, self.all.get(at)?))) {
                Some((at, call)) if call.id == piece.id || call.id.is_empty() => Some(at),
                // The server sends the same index for all calls, so the id decides.
                Some(_) => by_id,
                // The server changes the index within a call, so the id decides unless a name
                // begins another one.
                None => by_id.filter(|_| piece.name.is_empty()),
            },
            (false, None) => by_id.or_else(|| {
                // The id came after the name, so it belongs to the call that still has none.
                let last = self.all.len().checked_sub(1)?;
                self.all.get(last)?.id.is_empty().then_some(last)
            }),
            (true, Some(_)) => by_index,
            (true, None) => self.all.len().checked_sub(1),
        };
        found.filter(|at| {
            let call = self.all.get(*at);
            !call.is_some_and(|call| call.is_over_before(piece))
        })
    }

    fn salt_of(&self, position: usize) -> u128 {
        self.salt.wrapping_add(position as u128)
    }

    /// The index that the call has for the client. Calls of the engine are not counted.
    fn shown_as(&self, position: usize, before: u64) -> u64 {
        let earlier = self.all.iter().take(position);
        before + earlier.filter(|call| call.owner != Owner::Engine).count() as u64
    }

    /// The call with everything received so far, as one delta for the client.
    fn whole(&self, position: usize, before: u64) -> Value {
        let mut value =
            (self.all.get(position)).map_or(Value::Null, |call| call.value(self.salt_of(position)));
        set(&mut value, "index", json!(self.shown_as(position, before)));
        value
    }

    /// Calls whose name never arrived. They were held back, and now go to the client, which can
    /// report the error.
    pub(super) fn give_up_waiting(&mut self, before: u64) -> Vec<Value> {
        let mut all = Vec::new();
        for position in 0..self.all.len() {
            if let Some(call) = self.all.get_mut(position)
                && call.owner == Owner::Unknown
            {
                call.owner = Owner::Client;
                all.push(self.whole(position, before));
            }
        }
        all
    }

    /// All calls as the model made them. Those of the engine are included if `with_engine`.
    pub(super) fn values(&self, with_engine: bool) -> Vec<Value> {
        let all = self.all.iter().enumerate();
        let wanted = all.filter(|(_, call)| with_engine || call.owner != Owner::Engine);
        wanted
            .map(|(position, call)| call.value(self.salt_of(position)))
            .collect()
    }

    pub(super) fn of_engine(&self) -> Vec<Call> {
        let all = self.all.iter().enumerate();
        let own = all.filter(|(_, call)| call.owner == Owner::Engine);
        own.map(|(position, call)| Call {
            id: call.id_or_own(self.salt_of(position)),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
