"""A server over standard streams that misbehaves as it is told, without a library: `python stdio_server.py [FOLDER]`.

It speaks 2025-11-25. Files in FOLDER change it while it runs: `tools.json` is what it lists. It notes what it is sent in
`received`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/nonexistent")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # a PNG


def tool(name: str, description: str = "", **more: object) -> dict[str, object]:
    return {"name": name, "description": description, "inputSchema": {"type": "object", "properties": {}}, **more}


TRAP = {"type": "object", "properties": {"answer": {"type": "string", "pattern": "^(a+)+$"}}}

TOOLS = [
    tool("echo", "Return the text.", annotations={"readOnlyHint": True}),
    tool("look", "Return the files that exist."),
    tool("pid", "Return the process id."),
    tool("spawn", "Start processes that outlive this one."),
    tool("die", "End without an answer."),
    tool("wait", "Never answer."),
    tool("big", "Return much text."),
    tool("dense", "Return a million lists."),
    tool("endless", "Never end the answer."),
    tool("noise", "Write lines that are no messages, then answer."),
    tool("picture", "Return a picture and links."),
    tool("structured", "Return structured content."),
    tool("trap", "Return what does not fit its own schema.", outputSchema=TRAP),
    tool("fail", "Report a failure."),
    tool("slow", "Report progress."),
    tool("ask", "Ask the person."),
    tool("sample", "Ask for sampling and roots."),
]


def send(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(content: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": content}], **more}


def note(message: object) -> None:
    if FOLDER.is_dir():
        with (FOLDER / "received").open("a") as received:
            received.write(json.dumps(message) + "\n")


def read() -> dict[str, object]:
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    message = json.loads(line)
    note(message)
    return dict(message)


def ask(method: str, params: dict[str, object]) -> object:
    send({"id": 9000, "method": method, "params": params})
    while (message := read()).get("id") != 9000 or "method" in message:
        pass
    return message.get("result", message.get("error"))


def call(  # noqa: PLR0911, PLR0912 - one branch for each tool
    number: object, name: str, arguments: dict[str, object], token: object
) -> dict[str, object] | None:
    match name:
        case "echo":
            return text(str(arguments.get("text")))
        case "look":
            return text(" ".join(path for path in str(arguments["paths"]).split() if os.path.exists(path)))
        case "pid":
            return text(str(os.getpid()))
        case "spawn":
            child = "import os, time, sys; print(os.getpid(), flush=True); time.sleep(1000)"
            started = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, start_new_session=True)
            assert started.stdout is not None
            return text(started.stdout.readline().decode().strip())
        case "die":
            os._exit(3)
        case "wait":
            return None
        case "big":
            return text("x" * int(str(arguments["size"])))
        case "dense":
            return {"content": [], "structuredContent": {"x": [[]] * 1_000_000}}
        case "endless":
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{number},"result":{{"content":[{{"type":"text","text":"')
            while True:
                sys.stdout.write("x" * 65536)
        case "noise":
            sys.stdout.write("hello\n\n{not json\n[]\n" * 1000)
            return text("done")
        case "picture":
            link = {"type": "resource_link", "uri": "file:///notes.md", "name": "notes"}
            return {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}, link]}
        case "structured":
            return {"content": [], "structuredContent": {"answer": 42}}
        case "trap":
            return {"content": [], "structuredContent": {"answer": "a" * 25 + "!"}}
        case "fail":
            return text("It is broken.", isError=True)
        case "slow":
            for step in range(3):
                progress = {"progressToken": token, "progress": step, "total": 3, "message": f"step {step}"}
                send({"method": "notifications/progress", "params": progress})
                time.sleep(0.25)
            return text("done")
        case "ask":
            return text(json.dumps(ask("elicitation/create", dict(arguments))))
        case "sample":
            sampling = ask("sampling/createMessage", {"messages": [], "maxTokens": 5})
            return text(json.dumps([sampling, ask("roots/list", {})]))
    return text(f"no tool {name}", isError=True)


def main() -> None:
    while True:
        message = read()
        number, method = message.get("id"), message.get("method")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if number is None:
            continue
        if method == "initialize":
            capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
            info = {"name": "misbehaving", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            send({"id": number, "result": result})
        elif method == "tools/list":
            listed = FOLDER / "tools.json"
            send({"id": number, "result": {"tools": json.loads(listed.read_text()) if listed.is_file() else TOOLS}})
        elif method == "prompts/list":
            send({"id": number, "result": {"prompts": [{"name": "greet", "arguments": [{"name": "who"}]}]}})
        elif method == "prompts/get":
            greeting = f"Greet {params['arguments']['who']}."
            messages = [{"role": "user", "content": {"type": "text", "text": greeting}}]
            send({"id": number, "result": {"messages": messages}})
        elif method == "resources/list":
            send({"id": number, "result": {"resources": [{"uri": "memo:one", "name": "one"}]}})
        elif method == "resources/read":
            send({"id": number, "result": {"contents": [{"uri": "memo:one", "text": "the first memo"}]}})
        elif method == "tools/call":
            arguments = params.get("arguments") or {}
            answer = call(number, params["name"], arguments, (params.get("_meta") or {}).get("progressToken"))
            if answer is not None:
                send({"id": number, "result": answer})
            if (FOLDER / "changed").is_file():
                (FOLDER / "changed").unlink()
                send({"method": "notifications/tools/list_changed"})
        else:
            send({"id": number, "error": {"code": -32601, "message": "Method not found"}})


if __name__ == "__main__":
    main()
