"""Cross-signing: the account's own keys, by which other clients see that the device belongs to it.

They are made when the account has none. Where somebody has set cross-signing up before, in Element say, the secret keys are
theirs: the device then has to be verified from there, and `CrossSigning.problem` says so.
"""

from __future__ import annotations

import json
import os
from typing import Any

from plugins.channels.matrix.encryption.key_store import KeyStore
from plugins.channels.matrix.encryption.signatures import base64_of, bytes_of, is_signed, signed
from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError

USAGES = ("master", "self_signing", "user_signing")


class CrossSigning:
    """The keys of cross-signing of our account. `problem` is why the device is not verified; "" if it is."""

    def __init__(self, client: MatrixClient, store: KeyStore, user: str, password: str) -> None:
        self._client = client
        self._store = store
        self._user = user
        self._password = password
        self.problem = ""

    async def sign(self, device: dict[str, Any], sign_as_device: Any) -> None:
        """Sign our own device, so that others see it as verified by its owner.

        Args:
            device: The device's keys as they were uploaded.
            sign_as_device: Returns the device's signature of bytes.

        Raises:
            MatrixError, ProviderError: The server does not take part.
        """
        kept = await self._store.get("account", "cross_signing")
        secrets: dict[str, str] = json.loads(kept) if kept else {}
        answer = await self._client.request("POST", "/_matrix/client/v3/keys/query", {"device_keys": {self._user: []}})
        published = answer.get("master_keys", {}).get(self._user)
        if published and (not secrets or _public(secrets["master"]) not in published["keys"].values()):
            self.problem = (
                "somebody has set up cross-signing for this account, so only they can verify this device: "
                "in their client, under the account's sessions"
            )
            return
        if not secrets:
            secrets = {usage: base64_of(os.urandom(32)) for usage in USAGES}
            self._store.put("account", "cross_signing", json.dumps(secrets))
            await self._store.commit()  # before anybody sees the public keys
        keys = self._keys(secrets)
        if not published and not await self._publish(keys):
            return
        device_id = device["device_id"]
        own = answer.get("device_keys", {}).get(self._user, {}).get(device_id, {})
        public = _public(secrets["self_signing"])
        if not is_signed(device | {"signatures": own.get("signatures", {})}, self._user, public, public):
            await self._client.request(
                "POST",
                "/_matrix/client/v3/keys/signatures/upload",
                {
                    self._user: {
                        device_id: signed(device, self._user, public, _signer(secrets["self_signing"])),
                        _public(secrets["master"]): signed(keys["master"], self._user, device_id, sign_as_device),
                    }
                },
            )
        self.problem = ""

    def _keys(self, secrets: dict[str, str]) -> dict[str, dict[str, Any]]:
        keys: dict[str, dict[str, Any]] = {}
        for usage in USAGES:
            public = _public(secrets[usage])
            keys[usage] = {"user_id": self._user, "usage": [usage], "keys": {f"ed25519:{public}": public}}
            if usage != "master":
                keys[usage] = signed(keys[usage], self._user, _public(secrets["master"]), _signer(secrets["master"]))
        return keys

    async def _publish(self, keys: dict[str, dict[str, Any]]) -> bool:
        """Upload the public keys. Servers may ask for the password."""
        path, body = "/_matrix/client/v3/keys/device_signing/upload", {f"{usage}_key": key for usage, key in keys.items()}
        try:
            await self._client.request("POST", path, body)
        except MatrixError as error:
            if error.status != 401 or "flows" not in error.content:
                raise
            identifier = {"type": "m.id.user", "user": self._user}
            login = {"type": "m.login.password", "identifier": identifier, "password": self._password}
            try:
                if self._password:
                    await self._client.request(
                        "POST", path, body | {"auth": login | {"session": error.content.get("session")}}
                    )
                    return True
            except MatrixError as refused:
                if refused.is_temporary:
                    raise
            self.problem = "the server asks for the account's password to set up cross-signing: set `user` and `password`"
            return False
        return True


def _public(secret: str) -> str:
    return base64_of(_private(secret).public_key().public_bytes_raw())


def _signer(secret: str) -> Any:
    return lambda content: base64_of(_private(secret).sign(content))


def _private(secret: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - an extra

    return Ed25519PrivateKey.from_private_bytes(bytes_of(secret))
