//! A model that works as coding agents' models do: the same from the same seed, over any of their tools.

use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::request::{Api, Request, field};
use crate::wire::mixed;

/// What its calls carry, by which it knows how far it is, whatever became of what stood before.
const STEP: &str = "step-";

/// Given tools, calls them until it has made its calls, then says that it is done; without tools, says something. It
/// keeps nothing: how far it is stands in the last call of the conversation, or in the summary that it was asked for, so
/// that it plays any number of sessions at a time, and goes on where all before was replaced by that summary.
#[derive(Clone, Debug)]
pub struct Coder {
    /// Different seeds say different things.
    pub seed: u64,
    /// How many rounds with calls until it is done.
    pub rounds: u64,
    /// How much text a call makes its tool give, in bytes.
    pub result: u64,
    /// In every so many rounds two calls at once; 0 is never.
    pub parallel: u64,
    /// Calls of other tools, each in every so many rounds, where the request offers that tool.
    pub also: Vec<(u64, String, Value)>,
}

impl Default for Coder {
    fn default() -> Self {
        Self {
            seed: 1,
            rounds: 40,
            result: 6000,
            parallel: 5,
            also: Vec::new(),
        }
    }
}

impl Coder {
    /// What it says when it is done: nobody else says that.
    pub fn last_words(&self) -> String {
        let round = self.rounds;
        format!(
            "All {round} checks are through; the verdict is {:016x} — fine ✓.",
            mixed(self.seed)
        )
    }

    /// What it answers to this request.
    pub fn answer(&self, request: &Request) -> Answer {
        let format = schema_of_answer(&request.json);
        if let Some(schema) = format {
            return Answer::text(example(schema, "A session of checks").to_string());
        }
        if request.tool_names().is_empty() || forbids_calls(request) {
            // A title, a summary, or a chat. A summary of work is as long as a model's.
            let mut notes = format!("Notes of {} messages so far.", request.messages().len());
            if let Some(last) = self.far(request) {
                notes.push_str(&format!(" The last was {STEP}{last}."));
                let done = |step| {
                    format!(
                        "\nPart {step} has warnings to be checked, and none so far is an error."
                    )
                };
                notes.extend((1..=last.max(8)).map(done));
            }
            return Answer::text(format!("<summary>{notes}</summary>"));
        }
        let round = self.far(request).map_or(1, |step| step + 1);
        let Some(tool) = shell(request).filter(|_| round <= self.rounds) else {
            return Answer::thinking("Nothing is left to do.").and_text(self.last_words());
        };
        let chance = mixed(self.seed.wrapping_mul(1000) + round);
        let mut answer =
            Answer::thinking(format!("Round {round}: module {} comes next.", chance % 97));
        if chance.is_multiple_of(3) {
            answer = answer.and_text(format!(
                "Checking part {round} of {} — naïve, but thorough.",
                self.rounds
            ));
        }
        let twice = self.parallel > 0 && round.is_multiple_of(self.parallel);
        for part in 0..=u64::from(twice) {
            let command = self.command(round, part, request.api);
            answer = answer.and_call(name(tool), arguments(tool, &command));
        }
        for (every, name, arguments) in &self.also {
            if round.is_multiple_of(*every) && request.tool_names().contains(&name.as_str()) {
                answer = answer.and_call(name.clone(), arguments.clone());
            }
        }
        answer
    }

    /// How far it is: the last step that the conversation tells of, unless it was done after that, and the task is new.
    fn far(&self, request: &Request) -> Option<u64> {
        let words = self.last_words();
        let told = request.messages().iter().rev().map(Value::to_string);
        let mut told = told.filter(|text| text.contains(&words) || text.contains(STEP));
        let text = told.next().filter(|text| !text.contains(&words))?;
        let digits = text[text.rfind(STEP)? + STEP.len()..].chars();
        let digits: String = digits.take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    }

    /// A command that prints as much as it should, the same each time, with words that can be searched for.
    fn command(&self, round: u64, part: u64, api: Api) -> String {
        let seed = mixed(self.seed + round * 10 + part) % 100_000;
        let lines = (self.result / 60).max(1);
        // Gemini CLI runs no command with `$(` in it.
        if api == Api::Gemini {
            return format!(
                "echo {STEP}{round}; awk 'BEGIN {{ for (i = 1; i <= {lines}; i++) \
                 print \"src/module_{seed}.rs:\" i \": warning: value \" i * {seed} % 99991 \" überprüfen\" }}'"
            );
        }
        format!(
            "echo {STEP}{round}; i=0; while [ $i -lt {lines} ]; do i=$((i+1)); \
             echo \"src/module_{seed}.rs:$i: warning: value $((i*{seed}%99991)) überprüfen\"; done"
        )
    }
}

