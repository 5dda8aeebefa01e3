"""The `read` tool, and that nothing outside the workspace can be read with it, by neither way of opening."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from exuvia import NoSettings, PluginContext, Tool, ToolContext, ToolFailed
from plugins.support import safe_open
from plugins.support.safe_open import Opener, OutsideFolder, open_at_once, open_beneath, open_step_by_step
from plugins.testing.contexts import ManualClock, in_memory_services
from plugins.tools import read as workspace_files
from plugins.tools.read import Read
from tests.open_files import open_below

SECRET = "the secret outside"
CALL = ToolContext(session="s", person="owner", turn=1, call="call_1_0")


class Place:
    """A workspace, a secret beside it, and the tool on that workspace."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.outside = folder / "outside"
        self.secret = self.outside / "secret.txt"
        self.workspace.mkdir()
        self.outside.mkdir()
        self.secret.write_text(SECRET)
        self.tool = read_tool(self.workspace)

    async def read(self, path: object = "note.txt", **others: object) -> str:
        return (await self.tool.run({"path": path, **others}, CALL)).text

    async def refusal(self, path: object = "note.txt", **others: object) -> str:
        with pytest.raises(ToolFailed) as refused:
            await self.read(path, **others)
        return str(refused.value)


def read_tool(workspace: Path) -> Read:
    context = PluginContext(
        settings=NoSettings(),
        folder=workspace,
        workspace=workspace,
        clock=ManualClock(),
        transport=cast(Any, None),
        environment=os.environ,
        services=in_memory_services(),
    )
    return Read(context)


def openers() -> list[Opener]:
    """Both ways, or only the portable one on a system without the other."""
    return [open_step_by_step] if safe_open.best_opener() is open_step_by_step else [open_step_by_step, open_at_once]


