"""An interrupted indexing run continues where it stopped, and a change of the model embeds no more than it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from plugins.api.memory.scope import EVERYTHING
from tests.memory.places import Place

NOTES = 400

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.memory.places import Place

async def index():
    place = Place(Path(sys.argv[1]))
    made = place.provider.embed
    async def embed(texts, purpose):
        with open(sys.argv[2], "a") as log:
            log.writelines(text.split()[-1] + "\\n" for text in texts)
        vectors = await made(texts, purpose)
        if len(place.provider.texts) >= int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return vectors
    place.provider.embed = embed
    async with place.memory("counted") as memory:
        await memory.update(lambda _: None)

asyncio.run(index())
"""


def test_indexing_that_is_killed_embeds_nothing_twice_that_was_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for number in range(NOTES):
        place.put(f"memory/note{number}.md", f"this is number {number}\n")
    log = tmp_path / "embedded"
    ends = []
    for stop in (100, 150, NOTES * 2):
        command = [sys.executable, "-c", KILLED, str(tmp_path), str(log), str(stop)]
        ends.append(subprocess.run(command, check=False).returncode)
    assert ends == [-9, -9, 0]
    embedded = log.read_text().split()
    assert set(embedded) == {str(number) for number in range(NOTES)}
    assert len(embedded) <= NOTES + 2 * 16, "what was under way at each of the two ends, and no more"


async def test_vectors_of_another_model_are_made_beside_the_old_which_are_there_when_it_comes_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put("MEMORY.md", "# A\n\nthe door\n\n# B\n\nthe window\n")
    async with place.memory("counted") as memory:
        await memory.update(lambda _: None)
        place.provider.named = "other"
        await memory.update(lambda _: None)
        assert len(place.provider.texts) == 4
        place.provider.letters = 99  # the new model's are others for the same texts
        assert (await memory.search("door", EVERYTHING)).hits[0].ranked.candidate.cosine is not None
        place.provider.named = "letters"
        assert (await memory.search("door", EVERYTHING)).hits[0].ranked.candidate.cosine is not None
        assert len(place.provider.texts) == 4
