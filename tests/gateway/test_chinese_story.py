"""A whole session in Chinese: instructions, search, notes and recall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from plugins.policies.languages.prompts import language
from plugins.policies.summary_sections import SECTIONS
from plugins.testing.servers.faulty_server import Json
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.gateway.gateways import gateway
from tests.gateway.test_fact_finding import of_kind
from tests.waiting import until

CHINESE, ENGLISH = language("zh"), language("en")
LIKES = "小林最喜欢的城市是成都"
LONG = "我们今天继续整理港口仓库的货物清单，逐项核对编号、数量和存放位置，并把结果写进表格。" * 12


def purpose(body: Json) -> str:
    """Return the purpose of a request, recognised by its Chinese instructions."""
    told = body["messages"][0]["content"]
    beginnings = {
        "flush": CHINESE.flush.system,
        "summary": CHINESE.summary.system,
        "extraction": CHINESE.facts.extraction[:20],
        "distillation": CHINESE.facts.distillation[:20],
    }
    return next((name for name, text in beginnings.items() if told.startswith(text)), "answer")


def said(body: Json) -> ScriptedResponse:
    """Answer as a model that speaks Chinese."""
    row = {"content": LIKES, "type": "preference", "importance": 0.8, "tags": []}
    match purpose(body):
        case "flush":
            return ScriptedResponse("- 小林最喜欢的城市是成都，仓库编号 CK-2041")
        case "summary":
            below = dict.fromkeys(SECTIONS, "- 整理港口仓库的货物清单，核对编号 CK-2041")
            return ScriptedResponse("\n\n".join(f"## {name}\n{text}" for name, text in below.items()))
        case "extraction":
            text = body["messages"][-1]["content"]
            return ScriptedResponse(json.dumps({"facts": [row] if "成都" in text else []}, ensure_ascii=False))
        case "distillation":
            return ScriptedResponse(json.dumps({"facts": [{**row, "from": [1], "supersedes": []}]}, ensure_ascii=False))
        case _:
            return ScriptedResponse("好的。")


async def test_a_chinese_session_is_flushed_summarised_extracted_distilled_and_recalled_in_chinese(tmp_path: Path) -> None:
    async with OpenAIServer(respond=said).serving() as server:
        settings: dict[str, Any] = {
            "agent.model": "openai:fake",
            "agent.language": "zh",
            "agent.context_window": 8000,
            "providers.openai.base_url": server.url,
            "providers.openai.api_key": KEY,
            "memory.embedding.provider": "none",
            "memory.facts.quiet_seconds": 0.05,
        }
        async with gateway(tmp_path, settings=settings) as on:
            client = await on.connect()
            await client.chat("我叫小林，我最喜欢的城市是成都，仓库编号是 CK-2041。")
            for number in range(2):
                await client.chat(f"第 {number} 次：{LONG}")
            compacted = await client.command("/compact")
            await until(lambda: len(of_kind(on, "facts_extracted")) == 3)
            distilled = await client.command("/distill")
            await client.command("/new")
            await client.chat("我最喜欢的城市是哪里？")
        journals = on.journals()
    asked = {purpose(body) for body in server.requests}
    assert asked == {"answer", "flush", "summary", "extraction", "distillation"}
    shown = [body for body in server.requests if purpose(body) == "answer"]
    assert all(body["messages"][0]["content"].startswith(CHINESE.instructions[:60]) for body in shown)
    english = [ENGLISH.flush.how, ENGLISH.record, ENGLISH.summary.headings, ENGLISH.facts.question]
    assert not [text for text in english if any(text in json.dumps(body, ensure_ascii=False) for body in server.requests)]
    assert "整理港口仓库的货物清单" in compacted
    assert distilled == "Distilled 1 new fact into 1 long-term fact."
    events = [line for lines in journals.values() for line in lines]
    flushed = [line for line in events if line["kind"] == "memory_flushed"]
    assert all("成都" in line["text"] for line in flushed)
    assert flushed
    (note,) = (tmp_path / "workspace" / "memory").iterdir()
    assert "小林最喜欢的城市是成都" in note.read_text()
    recalled = [hit["text"] for line in events if line["kind"] == "memory_recalled" for hit in line["hits"]]
    assert LIKES in recalled
