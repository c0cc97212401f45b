//! Tools that the provider runs: a call and its result stay together, also if they are in different messages. The engines
//! compact conversations with every kind of such a tool, cut everywhere, and the provider refuses nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use contexture_provider_simulator::{Answer, encrypted};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;
use serde_json::{Value, json};
use support::Stage;
use support::agent::{Agent, Api};

const ENGINES: [&str; 5] = ["compressor", "lcm", "tiered", "two-layer", "virtual-files"];

/// What the model says in one round, and the client's answers to it. Each ends with the client.
type Round = fn(usize) -> Vec<Value>;

fn words(round: usize) -> String {
    format!(
        "In round {round} it was {}",
        "as the report says. ".repeat(60)
    )
}

fn assistant(blocks: Vec<Value>) -> Value {
    json!({"role": "assistant", "content": blocks})
}

/// A paused turn: the call is in one message, and the result in the next.
fn paused(round: usize, call: Value, kind: &str, result: Value) -> Vec<Value> {
    let result = json!({"type": kind, "tool_use_id": call["id"], "content": result});
    vec![
        assistant(vec![json!({"type": "text", "text": words(round)}), call]),
        assistant(vec![
            result,
            json!({"type": "text", "text": words(round)}),
            json!({"type": "tool_use", "id": format!("toolu_{round}"), "name": "run", "input": {}}),
        ]),
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": format!("toolu_{round}"), "content": words(round)}]}),
    ]
}

fn server_call(round: usize, name: &str) -> Value {
    json!({"type": "server_tool_use", "id": format!("srvtoolu_{round}"), "name": name, "input": {"query": "q"}})
}

fn web_search(round: usize) -> Vec<Value> {
    let found = json!([{"type": "web_search_result", "url": "https://x.test", "title": "X", "encrypted_content": "E"}]);
    paused(
        round,
        server_call(round, "web_search"),
        "web_search_tool_result",
        found,
    )
}

fn mcp(round: usize) -> Vec<Value> {
    let call = json!({"type": "mcp_tool_use", "id": format!("mcptoolu_{round}"), "name": "look", "server_name": "s", "input": {}});
    paused(
        round,
        call,
        "mcp_tool_result",
        json!([{"type": "text", "text": words(round)}]),
    )
}

/// Code that the provider runs calls a tool of the client's, twice, before its result is there.
fn code_that_calls(round: usize) -> Vec<Value> {
    let code = server_call(round, "code_execution");
    let calls = |id: &str| {
        let caller = json!({"type": "code_execution_20260120", "tool_id": code["id"]});
        json!({"type": "tool_use", "id": format!("toolu_{round}_{id}"), "name": "run", "input": {}, "caller": caller})
    };
    let result = |id: &str| {
        let id = format!("toolu_{round}_{id}");
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": words(round)}]})
    };
    let ran = json!({"type": "code_execution_result", "stdout": words(round), "stderr": "", "return_code": 0});
    let ran =
        json!({"type": "code_execution_tool_result", "tool_use_id": code["id"], "content": ran});
    vec![
        assistant(vec![code.clone(), calls("a")]),
        result("a"),
        assistant(vec![calls("b")]),
        result("b"),
        assistant(vec![ran, json!({"type": "text", "text": words(round)})]),
        json!({"role": "user", "content": words(round)}),
    ]
}

/// Everything in one message, as it is if nothing pauses the turn.
fn at_once(round: usize) -> Vec<Value> {
    let mut all = web_search(round);
    let rest = all.remove(1)["content"].take();
    all[0]["content"]
        .as_array_mut()
        .unwrap()
        .extend(rest.as_array().unwrap().clone());
    all
}

fn item(kind: &str, round: usize, more: Value) -> Value {
    let mut item = json!({"type": kind, "id": format!("{}_{kind}_{round}", &kind[..2])});
    for (key, value) in more.as_object().unwrap() {
        item[key] = value.clone();
    }
    item
}

/// Reasoning, then these items, then what the model says of them, then the user.
fn hosted(round: usize, items: Vec<Value>) -> Vec<Value> {
    let reasoning = json!({"type": "reasoning", "id": format!("rs_{round}"), "summary": [],
        "encrypted_content": encrypted("Hm.")});
    let said = json!({"type": "message", "id": format!("msg_{round}"), "role": "assistant",
        "content": [{"type": "output_text", "text": words(round), "annotations": []}]});
    let mut all = vec![reasoning];
    all.extend(items);
    all.push(said);
    all.push(json!({"role": "user", "content": words(round)}));
    all
}

