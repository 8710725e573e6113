"""Keys: who may ask, for what, and for how much.

A file of keys holds hashes, never secrets. `new_key` makes one of each.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from ttc.errors import SettingsError
from ttc.serve.refusal import Refusal
from ttc.types import Budget

__all__ = ["Key", "Keys", "new_key"]

_LEAST_CHARACTERS = 16
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FIELDS = frozenset({"sha256", "models", "strategies", "budget"})


@dataclass(frozen=True, kw_only=True)
class Key:
    """Who asks."""

    name: str
    digest: bytes = field(default=b"", repr=False)
    models: frozenset[str] | None = None
    """The models that it may use, and the roles that its own strategies may name beside the policy;
    `None` is all of them."""
    strategies: frozenset[str] | None = None
    """The nodes, verifiers and named strategies that it may use; `None` is all that are served."""
    budget: Budget | None = None
    """What it may spend; `None` is what the server gives to each."""
    salt: str = ""
    """What keeps its part of the prefix cache apart."""


ANYONE = Key(name="anyone")
"""Who asks a server without keys."""


class Keys:
    """All keys of a server; none lets anyone in."""

    def __init__(self, keys: tuple[Key, ...] = ()) -> None:
        names = [key.name for key in keys]
        if len(set(names)) < len(names):
            raise SettingsError(f"a key's name comes twice: {', '.join(names)}")
        self.all = keys

    @classmethod
    def read(cls, path: Path | None, environment: str | None) -> Keys:
        """The keys of a file and of the environment.

        Args:
            path: a TOML file with a table for each key.
            environment: `NAME=SECRET`, separated by commas.

        Raises:
            SettingsError: one of them cannot be read, or is no key.
        """
        keys = [] if path is None else [_key(*item) for item in _tables(path).items()]
        for part in (environment or "").split(","):
            if part.strip():
                name, _, secret = part.strip().partition("=")
                keys.append(_of_secret(name, secret))
        return cls(tuple(keys))

    def find(self, authorization: str | None, *, is_browser: bool = False) -> Key:
        """Whose key a request brings. Every key is compared, each in constant time.

        Args:
            authorization: the header.
            is_browser: whether it may come as a password, which is all that browsers send.

        Raises:
            Refusal: it brings none, or one that nobody has.
        """
        if not self.all:
            return ANYONE
        scheme, _, secret = (authorization or "").partition(" ")
        if is_browser and scheme.lower() == "basic":
            scheme, secret = "bearer", _password(secret)
        given = sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
        found: Key | None = None
        for key in self.all:
            if hmac.compare_digest(key.digest, given):
                found = key
        if found is None or scheme.lower() != "bearer":
            raise Refusal(
                401,
                "there is no such key; send Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return found


def _password(given: str) -> str:
    """The password in `user:password`, as browsers encode it."""
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def new_key(name: str) -> tuple[str, str]:
    """A new secret, and the lines of a file of keys that let it in.

    Raises:
        SettingsError: the name is none.
    """
    _check_name(name)
    secret = f"ttc-{secrets.token_urlsafe(32)}"
    return secret, f'[{name}]\nsha256 = "{sha256(secret.encode()).hexdigest()}"\n'


def _tables(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"the keys in {path} cannot be read: {error}") from None


def _key(name: str, table: Any) -> Key:
    _check_name(name)
    if not isinstance(table, Mapping) or (unknown := set(table) - _FIELDS):
        wrong = sorted(unknown) if isinstance(table, Mapping) else table
        raise SettingsError(f"the key {name} has {', '.join(sorted(_FIELDS))}, not {wrong}")
    digest = str(table.get("sha256", ""))
    if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
        raise SettingsError(
            f"the key {name} has no sha256 of 64 hexadecimal digits; `ttc key {name}` makes one"
        )
    try:
        budget = Budget(**table["budget"]) if "budget" in table else None
    except (TypeError, ValueError) as error:
        raise SettingsError(f"the budget of the key {name}: {error}") from None
    return Key(
        name=name,
        digest=bytes.fromhex(digest),
        models=_names(name, table, "models"),
        strategies=_names(name, table, "strategies"),
        budget=budget,
        salt=secrets.token_hex(8),
    )


def _names(name: str, table: Mapping[str, Any], what: str) -> frozenset[str] | None:
    given = table.get(what)
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise SettingsError(f"the {what} of the key {name} are a list of names, not {given!r}")
    return frozenset(given)


def _of_secret(name: str, secret: str) -> Key:
    _check_name(name)
    if len(secret) < _LEAST_CHARACTERS:
        raise SettingsError(
            f"the secret of the key {name} has at least {_LEAST_CHARACTERS} characters, not "
            f"{len(secret)}; `ttc key {name}` makes one"
        )
    return Key(name=name, digest=sha256(secret.encode()).digest(), salt=secrets.token_hex(8))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"a key's name has 1 to 64 letters, digits, dots, dashes or underscores, not {name!r}"
        )
