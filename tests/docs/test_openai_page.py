"""The page on OpenAI's API: its program runs, and it names every error."""

from __future__ import annotations

import asyncio
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import gateway
from tests.gateway.gateways import TOKEN
from tests.gateway.gateways import gateway as running

PAGE = (Path(__file__).parents[2] / "docs" / "openai.md").read_text(encoding="utf-8")


async def test_the_programs_of_the_page_get_answers(tmp_path: Path) -> None:
    program = "".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    async with running(tmp_path, script=[{"text": "Hello back."}] * 3) as g:
        program = program.replace("http://127.0.0.1:7117", g.url).replace("the token of HOME/token", TOKEN)
        with redirect_stdout(StringIO()) as out:
            await asyncio.to_thread(exec, program, {})  # our own page
    assert out.getvalue() == "Hello back.\nHello back.\n"


async def test_the_command_of_the_page_says_something_to_a_session(tmp_path: Path) -> None:
    (command,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    async with running(tmp_path, script=[{"text": "Hello back."}]) as g:
        headers = dict(re.findall(r'-H "([\w-]+): ([^"]+)"', command.replace("$TOKEN", TOKEN)))
        (body,) = re.findall(r"-d '(.*?)'", command)
        async with g.http.post(f"{g.url}/v1/chat/completions", data=body, headers=headers) as response:
            assert response.headers["X-Exuvia-Seq"] == "2"
            assert "Hello " in await response.text()
        assert len(g.journals()) == 1


def test_every_code_of_an_error_is_on_the_page() -> None:
    room = Path(gateway.__file__).parent / "http" / "openai"
    source = "".join(path.read_text(encoding="utf-8") for path in room.rglob("*.py"))
    codes = set(re.findall(r'code="(\w+)"', source)) | set(re.findall(r'_Meaning\(\d+, "\w+", "(\w+)"\)', source))
    codes |= set(re.findall(r'bad_request\([^()]*?, \w+, "(\w+)"', source))
    assert len(codes) > 8
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
