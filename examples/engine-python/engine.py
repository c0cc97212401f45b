"""A context engine in Python. docs/engine-protocol.md describes the messages that it reads and writes."""
import json
import sys


class Engine:
    def initialize(self, host):
        return {"name": "engine-python", "version": "0.1.0", "about": {"offers_tools": True}}

    def open(self, request):
        self.keep_last = json.loads(request["settings"]).get("keep_last", 20)
        self.outlines = (request["compaction"] or {}).get("summaries", [])

    def should_compress(self, window):
        tokens, length = window["reported_tokens"] or window["prompt_tokens"], window["context_length"]
        # If what has to stay is large, the window is soon half full again.
        waits = window["compactions"] and window["requests_since_compaction"] < 4 and tokens < 0.85 * length
        return {"yes" if tokens * 2 >= length and not waits else "no": f"{tokens} of {length} tokens"}

    def compress(self, messages, order):
        room = order["window"]["context_length"] * 0.35 - order["window"]["fixed_tokens"]
        keep, kept = self.keep_last, self.kept(messages, self.keep_last)
        while sum(messages[at]["tokens"] for at in kept) > room and keep > 1:
            keep //= 2
            kept = self.kept(messages, keep)
        gone = [message for at, message in enumerate(messages) if at not in kept]
        if sum(message["tokens"] for message in gone) < 1000:
            return {"nothing_to_do": f"little stands before the last {keep} messages"}
        summary = {"text": self.outline(gone), "covers": [message["id"] for message in gone]}
        keeps = [{"keep": messages[at]["id"]} for at in sorted(kept)]
        return {"compacted": {"entries": [{"summary": summary}, *keeps]}}

    def kept(self, messages, keep):
        """The last messages and the user's last one, with the calls and results that belong to them."""
        said = [at for at, one in enumerate(messages) if one["role"] == "user" and one["kind"] == "original"]
        kept, groups, calls = {*range(len(messages))[-keep:], *said[-1:]}, [], {}
        for at, message in enumerate(messages):
            calls.update({call["id"]: at for call in message["tool_calls"]})
            groups.append(set(range(calls.get(message["tool_call_id"], at), at + 1)))
            if message["continues"] and at:
                groups.append({at - 1, at})
            if message["has_thinking"] and at + 1 < len(messages):
                groups.append({at, at + 1})  # thinking stays with the message after it
        while grown := [group for group in groups if kept & group and not kept >= group]:
            kept.update(*grown)
        return kept

    def outline(self, messages):
        lines = []
        for message in messages:
            if message["kind"] == "summary":
                lines += message["text"].splitlines()[1:]
            else:
                names = [call["name"] for call in message["tool_calls"]]
                lines.append(" ".join([message["role"] + ":", *message["text"].split(), *names])[:80])
        return "An outline of the earlier conversation:\n" + "\n".join(lines[-30:])

    def committed(self, committed):
        self.outlines = [one["summary"]["text"] for one in committed["entries"] if "summary" in one] or self.outlines

    def tools(self):
        description = "Returns the outline of what left the window."
        return [{"name": "outline", "description": description, "parameters": {"type": "object"}}]

    def call_tool(self, call):
        if call["name"] != "outline" or json.loads(call["arguments"]) != {}:
            raise ValueError("the tool `outline` takes an empty object")
        ask("log", "info", "the agent reads the outline")
        return "\n".join(self.outlines) or "nothing has left the window yet"


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(service, *params):
    """Calls a service of the host and waits for its answer."""
    send(id=service, method=service, params=params)
    answer = json.loads(sys.stdin.readline())
    if "error" in answer:
        raise RuntimeError(answer["error"]["message"])
    return answer["result"]


sys.stdin.reconfigure(encoding="utf-8")
engine = Engine()
for line in iter(sys.stdin.readline, ""):
    call = json.loads(line)
    try:
        method = getattr(engine, call["method"], None)
        if method is None:
            send(id=call["id"], error={"code": -32601, "message": "there is no such method"})
        else:
            send(id=call["id"], result=method(*call["params"]))
    except Exception as error:
        code = -32602 if isinstance(error, ValueError) else -32000
        send(id=call["id"], error={"code": code, "message": str(error)})
