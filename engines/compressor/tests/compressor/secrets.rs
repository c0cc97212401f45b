//! No secret reaches the summary model or a summary, wherever in a message it stands.

use contexture_engine_api::*;

use crate::chat::*;
use crate::corpus::{Case, leak, placements, secrets};

fn chat_about(cases: &[Case]) -> Chat {
    let mut chat = Chat::default();
    chat.user("Look at the keys.");
    chat.assistant("Gladly.");
    for case in cases {
        for placed in placements(&case.text) {
            match (placed.role, placed.arguments) {
                ("tool", _) => _ = chat.tool("run", "{}", placed.text),
                (_, Some(arguments)) => _ = chat.tool("run", &arguments, "done"),
                (role, None) => _ = chat.push(role, placed.text),
            }
        }
    }
    chat.talk(20, 2_000);
    chat
}

fn check(what: &str, text: &str, cases: &[Case]) {
    if let Some(case) = leak(text, cases) {
        panic!("{what} holds the secret of {}: {text}", case.kind);
    }
}

#[test]
fn no_secret_reaches_a_model_or_a_summary() {
    for cases in secrets(6, 1).chunks(12) {
        let chat = chat_about(cases);
        for with_model in [true, false] {
            let host = match with_model {
                true => ScriptedHost::with_model(200_000),
                false => ScriptedHost::without_model(),
            };
            let window = chat.window(chat.tokens(), 0);
            let mut session = open(&host, "{}", &window);
            let asked = order(window)
                .may_wait_for_model(with_model)
                .force(true)
                .focus(Some(format!("the keys {}", cases[0].text)))
                .memory(Some(format!("note\n{}", cases[0].text)));
            let (after, _) = session.compacted(&chat, &asked);
            let requests = host.model.requests();
            if with_model {
                let prompts: String = requests.iter().map(|request| &*request.prompt).collect();
                assert!(prompts.contains("[call of run]") && prompts.contains("masked"));
            }
            for request in requests {
                check("a request", &request.system, cases);
                check("a request", &request.prompt, cases);
            }
            let summaries = after.messages.iter();
            for summary in summaries.filter(|message| message.kind == MessageKind::Summary) {
                check("a summary", &summary.text, cases);
            }
        }
    }
}
