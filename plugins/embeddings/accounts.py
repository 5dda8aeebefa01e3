"""Where an embedding provider asks, and with whose key. A vendor's key from the environment goes to that vendor alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from plugins.chat.copied_key import check_copied
from plugins.errors import CredentialsRefused
from plugins.memory.settings import EmbeddingKeys

KEY, ADDRESS = "memory.embedding.api_key", "memory.embedding.base_url"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """An address without a slash at its end, and the key for it, empty where there is none. `source` is where the key is
    set, or would be looked for; `asks_key` says that nobody there answers without one."""

    base: str
    key: str
    source: str
    asks_key: bool

    def __repr__(self) -> str:
        return f"Account({self.source})"  # never the key

    def missing(self) -> str:
        """That there is no key, as the end of a sentence."""
        return f"{KEY} is not set" if self.source == KEY else f"neither {self.source} nor {KEY} is set"

    def headers(self, settings: EmbeddingKeys, header: Callable[[str], dict[str, str]]) -> dict[str, str]:
        """The headers of a request; CredentialsRefused where a key is missing, or was copied with something else."""
        if self.asks_key and not self.key:
            raise CredentialsRefused(f"There is no key: {self.missing()}.")
        check_copied(self.key, self.source)
        own = header(self.key) if self.key else {}
        return own | {name: value.reveal() for name, value in settings.headers.items()}


def account_of(
    settings: EmbeddingKeys,
    environment: Mapping[str, str],
    *,
    usual: str,
    variable: str,
    official: str | None = None,
    spelled: Callable[[str], str] = lambda base: base.strip().rstrip("/"),
) -> Account:
    """The account that the settings name, else the `usual` one, whose key the environment has as `variable`; at another
    address that key is not shown. `official` is where nobody is answered without a key, by default the usual one."""
    home = spelled(usual)
    base = spelled(settings.base_url or usual)
    key, source = "", KEY
    if settings.api_key is not None:
        key = settings.api_key.reveal().strip()
    elif base == home:
        key, source = environment.get(variable, "").strip(), variable
    return Account(base=base, key=key, source=source, asks_key=base == spelled(official or usual))


def bearer(key: str) -> dict[str, str]:
    """The header in which most vendors want it."""
    return {"Authorization": f"Bearer {key}"}
