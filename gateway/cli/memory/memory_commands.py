"""The work of `exuvia memory index|search|show|status`. Each function prints and returns an exit code."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.config.keys import Config, check_backend, check_embedding
from gateway.config.settings import Settings, agent_settings
from gateway.conversations.notes.workspace_memory import chosen_sources, open_memory
from gateway.models.providers import OpenProviders, open_embeddings, provider_contexts
from gateway.plugin_runtime.plugin_loading import allowed_plugins
from gateway.support.clock import SystemClock
from gateway.support.errors import GatewayError
from gateway.support.printable import printable
from gateway.support.session_status import count_of, span
from plugins.api.context import Clock
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import SQLITE, MemoryKeys
from plugins.api.plugin_services import IndexUnusable
from plugins.http.client import Transport
from plugins.memory.index.backend_lifecycle import LOCAL
from plugins.memory.index.index_stats import IndexStats, read_index_stats
from plugins.memory.index.indexer import IndexState
from plugins.memory.memory import Memory, SearchResult
from plugins.memory.search.candidates import Ranked
from plugins.memory.search.diagnostics import found_without_vectors, without_vectors
from plugins.memory.search.search import Hit
from plugins.memory.sources.notes import Notes
from plugins.support.errors import ProviderError
from plugins.support.text.words import occurrences
from plugins.support.workspace import parse_citation
from sessions.catalog.sqlite import Error, lacks_full_text
from sessions.files.fsync import make_folder

T = TypeVar("T")


class SearchFailed(GatewayError):
    """The notes could not be indexed or searched; `str(error)` is a sentence."""


def index_notes(call: Invocation) -> int:
    """Update the index and print its contents, with progress bars on a terminal. An interrupted run can be continued."""

    async def index() -> tuple[IndexState, str, bool]:
        async with opened_memory(call, call.config()) as memory:
            with _progress(call.out, shown=call.out.isatty() and not call.as_json) as show:
                state = await memory.update(show)
            provider = memory.provider()
            if provider is None and (why := memory.why_no_provider()):
                raise SearchFailed(f"{without_vectors(by_words=memory.by_words)}: {why}.")
            return state, f"{provider.name}:{provider.model()}" if provider else "", memory.by_words

    state, model, by_words = run_search(index())
    if call.as_json:
        counts = {"notes": state.documents, "chunks": state.chunks, "unembedded": state.unembedded}
        print_json({**counts, "model": model or None}, call.out)
        return SUCCESS
    embedded = f"{state.chunks - state.unembedded} have vectors by {model}"
    how = embedded if model else found_without_vectors(by_words=by_words)
    call.out.write(f"{state.documents} notes, {state.chunks} chunks: {how}.\n")
    if state.vector_problem:
        call.out.write(f"({printable(state.vector_problem)})\n")
    return SUCCESS


@contextlib.contextmanager
def _progress(out: TextIO, *, shown: bool) -> Iterator[Callable[[IndexState], None]]:
    """Show two progress bars: notes read and chunks embedded."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - 60 ms, for a terminal only
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=out), transient=True) as bars:
        read, embedded = bars.add_task("read", total=None), bars.add_task("embedded", total=None)

        def show(state: IndexState) -> None:
            bars.update(read, completed=state.documents - state.pending, total=state.documents)
            bars.update(embedded, completed=state.chunks - state.unembedded, total=state.chunks)

        yield show


def search_notes(call: Invocation, query: str, *, results: int | None, explain: bool) -> int:
    """Print the search results. Return 1 if nothing was found."""

    async def search() -> SearchResult:
        async with opened_memory(call, call.config()) as memory:
            return await memory.search(query, EVERYTHING, results=results)

    found = run_search(search())
    if call.as_json:
        rows = [_row(hit) for hit in found.hits]
        print_json({"results": rows, "remarks": found.remarks}, call.out)
        return SUCCESS if found.hits else PROBLEM
    shown = _bold if call.out.isatty() and "NO_COLOR" not in call.environment else lambda text, _: text
    for hit in found.hits:
        call.out.write(f"{printable(_heading(hit, explain=explain))}\n{shown(printable(hit.chunk.text), query)}\n\n")
    for remark in found.remarks:
        call.out.write(f"({printable(remark)})\n")
    return SUCCESS if found.hits else PROBLEM


