"""Where an embedding provider asks, and with whose key. A vendor's key from the environment goes to that vendor alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import EmbeddingKeys
from plugins.providers.hosted.keys import check_copied
from plugins.support.errors import CredentialsRefused
from plugins.support.secrets import Secret

VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}
"""The environment variables with the keys of the vendors that `auto` may choose."""

KEY, ADDRESS = "memory.embedding.api_key", "memory.embedding.base_url"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An address without a slash at its end, and the key for it, empty where there is none, with more headers. `source` is
    where the key is set, or would be looked for; `asks_key` says that nobody there answers without one."""

    base: str
    key: str
    source: str
    asks_key: bool
    more: Mapping[str, Secret] = {}

    def __repr__(self) -> str:
        return f"Account({self.source})"  # never the key

    def missing(self) -> str:
        """That there is no key, as the end of a sentence."""
        return f"{KEY} is not set" if self.source == KEY else f"neither {self.source} nor {KEY} is set"

    def headers(self, header: Callable[[str], dict[str, str]]) -> dict[str, str]:
        """The headers of a request; CredentialsRefused where a key is missing, or was copied with something else."""
        if self.asks_key and not self.key:
            raise CredentialsRefused(f"There is no key: {self.missing()}.")
        check_copied(self.key, self.source)
        own = header(self.key) if self.key else {}
        return own | {name: value.reveal() for name, value in self.more.items()}


def account_of(
    context: ProviderContext,
    name: str,
    *,
    usual: str,
    variable: str,
    official: str | None = None,
    spelled: Callable[[str], str] = lambda base: base.strip().rstrip("/"),
) -> Account:
    """The account that `[memory.embedding]` names, else that of the chat provider of this name, else the `usual` one, whose
    key the environment has as `variable`. A key is shown at its own address alone. `official` is where nobody is answered
    without one, by default the usual address."""
    settings: EmbeddingKeys = context.settings
    chat, home = context.account, spelled(usual)
    theirs = spelled(chat.base_url or usual)
    base = spelled(settings.base_url) if settings.base_url else theirs
    more = settings.headers or (chat.headers if base == theirs else {})
    if settings.api_key is not None:
        key, source = settings.api_key.reveal(), KEY
    elif chat.api_key and base == theirs:
        key, source = chat.api_key[0].reveal(), f"providers.{name}.api_key"
    elif base == home:
        key, source = context.environment.get(variable, ""), variable
    else:
        key, source = "", KEY
    return Account(base=base, key=key.strip(), source=source, asks_key=base == spelled(official or usual), more=more)


def bearer(key: str) -> dict[str, str]:
    """The header in which most vendors want it."""
    return {"Authorization": f"Bearer {key}"}
