//! Puts the items of a conversation in the place of references to them, and back.
//!
//! If a client of the Responses API lets OpenAI store its answers, it may send
//! `{"type":"item_reference","id":…}` in place of an item of an earlier answer. Such a reference does
//! not say what the model wrote, nor which call or reasoning it belongs to. But the gateway forwarded
//! every answer. [`ItemCache`] remembers its items, and the record has them for a session that uses
//! references, so that a restart loses none.
//!
//! [`expand`] makes the request that a client without references would send, which is then a turn
//! like any other. [`References::restore`] makes references again of the items that are kept.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use contexture::formats::BodyEdits;
use contexture::lock;
use contexture::session::{KeptChange, KeptContent};
use serde::Deserialize;

use crate::api::Api;
use crate::body::SharedBody;

/// The prefix of the keys of items in the data that is stored with a session.
const KEY_PREFIX: &str = "item ";

/// The type of a reference.
const REFERENCE: &[u8] = b"item_reference";

/// How many bytes of items are cached. Beyond that the oldest are dropped.
const MAX_BYTES: usize = 64 << 20;

/// The members of an item that tell whether it is a reference, and to what.
#[derive(Deserialize)]
struct ItemHead<'a> {
    #[serde(borrow, default)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
}

/// The id of an item. None if it has none.
fn id_of(item: &str) -> Option<String> {
    let head: ItemHead<'_> = serde_json::from_str(item).ok()?;
    head.id.map(Cow::into_owned)
}

/// The id that a wire message refers to. None if it is no reference.
fn referred(raw: &str) -> Option<String> {
    // A message may be long, and most are no references.
    memchr::memmem::find(raw.as_bytes(), REFERENCE)?;
    let head: ItemHead<'_> = serde_json::from_str(raw).ok()?;
    let is_reference = head.r#type.is_some_and(|kind| kind.as_bytes() == REFERENCE);
    head.id.filter(|_| is_reference).map(Cow::into_owned)
}

/// Whether the provider stores the answer to this request, so that its items can be referred to.
pub(crate) fn are_stored(api: Api, body: &SharedBody) -> bool {
    api == Api::Responses && body.wire().member("store") != Some("false")
}

/// The items of answers that clients may refer to, by tenant and id.
#[derive(Debug, Default)]
pub(crate) struct ItemCache(Mutex<CachedItems>);

#[derive(Debug, Default)]
struct CachedItems {
    items: HashMap<ItemKey, CachedItem>,
    /// Oldest first.
    order: VecDeque<ItemKey>,
    bytes: usize,
}

type ItemKey = (Option<String>, String);

#[derive(Debug)]
struct CachedItem {
    text: Arc<str>,
    /// Whether the record has it.
    is_saved: bool,
}

impl ItemCache {
    /// Remembers the items of an answer. `is_saved` says whether the record has them too.
    pub(crate) fn remember(&self, tenant: Option<&str>, items: &[impl AsRef<str>], is_saved: bool) {
        let mut cached = lock(&self.0);
        for item in items.iter().map(AsRef::as_ref) {
            let Some(id) = id_of(item) else { continue };
            let key = (tenant.map(str::to_owned), id);
            let text = Arc::from(item);
            cached.bytes += item.len();
            let item = CachedItem { text, is_saved };
            match cached.items.insert(key.clone(), item) {
                Some(before) => cached.bytes -= before.text.len(),
                None => cached.order.push_back(key),
            }
        }
        while cached.bytes > MAX_BYTES
            && let Some(oldest) = cached.order.pop_front()
        {
            let gone = cached.items.remove(&oldest);
            cached.bytes -= gone.map_or(0, |gone| gone.text.len());
        }
    }

    /// The item with this id, and whether the record has it.
    fn get(&self, tenant: Option<&str>, id: &str) -> Option<(Arc<str>, bool)> {
        let cached = lock(&self.0);
        let key = (tenant.map(str::to_owned), id.to_owned());
        let item = cached.items.get(&key)?;
        Some((Arc::clone(&item.text), item.is_saved))
    }
}

