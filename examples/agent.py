"""An agent that keeps its conversation inside the window: ``python examples/agent.py gpt-4o 128000``.

Needs the packages ``contexture`` and ``openai``; the key and, for a local server, the address come from ``OPENAI_API_KEY``
and ``OPENAI_BASE_URL``.
"""

import sys

import contexture
import openai

model, window = sys.argv[1], int(sys.argv[2])
client = openai.OpenAI()
messages = [{"role": "system", "content": "You are a helpful assistant. Search with lcm_grep for what was left out."}]

with contexture.Host().session("example", model, window, engine="lcm") as session:
    tools = session.tools()
    for line in sys.stdin:
        messages.append({"role": "user", "content": line.strip()})
        while True:
            turn = session.turn({"model": model, "messages": messages, "tools": tools})
            messages = turn.messages
            reply = client.chat.completions.create(**turn.body)
            answer = reply.choices[0].message.model_dump(exclude_none=True)
            session.answer(answer, reply.usage)
            messages.append(answer)
            if not answer.get("tool_calls"):
                break
            for call in answer["tool_calls"]:
                try:
                    text = session.call_tool(call["function"]["name"], call["function"]["arguments"])
                except contexture.ToolError as error:
                    text = str(error)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        print(answer["content"])
