"""An engine that does something wrong in one method: `fault` in its settings is `FAULT:METHOD`."""
import json
import os
import subprocess
import sys
import time

import helper  # lies beside it, as the parts of a larger engine do

settings = {}


def commit(fault, call):
    if fault == "exit":
        sys.exit(3)
    if fault == "kill":
        os.kill(os.getpid(), 9)
    if fault == "hang":
        # Another process that holds standard output open has to end as well.
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)
    if fault in ("orphan", "daemon"):
        # What it leaves behind holds its standard streams open.
        is_daemon = fault == "daemon"
        subprocess.Popen(["sleep", "5" if is_daemon else "600"], cwd="/" if is_daemon else ".", start_new_session=is_daemon)
        os._exit(4)
    if fault == "stuck":
        open("waits", "w").close()
        time.sleep(600)
    if fault == "wait":
        open("waits", "w").close()
        sys.stdin.readline()
    if fault == "ask":
        ask_everything()
    if fault == "garbage":
        print("thinking about it …", flush=True)
    if fault == "other_id":
        send(id=call["id"] + 7, result=None)
    if fault == "float_id":
        send(id=float(call["id"]), result=None)
    if fault == "nan":
        send(id=call["id"], result=float("nan"))
    if fault == "null_id":
        send(id=None, result=None)
    if fault == "two_ids":
        print('{"id": 1, "id": 1}', flush=True)
    if fault == "text_error":
        send(id=call["id"], error="boom")
    if fault == "batch":
        print("[]", flush=True)
    if fault == "pretty":
        print(json.dumps({"id": call["id"], "result": None}, indent=1), flush=True)
    if fault == "unended":
        sys.stdout.write('{"id": 1, "')
        sys.stdout.flush()
        time.sleep(600)
    if fault == "missing":
        raise NotImplementedError
    if fault == "silent":
        raise SilentError
    if fault == "endless":
        while True:
            sys.stdout.write("x" * 1_000_000)
    if fault == "eat":
        bytearray(2 << 30)
    if fault == "raise":
        raise RuntimeError("raised on purpose")


class SilentError(Exception):
    pass


def spoil(fault, result):
    """Makes an answer worse than it was."""
    if fault == "two_keys":
        result["nothing_to_do"] = "x"
    if fault == "notes":
        result["compacted"]["notes"] = ["n" * 100_000] * 200
    if fault == "deferred":
        return {"deferred": "later " * 100_000}
    return result


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask_everything():
    """Services in the middle of a call, several at once, and what is wrong with some of them."""
    send(method="log", params=["warn", "told without waiting"])
    send(method="log", params={"level": "warn", "text": "by name"})
    asked = [("count_tokens", ["two words"]), ("supports", ["notice"]), ("nowhere", []), ("log", ["warn"]), ("model", None)]
    asked += [("count_tokens", {"text": "two words"}), ("model", "x")]
    for at, (service, params) in enumerate(asked):
        send(id=f"s{at}", method=service, params=params)
    answers = [json.loads(sys.stdin.readline()) for _ in asked]
    assert [one["id"] for one in answers] == [f"s{at}" for at in range(len(asked))], answers
    assert answers[0]["result"] == 2 and answers[1]["result"] is True and answers[4]["result"] is None, answers
    wrong = answers[2:4] + answers[5:]
    assert [one["error"]["code"] for one in wrong] == [-32601, -32602, -32602, -32602], answers


def answer(method, params):
    if method == "initialize":
        return {"name": helper.NAME, "version": "1"}
    if method == "open":
        settings.update(json.loads(params[0]["settings"]))
    if method == "should_compress":
        full = params[0]["prompt_tokens"] * 2 > params[0]["context_length"]
        return {"yes" if full else "no": "by its size"}
    if method == "compress":
        gone, kept = params[0][:-4], params[0][-4:]
        summary = {"text": "gone", "covers": [one["id"] for one in gone]}
        return {"compacted": {"entries": [{"summary": summary}, *({"keep": one["id"]} for one in kept)]}}


for line in sys.stdin:
    call = json.loads(line)
    fault, _, method = settings.get("fault", "").partition(":")
    try:
        if call["method"] == method:
            commit(fault, call)
        known = call["method"] in ("initialize", "open", "should_compress", "compress", "observe")
        more = {"result": answer(call["method"], call["params"])} if known else {"error": {"code": -32601, "message": ""}}
        if call["method"] == method:
            more["result"] = spoil(fault, more["result"])
    except NotImplementedError:
        more = {"error": {"code": -32601, "message": ""}}
    except SilentError:
        more = {"error": {"code": -5, "message": ""}}
    except Exception as error:
        more = {"error": {"code": -32000, "message": repr(error), "data": {"storage": repr(error)}}}
    send(id=call["id"], **more)