/// The references of a request whose items are now in their place.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// The client's reference to each item, by the JSON of the item.
    by_item: HashMap<Arc<str>, String>,
    /// The items that the record does not have yet.
    unsaved: Vec<Arc<str>>,
}

/// Puts items in the place of the references of a request. `stored` returns the item with this id
/// if the record has it. Returns None if the request has no references.
///
/// # Errors
/// The id of an item that is not known.
pub(crate) fn expand(
    cache: &ItemCache,
    tenant: Option<&str>,
    body: &SharedBody,
    stored: impl Fn(&str) -> Option<String>,
) -> Result<Option<(SharedBody, References)>, String> {
    let mut references = References::default();
    if memchr::memmem::find(body.text().as_bytes(), REFERENCE).is_none() {
        return Ok(None);
    }
    let wire = body.wire();
    let mut items: Vec<Option<Arc<str>>> = Vec::with_capacity(wire.messages.len());
    for raw in &wire.messages {
        let Some(id) = referred(raw) else {
            items.push(None);
            continue;
        };
        let (item, is_saved) = match cache.get(tenant, &id) {
            Some(found) => found,
            None => {
                let Some(text) = stored(&id) else {
                    return Err(id);
                };
                cache.remember(tenant, std::slice::from_ref(&text), true);
                (Arc::from(text), true)
            }
        };
        references
            .by_item
            .insert(Arc::clone(&item), (*raw).to_owned());
        references
            .unsaved
            .extend((!is_saved).then(|| Arc::clone(&item)));
        items.push(Some(item));
    }
    let expanded = with(body, |at, _| items.get(at).and_then(|item| item.as_deref()));
    Ok(expanded.map(|expanded| (expanded, references)))
}

/// The body with other messages in the place of those for which there is one. None if there is none
/// for any.
fn with<'t>(
    body: &SharedBody,
    other: impl Fn(usize, &str) -> Option<&'t str>,
) -> Option<SharedBody> {
    let wire = body.wire();
    let mut is_changed = false;
    let messages = wire.messages.iter().enumerate();
    let messages = messages.map(|(at, raw)| match other(at, raw) {
        Some(text) => {
            is_changed = true;
            (None, text)
        }
        None => (Some(at), *raw),
    });
    let messages = messages.collect();
    is_changed.then(|| {
        let written = wire.with_messages(messages).write(&BodyEdits::default());
        written.body.map(|text| text.into_owned().into())
    })
}

/// The key of an item in the data that is stored with a session.
pub(crate) fn key(id: &str) -> String {
    format!("{KEY_PREFIX}{id}")
}

/// The change of the record that stores an item with a session. None if it has no id.
pub(crate) fn change<'a>(session: &str, item: &str) -> Option<KeptChange<'a>> {
    let entry = (key(&id_of(item)?), item.to_owned());
    let name = entry.0.clone();
    Some(KeptChange::new(
        session,
        &name,
        KeptContent::Conversation,
        move |_| vec![entry.clone()],
    ))
}

impl References {
    /// Notes that the record has the items now.
    pub(crate) fn saved(&self, cache: &ItemCache, tenant: Option<&str>) {
        cache.remember(tenant, &self.unsaved, true);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_item.is_empty()
    }

    /// The changes of the record that store the items which it does not have yet.
    pub(crate) fn changes(&self, session: &str) -> impl Iterator<Item = KeptChange<'_>> {
        (self.unsaved.iter()).filter_map(move |item| change(session, item))
    }

    /// The body with references in the place of the items that are in it as they came.
    pub(crate) fn restore(&self, body: SharedBody) -> SharedBody {
        if self.is_empty() {
            return body;
        }
        let restored = with(&body, |_, raw| self.by_item.get(raw).map(String::as_str));
        restored.unwrap_or(body)
    }
}