def _row(hit: Hit) -> dict[str, Any]:
    candidate = hit.ranked.candidate
    return {
        "citation": hit.citation,
        "score": hit.ranked.score,
        "fused": hit.ranked.fused,
        "decay": hit.ranked.decay,
        "parts": [{"name": part.name, "value": part.value, "weight": part.weight} for part in hit.ranked.parts],
        "keywords": candidate.keywords,
        "cosine": candidate.cosine,
        "headings": hit.chunk.headings,
        "text": hit.chunk.text,
    }


def show_place(call: Invocation, place: str) -> int:
    """Print the text at a citation. Return 1 if there is none."""
    cited = parse_citation(place)
    if cited is None:
        raise SearchFailed(f"{place} is not a citation such as MEMORY.md#L3-L7.")
    path, first, last = cited

    async def read() -> str | None:
        async with opened_memory(call, call.config()) as memory:
            return await memory.excerpt(path, first, max(1, last - first + 1), EVERYTHING)

    if text := run_search(read()):
        call.out.write(printable(text).rstrip("\n") + "\n")
        return SUCCESS
    call.out.write(f"(There is nothing at {printable(place)}.)\n")
    return PROBLEM


def _heading(hit: Hit, *, explain: bool) -> str:
    ranked = hit.ranked
    line = f"{ranked.score:.3f}  {hit.citation}  {' > '.join(hit.chunk.headings)}".rstrip()
    if explain:
        line += "".join(f"\n{row}" for row in _sum(ranked))
    return line


def _bold(text: str, query: str) -> str:
    """Return the text with the words of the query in bold, for a terminal."""
    pieces, at = [], 0
    for start, end in occurrences(text, query):
        pieces += [text[at:start], "\x1b[1m", text[start:end], "\x1b[22m"]
        at = end
    return "".join([*pieces, text[at:]])


def _sum(ranked: Ranked) -> Iterator[str]:
    """Yield the parts of a score as a sum that can be checked by hand."""
    found = {"meaning": f"cosine {ranked.candidate.cosine or 0:.3f}", "words": f"bm25 {ranked.candidate.keywords:.3g}"}
    for part in ranked.parts:
        if part.value:
            row = f"{part.worth:7.4f} = {part.value:.4f} × {part.weight:.4f}  {part.name}"
            yield row + (f" ({found[part.name]})" if part.name in found else "")
    yield f"{ranked.fused:7.4f} total × {ranked.decay:.4f} age factor = {ranked.score:.4f}"


class OtherNotes(msgspec.Struct, frozen=True):
    """A folder with notes like those of a workspace, which are no notes of the home, and the day on which they are searched;
    None for the current one."""

    folder: Path
    today: date | None


@contextlib.asynccontextmanager
async def opened_memory(call: Invocation, config: Config, other: OtherNotes | None = None) -> AsyncIterator[Memory]:
    """Open the memory of an agent with this configuration, as the gateway does, or that of other notes, with an index beside
    them."""
    call.settings()  # refuses an agent that does not exist
    home, hooks, clock = call.home, allowed_plugins(config), SystemClock()
    settings = agent_settings(Settings(config), call.agent)
    check_embedding(config, hooks.embedding_providers())
    check_backend(config, hooks.memory_backends)
    await asyncio.to_thread(make_folder, call.agent_home.root)  # the gateway may not have opened the agent yet
    async with Transport() as transport:
        context = provider_contexts(home, config, transport, call.environment)
        async with (
            open_embeddings(hooks.embedding_providers(), context) as embeddings,
            (
                _memory_of(other, settings, embeddings, hooks.memory_backends, clock)
                if other
                else open_memory(home, settings, embeddings, hooks.memory_backends, clock, agent=call.agent)
            ) as memory,
        ):
            await embeddings.reconfigure(config)
            yield memory


