"""What the model was shown, computed from a journal's lines as docs/events.md says, without any code of the product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Frame = dict[str, Any]
PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
RECALLED = PAGE.partition("the last line:\n\n```text\n")[2].partition("\n")[0]
FRAME = PAGE.partition("The frame of a summary is\n\n```text\n")[2].partition("\n```\n")[0]


def request_by_the_page(lines: list[Frame]) -> list[Frame]:
    """The head and the messages of a request that is sent after these lines."""
    head: Frame = {}
    for line in lines:
        if line["kind"] == "instructions_set":
            notes = [f"# {note['path']}\n\n{note['text']}" for note in line["notes"]]
            text = "\n\n".join([line["text"], *notes])
            head = {"instructions": text, "parameters": line["parameters"], "tools": line["tools"]}
    return [head, *messages_by_the_page(lines)]


def messages_by_the_page(lines: list[Frame]) -> list[Frame]:
    """The messages: all that were ever added, without what a compaction that still counts removed."""
    texts = edited_by_the_page(lines)
    started = {line["turn"]: line["seq"] for line in lines if line["kind"] == "turn_started"}
    added = [
        (started[line["turn"]] if line["kind"] == "memory_recalled" else line["seq"], message)
        for line in lines
        for message in added_by(line, lines, texts)
    ]
    keep_from, summary = 1, ""
    for line in lines:
        if line["kind"] == "context_compacted":
            keep_from, summary = line["keep_from"], line["summary"]
        elif line["kind"] == "compaction_reverted":
            cuts = [cut for cut in lines if cut["kind"] == "context_compacted" and cut["compaction"] == line["to"]]
            keep_from, summary = line["keep_from"], cuts[0]["summary"] if cuts else ""
    first = [{"role": "user", "attachments": [], "text": FRAME.replace("…", summary, 1)}] if summary else []
    return [*first, *(message for seq, message in added if seq >= keep_from)]


def added_by(line: Frame, lines: list[Frame], texts: dict[int, str]) -> list[Frame]:
    """Return the messages that one line adds."""
    match line["kind"]:
        case "turn_started" | "turn_joined":
            taken = [lines[seq - 1] for seq in line["takes"]]
            return [{"role": "user", "text": texts[one["seq"]], "attachments": one["attachments"]} for one in taken]
        case "model_replied" if line["text"] or line["calls"] or "opaque" in line:
            calls = [
                {"arguments": call["arguments"], "id": f"call_{line['seq']}_{index}", "tool": call["tool"]}
                for index, call in enumerate(line["calls"])
            ]
            return [{"role": "assistant", "text": line["text"], "calls": calls, "opaque": line.get("opaque")}]
        case "memory_recalled":
            return [{"role": "user", "text": texts[line["seq"]], "attachments": []}]
        case "changes_undone" if "told" in line:
            return [{"role": "user", "text": texts[line["seq"]], "attachments": []}]
        case "tool_returned":
            of, index = line["call"]["of"], line["call"]["index"]
            tool = lines[of - 1]["calls"][index]["tool"]
            failed = line["outcome"] != "returned"
            return [{"role": "tool", "id": f"call_{of}_{index}", "tool": tool, "text": texts[line["seq"]], "failed": failed}]
    return []


def edited_by_the_page(lines: list[Frame]) -> dict[int, str]:
    """The texts by seq, as all edits together leave them."""
    texts = {line["seq"]: str(line.get("output", line.get("told", line.get("text", "")))) for line in lines}
    texts |= {line["seq"]: recalled_by_the_page(line) for line in lines if line["kind"] == "memory_recalled"}
    edits: dict[int, list[Frame]] = {}
    for line in lines:
        for edit in line.get("edits", ()):
            edits.setdefault(edit["of"], []).append(edit)
    return {seq: shown_by_the_page(text, edits.get(seq, [])) for seq, text in texts.items()}


def recalled_by_the_page(line: Frame) -> str:
    """The text of the message that shows what was recalled."""
    shown = []
    for hit in line["hits"]:
        headings = f" ({' > '.join(hit['headings'])})" if "headings" in hit else ""
        shown += [f"[{line['mark']}] {hit['path']}#L{hit['lines'][0]}-L{hit['lines'][1]}{headings}:", hit["text"]]
    return "\n".join([RECALLED, "", *shown, f"[{line['mark']}] end"])


def shown_by_the_page(text: str, edits: list[Frame]) -> str:
    """A text under its edits."""
    if cleared := [edit["note"] for edit in edits if edit["how"] == "clear"]:
        return str(min(cleared))
    if not edits:
        return text
    head, tail = min(edit["head"] for edit in edits), min(edit["tail"] for edit in edits)
    if head + tail >= len(text):
        return text
    note = min(edit.get("note", "") for edit in edits)
    shown = text[:head] + "\n...\n" + text[len(text) - tail :]
    return f"{shown}\n\n{note}" if note else shown
