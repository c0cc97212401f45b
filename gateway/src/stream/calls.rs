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

use super::{Call, ToolNames, string};

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
        value["id"] = json!(self.id_or_own(salt));
        if !value["type"].is_string() {
            value["type"] = json!("function");
        }
        value["function"]["name"] = json!(self.name);
        value["function"]["arguments"] = json!(self.arguments);
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
            more["function"] = json!({});
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
        value["index"] = json!(self.shown_as(position, before));
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{BTreeMap, HashSet};
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::AnswerReader;
    use super::super::sse::Events;
    use crate::api::Api;

    /// How a server differs from OpenAI. A test combines these differences at random, because real
    /// servers combine them, too.
    #[derive(Debug, Clone, Copy)]
    struct ServerQuirks {
        /// 0: counted, 1: left out, 2: always 0.
        index: u8,
        /// 0: with the first piece, 1: with each, 2: empty, 3: left out.
        id: u8,
        is_named_late: bool,
        repeats_name: bool,
        /// In how many pieces the arguments arrive. 0 stands for an object in place of a text.
        pieces: usize,
        begins_empty: bool,
        finish: &'static str,
        finishes_at_once: bool,
        has_done: bool,
        in_one: bool,
    }

    fn server_quirks() -> impl Strategy<Value = ServerQuirks> {
        let shape = (
            0u8..3,
            0u8..4,
            any::<bool>(),
            any::<bool>(),
            0usize..4,
            any::<bool>(),
        );
        let end = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        (shape, end).prop_map(|(shape, end)| {
            let (index, id, is_named_late, repeats_name, pieces, begins_empty) = shape;
            let (stops, finishes_at_once, has_done, in_one) = end;
            ServerQuirks {
                index,
                id,
                // Without an id, only the name marks the beginning of a call.
                is_named_late: is_named_late && (id < 2 || index == 0),
                // The same applies if the next call has the same name.
                repeats_name: repeats_name && (id < 2 || index == 0),
                pieces,
                begins_empty: begins_empty && pieces > 0,
                finish: if stops { "stop" } else { "tool_calls" },
                finishes_at_once,
                has_done,
                in_one,
            }
        })
    }

    type Named = (String, String);

    /// The deltas of these calls, as a server with these differences sends them.
    fn deltas(calls: &[Named], odd: ServerQuirks) -> Vec<Value> {
        let mut all = Vec::new();
        for (number, (name, arguments)) in calls.iter().enumerate() {
            let mut parts: Vec<Value> = match odd.pieces {
                0 => vec![serde_json::from_str(arguments).unwrap()],
                pieces => {
                    let chars: Vec<char> = arguments.chars().collect();
                    let size = chars.len().div_ceil(pieces);
                    chars
                        .chunks(size)
                        .map(|part| json!(part.iter().collect::<String>()))
                        .collect()
                }
            };
            if odd.begins_empty || odd.is_named_late {
                parts.insert(0, json!(""));
            }
            for (at, part) in parts.into_iter().enumerate() {
                let mut piece = json!({"type": "function", "function": {"arguments": part}});
                match odd.index {
                    0 => piece["index"] = json!(number),
                    2 => piece["index"] = json!(0),
                    _ => {}
                }
                match odd.id {
                    0 if at == 0 => piece["id"] = json!(format!("call_{number}")),
                    1 => piece["id"] = json!(format!("call_{number}")),
                    2 => piece["id"] = json!(""),
                    _ => {}
                }
                let first = usize::from(odd.is_named_late);
                if at == first || (odd.repeats_name && at > first) {
                    piece["function"]["name"] = json!(name);
                }
                all.push(piece);
            }
        }
        all
    }

    fn chunk(delta: &Value, finish: &Value) -> Vec<u8> {
        let data = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
        format!("data: {data}\n\n").into_bytes()
    }

    fn stream(calls: &[Named], odd: ServerQuirks) -> Vec<u8> {
        let pieces = deltas(calls, odd);
        let groups: Vec<Vec<Value>> = match odd.in_one {
            true => vec![pieces],
            false => pieces.into_iter().map(|piece| vec![piece]).collect(),
        };
        let count = groups.len();
        let mut out = chunk(&json!({"role": "assistant", "content": ""}), &Value::Null);
        for (at, group) in groups.into_iter().enumerate() {
            let ends = odd.finishes_at_once && at + 1 == count;
            let finish = if ends { json!(odd.finish) } else { Value::Null };
            out.extend(chunk(&json!({"tool_calls": group}), &finish));
        }
        if !odd.finishes_at_once {
            out.extend(chunk(&json!({}), &json!(odd.finish)));
        }
        if odd.has_done {
            out.extend(b"data: [DONE]\n\n");
        }
        out
    }

    /// The client's calls in what it receives, assembled by index as strict clients do it.
    fn client_calls(out: &[u8]) -> Vec<Named> {
        let mut events = Events::default();
        events.push(out);
        let mut calls: BTreeMap<u64, Named> = BTreeMap::new();
        while let Some(event) = events.next() {
            let Some(data) = event.json() else { continue };
            for piece in data["choices"][0]["delta"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let call = calls.entry(piece["index"].as_u64().unwrap()).or_default();
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                if call.0.is_empty() {
                    call.0 = text(&piece["function"]["name"]);
                }
                call.1 += &match &piece["function"]["arguments"] {
                    Value::Object(object) => json!(object).to_string(),
                    other => text(other),
                };
            }
        }
        calls.into_values().collect()
    }

    fn calls() -> impl Strategy<Value = Vec<Named>> {
        let name = prop_oneof![
            Just("lcm_grep"),
            Just("lcm_expand"),
            Just("crane"),
            Just("run")
        ];
        let call = (name, "[a-z\"\\\\ {}é]{0,12}", 0u32..3).prop_map(|(name, text, number)| {
            (
                name.to_owned(),
                json!({"pattern": text, "n": number}).to_string(),
            )
        });
        prop::collection::vec(call, 1..4)
    }

    fn same(one: &[Named], other: &[Named]) -> bool {
        let parsed = |calls: &[Named]| {
            let each = calls.iter().map(|(name, arguments)| {
                (name.clone(), serde_json::from_str::<Value>(arguments).ok())
            });
            each.collect::<Vec<_>>()
        };
        parsed(one) == parsed(other)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// Whatever the deltas look like, the engine receives its calls and the client receives its
        /// own.
        #[test]
        fn calls_are_put_together_whatever_the_deltas_are(calls in calls(), odd in server_quirks()) {
            let tools: HashSet<String> = ["lcm_grep", "lcm_expand"].map(str::to_owned).into();
            let is_own = |call: &Named| tools.contains(&call.0);
            let (own, others): (Vec<Named>, Vec<Named>) = calls.iter().cloned().partition(is_own);
            let mut reader = AnswerReader::new(Api::Chat, Arc::new(tools));
            let (mut events, mut out) = (Events::default(), Vec::new());
            events.push(&stream(&calls, odd));
            while let Some(event) = events.next() {
                reader.event(&event, &mut out);
            }
            prop_assert!(reader.progress().is_whole);
            let round = reader.take_round();
            prop_assert_eq!(round.continues, others.is_empty());
            let found: Vec<Named> = round.calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
            prop_assert!(same(&found, &own), "{:?}", found);
            let ids: HashSet<&str> = round.calls.iter().map(|call| call.id.as_str()).collect();
            prop_assert!(ids.len() == own.len() && !ids.contains(""), "{:?}", ids);
            let text = String::from_utf8_lossy(&out).into_owned();
            prop_assert!(!text.contains("lcm_"), "{}", text);
            if !own.is_empty() {
                prop_assert!(same(&client_calls(&out), &others), "{}", text);
            }
            // The message for the provider has all calls, each with an id.
            let message: Value = serde_json::from_str(&round.items[0]).unwrap();
            prop_assert_eq!(message["tool_calls"].as_array().map(Vec::len), Some(calls.len()));
        }

        /// The same has to hold for an answer that comes as a whole, in which calls have no deltas
        /// to assemble.
        #[test]
        fn calls_of_a_whole_answer_are_known(calls in calls(), odd in server_quirks()) {
            let odd = ServerQuirks { pieces: odd.pieces.min(1), begins_empty: false, is_named_late: false, repeats_name: false, ..odd };
            let tools: HashSet<String> = ["lcm_grep", "lcm_expand"].map(str::to_owned).into();
            let own: Vec<Named> = calls.iter().filter(|call| tools.contains(&call.0)).cloned().collect();
            let mut reader = AnswerReader::new(Api::Chat, Arc::new(tools));
            reader.json(&json!({"id": "c", "choices": [{"index": 0, "finish_reason": odd.finish, "message":
                {"role": "assistant", "content": null, "tool_calls": deltas(&calls, odd)}}]}));
            let round = reader.take_round();
            let found: Vec<Named> = round.calls.iter().map(|call| (call.name.clone(), call.arguments.clone())).collect();
            prop_assert!(same(&found, &own), "{:?}", found);
            prop_assert_eq!(round.continues, own.len() == calls.len());
            prop_assert!(round.calls.iter().all(|call| !call.id.is_empty()));
        }
    }
}
