//! Bodies of a conversation that no request brought, after a compaction that no engine made.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::borrow::Cow;

use contexture_engine_api::ToolSpec;
use contexture_formats::Format;
use contexture_formats::prompt_cache::{CacheProvider, Ttl};
use serde_json::{Value, json};

use contexture_transcript::EntryContent;

use super::*;
use crate::testing::{body, conversation, message, say, talk};

fn renderer() -> Renderer {
    Renderer::new(true, &History::default(), Warnings::of("s"))
}

/// Replaces all messages of the window but the last by a summary.
fn compact(current: &mut ConversationState) {
    let window = Arc::make_mut(&mut current.window);
    let content = EntryContent::Summary {
        text: "[CONTEXT COMPACTION]\nwhat was said".to_owned(),
        in_system_role: false,
    };
    let summary = WindowEntry::put_in(window.fresh_id(), content, &current.counter);
    let last = window.entries().last().unwrap().clone();
    let next_id = window.next_id();
    current.replace_window(Window::of(vec![summary, last], None, next_id));
}

fn rendered(renderer: &mut Renderer, current: &mut ConversationState, text: &str) -> String {
    let request = Request::body(text, None, &mut None).unwrap();
    let draft = renderer.render(current, &request, None);
    serialised(draft).into_owned()
}

fn serialised<'b>(draft: BodyDraft<'_, 'b>) -> Cow<'b, str> {
    draft.serialise(&Warnings::of("s")).unwrap().into_parts().0
}

#[test]
fn without_a_compaction_the_clients_bytes_leave() {
    let messages = talk(0..3);
    let mut current = conversation(&messages);
    let text = body(&messages);
    let request = Request::body(&text, None, &mut None).unwrap();
    let draft = renderer().render(&mut current, &request, None);
    assert!(!draft.is_changed());
    assert_eq!(draft.messages(), [0, 1, 2].map(BodyMessage::Kept));
    assert!(matches!(serialised(draft), Cow::Borrowed(same) if same == text));
}

#[test]
fn what_a_compaction_left_leaves_and_what_follows_is_appended_to_it() {
    let messages = talk(0..5);
    let mut current = conversation(&messages[..3]);
    let mut renderer = renderer();
    compact(&mut current);
    let first = rendered(&mut renderer, &mut current, &body(&messages[..3]));
    assert!(first.contains("what was said"), "{first}");
    assert!(!first.contains(&messages[0]) && first.contains(&messages[2]));
    say(&mut current, &messages[3..]);
    renderer.continue_from(3);
    let second = rendered(&mut renderer, &mut current, &body(&messages));
    let begun = first.strip_suffix("]}").unwrap();
    assert!(second.starts_with(begun), "{first}\n{second}");
    assert!(second.contains(&messages[4]));
}

#[test]
fn a_client_that_goes_on_from_the_body_is_understood() {
    let messages = talk(0..3);
    let mut current = conversation(&messages);
    compact(&mut current);
    let out = rendered(&mut renderer(), &mut current, &body(&messages));
    let wire = formats::split(&out, None).unwrap();
    let raw: Vec<u64> = wire.messages.iter().map(|raw| raw_hash(raw)).collect();
    let rendered = current.history.rendered();
    assert_eq!(rendered.raw, raw);
    let origins: Vec<Origin> = rendered.units.iter().map(|unit| unit.origin).collect();
    let (summary, last) = (MessageId(4), MessageId(3));
    assert_eq!(origins, [Origin::Host(summary), Origin::Said(last)]);
}

#[test]
fn a_document_is_laid_out_like_a_request_and_has_no_body() {
    let messages = talk(0..3);
    let mut current = conversation(&messages);
    compact(&mut current);
    let text = body(&messages);
    let read = Arc::new(formats::read(text.as_str(), None).unwrap().remove(0));
    let document = Request::document(&read);
    let draft = renderer().render(&mut current, &document, None);
    let laid_out = draft.messages();
    assert!(draft.serialise(&Warnings::of("s")).is_none());
    // Nothing was sent, so there is nothing that a client could go on from.
    assert!(current.history.rendered().is_empty());
    let request = Request::body(&text, None, &mut None).unwrap();
    let draft = renderer().render(&mut current, &request, None);
    assert_eq!(draft.messages(), laid_out);
    assert!(!current.history.rendered().is_empty());
}

#[test]
fn a_view_is_for_one_request() {
    let messages = talk(0..3);
    let mut current = conversation(&messages);
    let text = body(&messages);
    let request = Request::body(&text, None, &mut None).unwrap();
    let entries = current.window.entries().iter().skip(2).cloned().collect();
    let view = Window::of(entries, None, 4);
    let mut renderer = renderer();
    let draft = renderer.render(&mut current, &request, Some(&view));
    assert_eq!(draft.messages(), [BodyMessage::Kept(2)]);
    assert_eq!(rendered(&mut renderer, &mut current, &text), text);
}

#[test]
fn tools_and_markers_are_added_and_are_no_change_of_the_messages() {
    let messages = [message("user", "hello")];
    let mut current = conversation(&messages);
    let text = body(&messages);
    let request = Request::body(&text, Some(Format::OpenAiChat), &mut None).unwrap();
    let draft = renderer().render(&mut current, &request, None);
    let tool = ToolSpec::new("look", "finds", json!({"type": "object"}));
    let draft = draft.tools(vec![tool], true);
    let draft = draft.markers(Some((CacheProvider::OpenRouter, Ttl::OneHour)));
    assert!(!draft.is_changed());
    let sent: Value = serde_json::from_str(&serialised(draft)).unwrap();
    assert_eq!(sent["tools"][0]["function"]["name"], "look");
    assert_eq!(sent["tool_choice"], "none");
    let marker = &sent["messages"][0]["content"][0]["cache_control"];
    assert_eq!(marker, &json!({"type": "ephemeral", "ttl": "1h"}));
}
