"""Nothing that a driver prints or answers may carry the store's credentials into a report.

A text is scrubbed of each secret in `env`, as it is and as JSON or a URL would spell it. What a driver prints comes in
pieces, so a secret may be cut between two of them: `Tail` holds back as many bytes as a secret may still need.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

MASK: Final = "***"
# Variables that hold secrets, and how long one must be: what is shorter is a word that may mean anything.
_SECRETS: Final = {"AWS_SECRET_ACCESS_KEY": 8, "AWS_SESSION_TOKEN": 8, "AWS_ACCESS_KEY_ID": 16}


class Scrubber:
    """Replaces the secrets of one environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        secrets = {env[name] for name, least in _SECRETS.items() if len(env.get(name, "")) >= least}
        spelled = {
            spelling
            for secret in secrets
            for spelling in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1], secret.replace("/", "\\/"))
        }
        # The longest first: one secret may be a part of another.
        self._spelled = sorted(spelled, key=len, reverse=True)
        self.longest_bytes = max((len(each.encode()) for each in spelled), default=0)

    def text(self, text: str) -> str:
        for each in self._spelled:
            text = text.replace(each, MASK)
        return text

    def data(self, data: bytes) -> bytes:
        for each in self._spelled:
            data = data.replace(each.encode(), MASK.encode())
        return data

    def value(self, value: Any) -> Any:
        """A JSON value with every string in it scrubbed, names of members too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(each) for each in value]
        return value


class Tail:
    """The last bytes of a stream, scrubbed before any of them is dropped."""

    def __init__(self, scrubber: Scrubber, bytes_max: int) -> None:
        self._scrubber = scrubber
        self._bytes_max = bytes_max
        self._settled = bytearray()
        self._pending = b""

    def add(self, data: bytes) -> None:
        data = self._scrubber.data(self._pending + data)
        settled = max(0, len(data) - max(0, self._scrubber.longest_bytes - 1))
        self._pending = data[settled:]
        self._settled += data[:settled]
        del self._settled[: max(0, len(self._settled) - self._bytes_max)]

    def text(self) -> str:
        return (bytes(self._settled) + self._pending)[-self._bytes_max :].decode("utf-8", "replace")
