"""Servers of 2026-07-28, which have no handshake, return questions as results, and send changes to those who listen."""

from __future__ import annotations

import sys
from pathlib import Path

from plugins.api.tool import ApprovalRequest
from plugins.mcp.mcp_settings import ServerKeys
from tests.mcp.mcp_stage import call_context, opened, report, run
from tests.waiting import until

MODERN = ServerKeys(command=(sys.executable, str(Path(__file__).with_name("sdk_server.py"))))


async def test_a_question_that_is_a_result_is_asked_in_the_conversation_of_its_call(tmp_path: Path) -> None:
    asked: list[str] = []

    async def ask(question: ApprovalRequest) -> bool:
        asked.append(question.what)
        return True

    async with opened(tmp_path, modern=MODERN) as source:
        assert report(source, "modern").protocol == "2026-07-28", report(source, "modern").problem
        answer = await run(source, "modern_remove", call_context(ask=ask), table="users")
        assert asked == ["Remove users?"]
        assert answer.text == "users: accept"
        refused = await run(source, "modern_remove", table="users")
        assert refused.text == "users: decline"


async def test_a_change_of_the_tools_is_noticed(tmp_path: Path) -> None:
    async with opened(tmp_path, modern=MODERN) as source:
        await run(source, "modern_grow")
        await until(lambda: "modern_grown" in source.tools())