/// A call that the client answers with an item of its own.
fn answered(round: usize, kind: &str, call: Value, output: Value) -> Vec<Value> {
    let id = format!("call_{round}");
    let mut call = item(kind, round, call);
    call["call_id"] = json!(id);
    let output = json!({"type": format!("{kind}_output"), "call_id": id, "output": output});
    hosted(round, vec![call, output])
}

fn openai_hosted(round: usize) -> Vec<Value> {
    let search = item(
        "web_search_call",
        round,
        json!({"status": "completed", "action": {"type": "search", "query": "q"}}),
    );
    let code = item(
        "code_interpreter_call",
        round,
        json!({"code": words(round), "container_id": "c", "outputs": []}),
    );
    let mcp = item(
        "mcp_call",
        round,
        json!({"name": "look", "server_label": "s", "arguments": "{}", "output": words(round)}),
    );
    hosted(round, vec![search, code, mcp])
}

fn approved(round: usize) -> Vec<Value> {
    let asks = item(
        "mcp_approval_request",
        round,
        json!({"name": "look", "server_label": "s", "arguments": "{}"}),
    );
    let says = json!({"type": "mcp_approval_response", "approval_request_id": asks["id"], "approve": true});
    let ran = json!({"approval_request_id": asks["id"], "name": "look", "server_label": "s", "arguments": "{}", "output": words(round)});
    hosted(round, vec![asks, says, item("mcp_call", round, ran)])
}

fn computer(round: usize) -> Vec<Value> {
    let call = json!({"action": {"type": "screenshot"}, "pending_safety_checks": []});
    let screen =
        json!({"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="});
    answered(round, "computer_call", call, screen)
}

fn local_shell(round: usize) -> Vec<Value> {
    let call =
        json!({"action": {"type": "exec", "command": ["ls"], "env": {}}, "status": "completed"});
    answered(round, "local_shell_call", call, json!(words(round)))
}

fn shell(round: usize) -> Vec<Value> {
    let output = json!([{"stdout": words(round), "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]);
    answered(
        round,
        "shell_call",
        json!({"action": {"commands": ["ls"]}}),
        output,
    )
}

fn apply_patch(round: usize) -> Vec<Value> {
    let call = json!({"operation": {"type": "delete_file", "path": "a"}, "status": "completed"});
    answered(round, "apply_patch_call", call, json!(words(round)))
}

fn custom(round: usize) -> Vec<Value> {
    answered(
        round,
        "custom_tool_call",
        json!({"name": "run", "input": "ls"}),
        json!(words(round)),
    )
}

fn gemini_code(round: usize) -> Vec<Value> {
    let parts = json!([
        {"executableCode": {"language": "PYTHON", "code": words(round)}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": words(round)}},
        {"text": words(round)},
    ]);
    vec![
        json!({"role": "model", "parts": parts}),
        json!({"role": "user", "parts": [{"text": words(round)}]}),
    ]
}

const ROUNDS: [(&str, Api, Round); 12] = [
    ("web search", Api::Messages, web_search),
    ("mcp", Api::Messages, mcp),
    ("code that calls", Api::Messages, code_that_calls),
    ("at once", Api::Messages, at_once),
    ("hosted", Api::Responses, openai_hosted),
    ("approval", Api::Responses, approved),
    ("computer", Api::Responses, computer),
    ("local shell", Api::Responses, local_shell),
    ("shell", Api::Responses, shell),
    ("apply patch", Api::Responses, apply_patch),
    ("custom", Api::Responses, custom),
    ("code", Api::Gemini, gemini_code),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_the_providers_and_its_result_stay_together() {
    for engine in ENGINES {
        let stage = Stage::new(&format!(
            "context: {{engine: {engine}}}\nmodel: {{context_length: 9000}}\ncompression: {{timing: threshold}}\n"
        ));
        stage.provider.answer_with(|_| Answer::text("Yes."));
        let gateway = stage.gateway().await;
        for (kind, api, round) in ROUNDS {
            let mut shorter = 0;
            for rounds in [18, 19] {
                let mut agent = Agent::new(api, &gateway.base, "");
                agent.stream = false;
                agent.user(&format!("Look at {kind} {rounds} times."));
                agent.history.extend((0..rounds).flat_map(round));
                let said = agent.send().await;
                let status = said.header("x-contexture-status");
                assert_eq!(
                    status,
                    "managed",
                    "{engine}, {kind}: {:?}",
                    stage.provider.violations()
                );
                let sent = stage.provider.requests().pop().unwrap();
                shorter += usize::from(sent.messages() != agent.history);
            }
            // An engine may also shorten results on each request.
            assert!(shorter > 0, "{engine}, {kind}");
            let refused = stage.provider.violations();
            assert!(refused.is_empty(), "{engine}, {kind}: {refused:#?}");
        }
    }
}