@pytest.fixture(params=openers(), ids=lambda opener: opener.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(safe_open, "best_opener", lambda: request.param)
    return Place(tmp_path)


# --- what is read -----------------------------------------------------------------------------------------------------


async def test_a_file_is_read_by_its_path_from_the_workspace_or_its_whole_path(place: Place) -> None:
    (place.workspace / "a").mkdir()
    note = place.workspace / "a" / "note.txt"
    note.write_text("naïve\r\n", newline="")

    for path in ("a/note.txt", "./a//note.txt", "a/./note.txt", str(note)):
        assert await place.read(path) == "naïve\r\n"


async def test_a_workspace_that_is_itself_a_link_is_its_owners_choice(place: Place, tmp_path: Path) -> None:
    (place.workspace / "note.txt").write_text("here")
    link = tmp_path / "link"
    link.symlink_to(place.workspace)
    place.tool = read_tool(link)

    assert await place.read("note.txt") == "here"
    assert await place.read(str(link / "note.txt")) == "here"
    assert await place.read(str(place.workspace / "note.txt")) == "here"


async def test_a_folder_is_listed_with_its_folders_marked(place: Place) -> None:
    (place.workspace / "b.txt").touch()
    (place.workspace / "a").mkdir()
    (place.workspace / "evil\nname").touch()
    os.mkdir(os.fsencode(place.workspace) + b"/\xff")
    (place.workspace / "link").symlink_to(place.outside)

    listing = "a/\nb.txt\nevil�name\nlink\n�/"
    assert await place.read(".") == listing
    assert await place.read(str(place.workspace)) == listing
    assert await place.read("a") == "(The folder is empty.)"


async def test_a_folder_of_many_names_is_listed_in_part(place: Place) -> None:
    for number in range(501):
        (place.workspace / f"{number:03}").touch()
    lines = (await place.read(".")).splitlines()
    assert lines == [*sorted(lines[:-1]), "[Only the first 500 entries are listed.]"]
    assert len(lines) == 501


async def test_a_file_is_read_from_a_line_for_some_lines_and_says_how_to_read_on(place: Place) -> None:
    (place.workspace / "note.txt").write_text("one\ntwo\u2028still two\nthree\nfour")

    assert await place.read(limit=1) == "one\n[Truncated; continue with offset 2.]"
    assert await place.read(offset=2, limit="2") == ("two\u2028still two\nthree\n[Truncated; continue with offset 4.]")
    assert await place.read(offset=4) == await place.read(offset=4, limit=1) == "four"
    assert await place.read(offset=4, limit=9) == "four"
    assert await place.refusal(offset=5) == "The file ends before line 5."
    assert await place.refusal(offset=500) == "The file ends before line 500."


async def test_an_empty_file_says_so(place: Place) -> None:
    (place.workspace / "note.txt").touch()
    assert await place.read() == "(The file is empty.)"
    assert await place.refusal(offset=2) == "The file ends before line 2."


async def test_a_long_file_comes_in_pieces_that_join_to_the_whole(place: Place) -> None:
    written = "".join(f"line {number} with some text – and ümläuts\n" for number in range(20_000)) + "the end"
    (place.workspace / "note.txt").write_text(written)

    got, offset = "", 1
    while True:
        answer = await place.read(offset=offset)
        assert len(answer.encode()) <= 256 * 1024
        text, note, following = answer.rpartition("[Truncated; continue with offset ")
        if not note:
            break
        got, offset = got + text, int(following.removesuffix(".]"))

    assert got + answer == written
    assert offset > 1


@pytest.mark.parametrize("length", [255 * 1024 - 1, 255 * 1024, 255 * 1024 + 1])
@pytest.mark.parametrize("end", ["", "\n"])
async def test_a_line_about_as_long_as_an_answer_is_whole_or_says_that_it_is_not(
    place: Place, length: int, end: str
) -> None:
    line = "x" * (length - len(end)) + end
    (place.workspace / "note.txt").write_text(line)
    answer = await place.read()
    if length <= 255 * 1024:
        assert answer == line
    else:
        assert answer == f"{line[: 255 * 1024]}\n[Line 1 is truncated; continue after it with offset 2.]"


async def test_a_line_too_long_for_an_answer_is_cut_between_characters_and_passed_over(place: Place) -> None:
    (place.workspace / "note.txt").write_text("first\n" + "€" * 200_000 + "\nlast\n")

    assert await place.read() == "first\n[Truncated; continue with offset 2.]"
    text, note = (await place.read(offset=2)).split("\n")
    assert text == "€" * (255 * 1024 // 3)
    assert note == "[Line 2 is truncated; continue after it with offset 3.]"
    assert await place.read(offset=3) == "last\n"


async def test_bytes_that_are_no_utf8_are_replaced_and_the_answer_stays_bounded(place: Place) -> None:
    (place.workspace / "note.txt").write_bytes(b"caf\xe9\n")
    assert await place.read() == "caf�\n"

    (place.workspace / "note.txt").write_bytes((b"\xe9" * 99 + b"\n") * 5000)
    assert len((await place.read()).encode()) <= 256 * 1024
    (place.workspace / "note.txt").write_bytes(b"\xe9" * 1_000_000)
    assert len((await place.read()).encode()) <= 256 * 1024


@pytest.mark.parametrize("before", [0, 100, 9000])
async def test_a_binary_file_is_refused(place: Place, before: int) -> None:
    (place.workspace / "note.txt").write_bytes(b"a\n" * before + b"PNG\0\n" + b"a\n")
    assert await place.refusal() == "The file is not a text file."


async def test_a_line_beyond_what_is_passed_over_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_files, "MAX_SKIPPED_BYTES", 2 << 20)
    (place.workspace / "note.txt").write_text("x" * (3 << 20) + "\n\n")
    assert "beyond the first 2 MiB" in await place.refusal(offset=2)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"path": None},
        {"path": 1},
        {"path": ""},
        {"path": ["a"]},
        {"path": "a", "offset": 0},
        {"path": "a", "limit": -1},
        {"path": "a", "offset": 10**30},
        {"path": "a", "offset": "first"},
    ],
)
async def test_arguments_that_make_no_sense_are_refused_with_a_sentence(tmp_path: Path, arguments: dict[str, Any]) -> None:
    (tmp_path / "a").write_text("a\n")
    with pytest.raises(ToolFailed, match=r"^Invalid arguments: |^The file ends before line "):
        await read_tool(tmp_path).run(arguments, CALL)


async def test_what_is_not_there_is_said(place: Place) -> None:
    assert await place.refusal("nowhere.txt") == "The file cannot be opened: No such file or directory."
    (place.workspace / "note.txt").touch()
    assert await place.refusal("note.txt/deeper") == "The file cannot be opened: Not a directory."
    place.tool = read_tool(place.workspace / "gone")
    assert await place.refusal() == "The file cannot be opened: No such file or directory."


def test_it_is_a_tool_that_may_be_run_again() -> None:
    assert isinstance(read_tool(Path()), Tool)
    assert Read.repeatable


# --- what is never read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "../outside/secret.txt",
        "a/../../outside/secret.txt",
        "a/..",
        "..",
        "/etc/passwd",
        "/",
        "//etc/passwd",
        "/proc/self/environ",
        "/proc/self/cwd/note.txt",
        "/dev/stdin",
    ],
)
async def test_a_path_that_leads_out_is_refused(place: Place, path: str) -> None:
    (place.workspace / "a").mkdir()
    assert await place.refusal(path) in (
        "The path lies outside the workspace.",
        "A path with .. is not followed; name the file from the workspace on.",
    )


