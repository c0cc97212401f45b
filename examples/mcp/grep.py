"""Searches a stored session as a client of the Model Context Protocol: ``python examples/mcp/grep.py SESSION PATTERN``.

Needs the command ``contexture`` on the PATH (or its path in ``CONTEXTURE``), and a session of the lossless engine. This one
command makes one: ``contexture import examples/coding-session.json --session demo``.
"""

import json
import os
import subprocess
import sys

session, pattern = sys.argv[1:3]
command = [os.environ.get("CONTEXTURE", "contexture"), "mcp", "--session", session]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def send(message: dict) -> None:
    """Sends a message: one line of JSON."""
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()


def ask(number: int, method: str, params: dict) -> dict:
    """Sends a request and reads its result."""
    send({"id": number, "method": method, "params": params})
    line = server.stdout.readline()
    if not line:
        sys.exit(server.wait() or 1)  # it has said why
    reply = json.loads(line)
    if "error" in reply:
        sys.exit(reply["error"]["message"])
    return reply["result"]


client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "grep", "version": "1"}}
ask(1, "initialize", client)
send({"method": "notifications/initialized"})
tools = ask(2, "tools/list", {})["tools"]
print("tools:", ", ".join(tool["name"] for tool in tools))

call = {"name": "lcm_grep", "arguments": {"pattern": pattern}}
result = ask(3, "tools/call", call)
print(result["content"][0]["text"])

server.stdin.close()
sys.exit(server.wait() or (1 if result.get("isError") else 0))