/// Whether tools are offered only because they were before: Claude Code asks for its summaries so.
fn forbids_calls(request: &Request) -> bool {
    let calling = field(field(&request.json, "toolConfig"), "functionCallingConfig");
    let none = request.json["tool_choice"] == "none"
        || request.json["tool_choice"]["type"] == "none"
        || calling["mode"] == "NONE";
    none || request
        .last_text()
        .to_lowercase()
        .contains("do not call any tools")
}

/// The schema that an answer has to keep to, where one is asked for.
fn schema_of_answer(body: &Value) -> Option<&Value> {
    let places = [
        "/response_format/json_schema/schema",
        "/text/format/schema",
        "/output_config/format/schema",
        "/output_format/schema",
        "/generationConfig/responseJsonSchema",
        "/generationConfig/responseSchema",
    ];
    places.iter().find_map(|place| body.pointer(place))
}

/// A value that keeps to a schema.
fn example(schema: &Value, text: &str) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|all| all.first()) {
        return first.clone();
    }
    // A parameter that may be null is one that the tool does not need.
    if let Some(all) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let null = all.iter().find(|one| one["type"] == "null");
        return null
            .or(all.first())
            .map_or(Value::Null, |one| example(one, text));
    }
    // Gemini's own schemas have types in capitals.
    let kind = schema["type"].as_str().or(schema["type"][0].as_str());
    match kind.map(str::to_lowercase).as_deref() {
        Some("object") => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields
                .map(|(key, schema)| (key.clone(), example(schema, text)))
                .collect::<Map<_, _>>()
                .into()
        }
        Some("array") => json!([]),
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(false),
        Some("null") => Value::Null,
        _ => json!(text),
    }
}

fn definition(tool: &Value) -> &Value {
    if tool["function"].is_object() {
        &tool["function"]
    } else {
        tool
    }
}

fn name(tool: &Value) -> &str {
    definition(tool)["name"].as_str().unwrap_or_default()
}

fn properties(tool: &Value) -> Option<&Map<String, Value>> {
    let tool = definition(tool);
    let mut schemas = SCHEMAS.iter().map(|key| &tool[*key]["properties"]);
    schemas.find_map(Value::as_object)
}

/// The members of a tool that may have the schema of its arguments.
const SCHEMAS: [&str; 4] = [
    "input_schema",
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
];

/// The tool that runs a command: one that takes a `command` or a `cmd`.
fn shell(request: &Request) -> Option<&Value> {
    let tools = request.tools();
    let runs = |tool: &Value| {
        let takes = |key: &&str| properties(tool).is_some_and(|all| all.contains_key(*key));
        COMMAND.iter().any(takes) || runs_scripts(tool)
    };
    let known = [
        "bash", "exec_command", "shell", "shell_command", "terminal", "local_shell",
        "run_shell_command",
    ];
    let is_known = |tool: &&Value| known.contains(&name(tool).to_lowercase().as_str());
    let runners: Vec<&Value> = tools.into_iter().filter(|tool| runs(tool)).collect();
    let first = runners.first().copied();
    runners.into_iter().find(is_known).or(first)
}

/// Names of a tool's parameter for the command that it runs.
const COMMAND: [&str; 3] = ["command", "cmd", "commands"];

/// Whether the tool runs scripts that run commands, like Codex's `exec`, which takes JavaScript as plain text.
fn runs_scripts(tool: &Value) -> bool {
    let description = tool["description"].as_str().unwrap_or_default();
    tool["type"] == "custom" && description.contains("tools.exec_command")
}

/// Arguments that keep to the tool's schema and run this.
fn arguments(tool: &Value, command: &str) -> Value {
    if runs_scripts(tool) {
        let script = format!(
            "text((await tools.exec_command({{cmd: {}}})).output);",
            json!(command)
        );
        return json!({"input": script});
    }
    let definition = definition(tool);
    let schema = SCHEMAS
        .iter()
        .find_map(|key| definition.get(*key))
        .unwrap_or(&Value::Null);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut arguments = Map::new();
    for (key, schema) in properties(tool).into_iter().flatten() {
        if COMMAND.contains(&key.as_str()) {
            let value = match schema["type"].as_str() {
                Some("array") if key == "commands" => json!([command]),
                Some("array") => json!(["bash", "-c", command]),
                _ => json!(command),
            };
            arguments.insert(key.clone(), value);
        } else if required.iter().any(|one| one == key) {
            arguments.insert(key.clone(), example(schema, "Looks at one part"));
        }
    }
    arguments.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_that_may_be_null_is_null() {
        let number = json!({"type": "number"});
        for (schema, value) in [
            (json!({"anyOf": [number, {"type": "null"}]}), Value::Null),
            (json!({"oneOf": [{"type": "null"}, number]}), Value::Null),
            (json!({"anyOf": [number, {"type": "string"}]}), json!(1)),
        ] {
            assert_eq!(example(&schema, "text"), value);
        }
    }
}