async def test_a_whole_path_that_leads_out_of_the_workspace_again_is_refused(place: Place) -> None:
    assert "A path with .." in await place.refusal(f"{place.workspace}/../outside/secret.txt")
    twin = place.workspace.with_name("workspace-twin")
    twin.mkdir()
    (twin / "note.txt").write_text(SECRET)
    assert "outside the workspace" in await place.refusal(str(twin / "note.txt"))


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("note.txt\0", "A path cannot contain a NUL."),
        ("secret\0/../note.txt", "A path cannot contain a NUL."),
        ("\ud800", "The path is not text that a file's name can be."),
        ("a/" * 3000, "The path is longer than 4,096 bytes."),
        ("a" * 300, "The file cannot be opened: File name too long."),
    ],
)
async def test_a_path_that_is_no_path_is_refused(place: Place, path: str, sentence: str) -> None:
    assert await place.refusal(path) == sentence


async def test_no_symbolic_link_is_followed_not_even_one_that_stays_inside(place: Place) -> None:
    (place.workspace / "real").mkdir()
    (place.workspace / "real" / "note.txt").write_text("inside")
    (place.workspace / "to_file").symlink_to(place.secret)
    (place.workspace / "to_folder").symlink_to(place.outside)
    (place.workspace / "inside").symlink_to("real/note.txt")
    (place.workspace / "inside_folder").symlink_to("real")
    (place.workspace / "to_itself").symlink_to("to_itself")
    (place.workspace / "magic").symlink_to("/proc/self/root")

    for path in (
        "to_file",
        "to_folder",
        "to_folder/secret.txt",
        "inside",
        "inside_folder/note.txt",
        "to_itself",
        "magic/etc/passwd",
    ):
        assert await place.refusal(path) == "Symbolic links are not followed.", path


async def test_a_file_with_a_second_name_is_refused(place: Place) -> None:
    os.link(place.secret, place.workspace / "note.txt")
    assert (await place.refusal()).startswith("The file has a second name")


async def test_a_pipe_a_socket_and_a_device_are_refused_at_once(place: Place) -> None:
    os.mkfifo(place.workspace / "pipe")
    assert "pipe, socket or device" in await place.refusal("pipe")

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place.workspace / "s"))
        assert await place.refusal("s") == "The file cannot be opened: No such device or address."


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device file")
async def test_a_device_file_is_refused(place: Place) -> None:
    try:
        os.mknod(place.workspace / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container lets nobody make a device file")
    try:
        assert "pipe, socket or device" in await place.refusal("zero")
    except AssertionError:
        # A file system mounted with nodev refuses the opening itself, which is as good.
        assert await place.refusal("zero") == "The file cannot be opened: Permission denied."


async def test_no_descriptor_is_left_open_whatever_was_asked(place: Place) -> None:
    (place.workspace / "note.txt").write_text("one\n")
    (place.workspace / "deep").mkdir()
    (place.workspace / "link").symlink_to(place.outside)
    os.mkfifo(place.workspace / "pipe")
    os.link(place.secret, place.workspace / "second")
    await place.read()
    before = open_below(place.workspace, place.outside)

    for path in ("note.txt", "deep", ".", "link", "link/secret.txt", "pipe", "second", "deep/none", "note.txt/x"):
        try:
            await place.read(path)
        except ToolFailed:
            continue

    assert open_below(place.workspace, place.outside) == before


# --- races ------------------------------------------------------------------------------------------------------------


@contextmanager
def swapping(shown: Path, aside: Path, link: Path) -> Iterator[None]:
    """Meanwhile `shown` is by turns what it was and the symbolic link, as fast as a thread can."""
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            shown.rename(aside)
            link.rename(shown)
            shown.rename(link)
            aside.rename(shown)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def seen(folder: Path, name: str, opener: Opener) -> str:
    try:
        opened = open_beneath(folder, name, opener)
    except (OutsideFolder, NotADirectoryError):
        return "refused"
    except FileNotFoundError:
        return "missing"
    with open(opened, encoding="utf-8") as file:
        return file.read()


@pytest.mark.parametrize("opener", openers(), ids=lambda opener: opener.__name__)
@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_a_swap_at_the_worst_moment_shows_nothing_from_outside(tmp_path: Path, opener: Opener, swapped: str) -> None:
    place = Place(tmp_path)
    folder = place.workspace / "folder"
    folder.mkdir()
    (folder / "secret.txt").write_text("harmless")
    shown = folder if swapped == "folder" else folder / "secret.txt"
    link = tmp_path / "link"
    link.symlink_to(place.outside if swapped == "folder" else place.secret)

    answers: Counter[str] = Counter()
    with swapping(shown, tmp_path / "aside", link):
        # On a busy machine the two threads may take long to meet: at least 2,000 times, and until both sides were seen.
        while answers.total() < 2000 or not (answers["harmless"] and answers["refused"]):
            answers[seen(place.workspace, "folder/secret.txt", opener)] += 1
            assert answers.total() < 500_000, f"only ever saw {answers}"

    assert set(answers) <= {"harmless", "refused", "missing"}


def test_a_system_without_openat2_gets_the_portable_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def filtered(root: int, parts: tuple[str, ...]) -> int:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(safe_open, "open_at_once", filtered)
    assert safe_open.best_opener.__wrapped__() is open_step_by_step