def _memory_of(
    other: OtherNotes,
    settings: Settings,
    embeddings: OpenProviders[EmbeddingProvider],
    backends: Callable[[], Mapping[str, type[MemoryBackend]]],
    clock: Clock,
) -> Memory:
    keys = msgspec.structs.replace(settings.current.memory, sources=(Notes.name,), extra_paths=())
    return Memory(
        other.folder / "memory.sqlite",
        [Notes(other.folder)],
        keys=lambda: keys,
        providers=embeddings,
        in_use=embeddings.in_use,
        backends=backends,
        today=lambda: other.today or clock.now().astimezone(settings.zone).date(),
    )


def run_search(work: Coroutine[Any, Any, T]) -> T:
    """Run an operation on the memory; errors become SearchFailed with a sentence."""
    try:
        return asyncio.run(work)
    except ProviderError as error:
        raise SearchFailed(f"The notes could not be embedded: {error}") from error
    except IndexUnusable as error:
        raise SearchFailed(str(error)) from error


# --- status -----------------------------------------------------------------------------------------------------------


def show_status(call: Invocation, now: datetime) -> int:
    """Print the state of the index; return 1 if something is still to be indexed or embedded.

    Raises:
        SearchFailed: The index cannot be read, or is not in SQLite.
    """
    home, config = call.agent_home, call.settings().current
    backend = LOCAL if config.memory.backend_name == SQLITE and lacks_full_text() else config.memory.backend_name
    if backend != SQLITE:
        raise SearchFailed(
            f"The index is in the backend {backend}, which cannot be examined; `exuvia memory index` counts it."
        )
    try:
        stats = read_index_stats(home.memory, chosen_sources(call.home, config, call.agent))
    except Error as error:
        raise SearchFailed(
            f"The memory index {home.memory} cannot be read: {error}. Delete it to have it rebuilt."
        ) from error
    provider = asyncio.run(_provider(call, config))
    at = datetime.fromtimestamp(_last_written(home.memory), UTC) if home.memory.exists() else None
    model = provider.rpartition(":")[0] if provider else None
    missing = stats.texts - max((n for name, n in stats.embedded.items() if name.rpartition(":")[0] == model), default=0)
    values: dict[str, Any] = {
        **msgspec.structs.asdict(stats),
        "provider": model,
        "unembedded": missing if model else None,
        "cache": config.memory.embedding.cache,
        "updated": at and at.isoformat(timespec="seconds").replace("+00:00", "Z"),
    }
    if call.as_json:
        print_json(values, call.out)
    else:
        lines = _status_lines(stats, model, missing, config.memory, None if at is None else (now - at).total_seconds())
        call.out.write(printable("\n".join(lines)) + "\n")
    return PROBLEM if stats.behind or (model and missing) else SUCCESS


def _status_lines(stats: IndexStats, model: str | None, missing: int, keys: MemoryKeys, age: float | None) -> list[str]:
    counted = ", ".join(f"{number:,} of {source}" for source, number in sorted(stats.documents.items()))
    chunks = ", ".join(f"{number:,} of {source}" for source, number in sorted(stats.chunks.items()))
    written = "none yet" if age is None else f"{stats.size / 1e6:,.1f} MB, written {span(age)} ago"
    none = f"none, {found_without_vectors(by_words=keys.search.keywords)}"
    vectors = none if model is None else f"{model}, {count_of(missing, 'text')} without one"
    lines = [
        f"Index: {written}",
        f"Documents: {sum(stats.documents.values()):,}{f' ({counted})' if counted else ''}",
        f"Chunks: {sum(stats.chunks.values()):,}{f' ({chunks})' if chunks else ''}",
        f"Vectors: {vectors}",
        *(f"  {count_of(number, 'text')} by {name}" for name, number in stats.embedded.items()),
        f"Cache: {count_of(stats.cached, 'vector')} of text in no note any more, at most {keys.embedding.cache:,}",
    ]
    if stats.behind:
        lines.append(f"Behind: {count_of(len(stats.behind), 'document')} changed since, first {stats.behind[0]}")
    return lines


def _last_written(path: Path) -> float:
    return max(each.stat().st_mtime for each in path.parent.glob(f"{path.name}*"))


async def _provider(call: Invocation, config: Config) -> str:
    """Return the current embedding provider as `provider:model:dimensions`; empty if there is none."""
    async with opened_memory(call, config) as memory:
        provider = memory.provider()
        return f"{provider.name}:{provider.model()}:{provider.dimensions()}" if provider else ""
