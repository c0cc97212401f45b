"""The providers' own clients against an address: bodies, streams, tools, errors. Ends with 0 where all is as it should be."""

import sys
import warnings

import anthropic
import openai

# A client that does not know what it reads says so.
warnings.simplefilter("error")
base = sys.argv[1]
schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
said = [{"role": "user", "content": "Look."}]


def messages():
    client = anthropic.Anthropic(base_url=base, api_key="x", max_retries=0)
    tools = [{"name": "bash", "description": "Runs a command", "input_schema": schema}]
    asked = dict(model="claude-opus-4-8", max_tokens=4000, tools=tools, thinking={"type": "adaptive"})
    history = list(said)
    rounds = 0
    while True:
        if rounds % 2:
            with client.messages.stream(messages=history, **asked) as stream:
                kinds = {event.type for event in stream}
                answer = stream.get_final_message()
            assert {"message_start", "content_block_delta", "message_stop"} <= kinds, kinds
        else:
            answer = client.messages.create(messages=history, **asked)
        assert answer.usage.output_tokens > 0
        history.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            assert answer.stop_reason == "end_turn" and rounds >= 6
            break
        assert answer.stop_reason == "tool_use" and "command" in calls[0].input
        assert answer.content[0].type == "thinking" and answer.content[0].signature
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "seen"} for call in calls]
        history.append({"role": "user", "content": results})
        rounds += 1
    counted = client.messages.count_tokens(model="claude-opus-4-8", messages=said).input_tokens
    assert counted > 0
    assert any(model.id == "claude-opus-4-8" for model in client.models.list())
    try:
        client.messages.create(model="claude-opus-4-8", max_tokens=10, messages=[{"role": "assistant", "content": "No."}])
        raise AssertionError("not refused")
    except anthropic.BadRequestError as error:
        assert "first message" in error.message and error.request_id, error


def chat():
    client = openai.OpenAI(base_url=base + "/v1", api_key="x", max_retries=0)
    tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
    history = list(said)
    rounds = 0
    while True:
        asked = dict(model="gpt-5.2", messages=history, tools=tools)
        if rounds % 2:
            with client.chat.completions.stream(stream_options={"include_usage": True}, **asked) as stream:
                answer = [event for event in stream] and stream.get_final_completion()
        else:
            answer = client.chat.completions.create(**asked)
        assert answer.usage.completion_tokens > 0
        message = answer.choices[0].message
        dumped = message.model_dump(exclude_none=True, exclude={"parsed"})
        for call in dumped.get("tool_calls", []):
            call.pop("index", None)
            call["function"].pop("parsed_arguments", None)
        history.append(dumped)
        if not message.tool_calls:
            assert answer.choices[0].finish_reason == "stop" and rounds >= 6
            break
        history += [{"role": "tool", "tool_call_id": call.id, "content": "seen"} for call in message.tool_calls]
        rounds += 1
    try:
        client.chat.completions.create(model="gpt-5.2", messages=[{"role": "tool", "tool_call_id": "a", "content": "b"}])
        raise AssertionError("not refused")
    except openai.BadRequestError as error:
        assert error.param == "messages.[0].role", error


def responses():
    client = openai.OpenAI(base_url=base + "/v1", api_key="x", max_retries=0)
    tools = [{"type": "function", "name": "bash", "parameters": schema, "strict": False}]
    history = list(said)
    rounds = 0
    while True:
        asked = dict(model="gpt-5.2", input=history, tools=tools, store=False, include=["reasoning.encrypted_content"])
        if rounds % 2:
            with client.responses.stream(**asked) as stream:
                kinds = [event.type for event in stream]
                answer = stream.get_final_response()
            assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
        else:
            answer = client.responses.create(**asked)
        assert answer.status == "completed" and answer.usage.output_tokens > 0
        history += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            assert answer.output_text and rounds >= 6
            break
        history += [{"type": "function_call_output", "call_id": call.call_id, "output": "seen"} for call in calls]
        rounds += 1
    stored = client.responses.create(model="gpt-5.2", input="Hello.")
    assert client.responses.create(model="gpt-5.2", input="And?", previous_response_id=stored.id).output_text


messages()
chat()
responses()
print("all is as it should be")
