"""Sends one OpenAI and one Anthropic request through one gateway: ``python examples/gateway/two_upstreams.py``.

Needs the command ``contexture`` on the PATH (or its path in ``CONTEXTURE``), and the keys ``OPENAI_API_KEY`` and
``ANTHROPIC_API_KEY``. The argument is another configuration than the one beside this file.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

config = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("config.yaml")
program = os.environ.get("CONTEXTURE", "contexture")
question = [{"role": "user", "content": "Name a prime number above 100."}]
REQUESTS = [
    (
        "/v1/chat/completions",
        {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
        {"model": "gpt-4o", "messages": question},
    ),
    (
        "/v1/messages",
        {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"},
        {"model": "claude-sonnet-4-6", "max_tokens": 100, "messages": question},
    ),
]


def text_of(answer: dict) -> str:
    """The text of an answer of either API."""
    if "choices" in answer:
        return answer["choices"][0]["message"]["content"]
    return "".join(block.get("text", "") for block in answer["content"])


with tempfile.TemporaryDirectory() as home:
    # A home of its own, so that trying this leaves nothing behind.
    environment = {**os.environ, "CONTEXTURE_HOME": home}
    command = [program, "--config", str(config), "serve"]
    gateway = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        for line in gateway.stderr:
            if "listening on http://" in line:
                base = "http://" + line.split("http://")[1].split(",")[0].strip()
                break
            sys.stderr.write(line)
        else:
            sys.exit(f"{program} serve ended with {gateway.wait()}")
        for path, headers, body in REQUESTS:
            request = urllib.request.Request(
                base + path,
                json.dumps(body).encode(),
                {"content-type": "application/json", **headers},
            )
            with urllib.request.urlopen(request) as reply:
                status = reply.headers["x-contexture-status"]
                print(f"{path} ({status}): {text_of(json.load(reply))}")
    finally:
        gateway.terminate()
        gateway.communicate()
