#![allow(clippy::unwrap_used)]
use super::*;
use crate::testing::{body, talk};

#[test]
fn a_message_is_parsed_once() {
    let text = body(&talk(0..4));
    let document = Arc::new(formats::read(text.as_str(), None).unwrap().remove(0));
    let request = Request::body(&text, None, &mut None).unwrap();
    let calls = &mut KnownCalls::default();
    let second = request.read([1], calls).unwrap().remove(0);
    let all = request.read([3, 0, 1, 2, 1], calls).unwrap();
    assert!(Arc::ptr_eq(&all[1].conversation, &second.conversation));
    let wires: Vec<_> = all.iter().map(|read| read.wires.clone()).collect();
    assert_eq!(wires, [0..1, 1..2, 2..3, 3..4]);
    let read = Request::document(&document).read([2, 3], calls).unwrap();
    let of_the_reader = |read: &ReadMessage| Arc::ptr_eq(&read.conversation, &document);
    assert!(read.iter().all(of_the_reader));
    assert_eq!(
        read.iter().map(|read| read.index).collect::<Vec<_>>(),
        [2, 3]
    );
}

/// A result of Gemini's may name only its tool. A session that was opened again reads it
/// without the message with the calls.
#[test]
fn a_result_without_an_id_is_that_of_the_call_before_it() {
    let calls = |ids: [&str; 2]| {
        let call = |id| format!(r#"{{"functionCall":{{"id":"{id}","name":"f"}}}}"#);
        format!(
            r#"{{"role":"model","parts":[{}]}}"#,
            ids.map(call).join(",")
        )
    };
    let result = r#"{"functionResponse":{"name":"f","response":{}}}"#;
    let results = format!(r#"{{"role":"user","parts":[{result},{result}]}}"#);
    let contents = [
        calls(["a", "b"]),
        results.clone(),
        calls(["c", "d"]),
        results,
    ];
    let user = r#"{"parts":[{"text":"go"}]}"#;
    let text = format!(r#"{{"contents":[{user},{}]}}"#, contents.join(","));
    let answered = |wire: usize| {
        let request = Request::body(&text, None, &mut None).unwrap();
        let calls = &mut KnownCalls::default();
        request.learn_calls(calls).unwrap();
        let read = request.read([wire], calls).unwrap();
        let ids = read
            .iter()
            .map(|read| read.message().unwrap().tool_call_id.clone().unwrap());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(answered(2), ["a", "b"]);
    assert_eq!(answered(4), ["c", "d"]);
}
