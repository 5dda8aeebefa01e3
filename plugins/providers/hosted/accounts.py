"""The address and the key of an embedding provider. A vendor's key from the environment is sent only to that vendor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import EmbeddingKeys
from plugins.providers.hosted.keys import check_copied
from plugins.support.errors import CredentialsRefused
from plugins.support.secrets import Secret, revealed

VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}
"""The environment variables with the keys of the vendors that `auto` may choose."""

KEY, ADDRESS = "memory.embedding.api_key", "memory.embedding.base_url"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a server without a trailing slash, its key (empty if there is none) and additional headers. `source` is
    where the key is set or looked for; `requires_key` is True if the server requires one."""

    base: str
    key: str
    source: str
    requires_key: bool
    extra_headers: Mapping[str, Secret] = {}

    def __repr__(self) -> str:
        return f"Account({self.source})"  # never the key

    def missing(self) -> str:
        """Return where a key was looked for in vain, as a clause: "… is not set"."""
        return f"{KEY} is not set" if self.source == KEY else f"neither {self.source} nor {KEY} is set"

    def headers(self, header: Callable[[str], dict[str, str]]) -> dict[str, str]:
        """Return the headers of a request. Raises CredentialsRefused for a missing or damaged key."""
        if self.requires_key and not self.key:
            raise CredentialsRefused(f"No API key: {self.missing()}.")
        check_copied(self.key, self.source)
        own = header(self.key) if self.key else {}
        return own | revealed(self.extra_headers)


def find_account(
    context: ProviderContext,
    name: str,
    *,
    default: str,
    variable: str,
    official: str | None = None,
    normalize: Callable[[str], str] = lambda base: base.strip().rstrip("/"),
) -> Account:
    """Return the account of `[memory.embedding]`, else that of the chat provider of the same name, else the one at the
    address `default`, whose key is the environment variable `variable`. A key is sent only to its own address. `official`
    is the address that requires a key, by default `default`; `normalize` returns the canonical form of an address."""
    settings: EmbeddingKeys = context.settings
    chat, default_base = context.account, normalize(default)
    chat_base = normalize(chat.base_url or default)
    base = normalize(settings.base_url) if settings.base_url else chat_base
    extra_headers = settings.headers or (chat.headers if base == chat_base else {})
    if settings.api_key is not None:
        key, source = settings.api_key.reveal(), KEY
    elif chat.api_key and base == chat_base:
        key, source = chat.api_key[0].reveal(), f"providers.{name}.api_key"
    elif base == default_base:
        key, source = context.environment.get(variable, ""), variable
    else:
        key, source = "", KEY
    requires_key = base == normalize(official or default)
    return Account(base=base, key=key.strip(), source=source, requires_key=requires_key, extra_headers=extra_headers)
