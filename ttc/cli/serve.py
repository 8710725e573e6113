"""`ttc serve`: OpenAI's API in front of every strategy; and `ttc key`, which makes its keys."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer

from ttc.cli.budgets import parse_budget
from ttc.cli.engines import MODEL_HELP, default_model, engine_of
from ttc.cli.strategies import STRATEGY_HELP, strategy_text
from ttc.cli.terminal import Fault, note, say
from ttc.registry import install_hint
from ttc.sandbox.zygote import SandboxChoice
from ttc.types import Budget

if TYPE_CHECKING:
    from ttc.ports import Engine
    from ttc.serve import Keys, Settings

__all__ = ["key", "serve"]

_SANDBOXES = get_args(SandboxChoice)
_KEYS = "TTC_SERVE_KEYS"
_REQUEST = "tokens=65536"


def serve(  # noqa: PLR0913 - every option of the command
    served: Annotated[
        list[str] | None,
        typer.Option(
            "--model", help=f"{MODEL_HELP} Or NAME=MODEL; several may be served.", metavar="MODEL"
        ),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(help="The model of a further role, as judge=MODEL.", metavar="ROLE=MODEL"),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"{STRATEGY_HELP} It serves requests that name none.",
            metavar="SPEC",
            show_default="plain sampling",
        ),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option(help="A strategy that clients ask for as MODEL@NAME.", metavar="NAME=SPEC"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65_535)
    ] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name by which clients call the server.", metavar="NAME"),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option(help="A file of keys; see `ttc key`.", show_default=False)
    ] = None,
    request_budget: Annotated[
        str, typer.Option(help="What a request may spend.", metavar="LIMITS")
    ] = _REQUEST,
    key_budget: Annotated[
        str, typer.Option(help="What each key may spend in all.", metavar="LIMITS")
    ] = "",
    budget: Annotated[str, typer.Option(help="What all may spend in all.", metavar="LIMITS")] = "",
    sampling: Annotated[
        str,
        typer.Option(
            help="Who wins where a request samples otherwise than its strategy: the request is "
            "refused, or the strategy overrides it.",
            metavar="request|strategy",
        ),
    ] = "request",
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Let clients name strategies that execute code.")
    ] = False,
    sandbox: Annotated[
        str, typer.Option(help="How safely such code is run.", metavar="|".join(_SANDBOXES))
    ] = "auto",
    concurrency: Annotated[int, typer.Option(help="Requests that run at once.")] = 32,
    queue: Annotated[int, typer.Option(help="Requests that wait at most.")] = 256,
    deadline: Annotated[float, typer.Option(help="Seconds that a request may take.")] = 300.0,
    drain: Annotated[
        float, typer.Option(help="Seconds that requests may still take at the end.")
    ] = 30.0,
) -> None:
    """Serve OpenAI's API: every strategy behind a base URL."""
    with _installed():
        from ttc.serve import Keys

    known = Keys.read(keys, os.environ.pop(_KEYS, None))
    _check_bind(host, known)
    settings = _settings(
        strategy=None if strategy is None else strategy_text(strategy),
        named={n: strategy_text(s) for n, s in _pairs("--named", named).items()},
        request_budget=_budget("--request-budget", request_budget),
        key_budget=_budget("--key-budget", key_budget),
        budget=_budget("--budget", budget),
        sampling=cast("Literal['request', 'strategy']", sampling),
        allow_code=allow_code,
        sandbox=cast("SandboxChoice", sandbox),
        concurrency=concurrency,
        queue=queue,
        deadline_s=deadline,
        drain_s=drain,
        hosts=_hosts(host, allow_host or ()),
    )
    with ExitStack() as stack:
        listener = stack.enter_context(_listening(host, port))
        models = {n: stack.enter_context(engine_of(m)) for n, m in _models(served).items()}
        roles = {n: stack.enter_context(engine_of(m)) for n, m in _pairs("--role", role).items()}
        _serve(listener, models, roles, settings, known)


def key(
    name: Annotated[str, typer.Argument(help="Whose key it is.")],
    keys: Annotated[
        Path, typer.Option(help="The file of keys that it is added to.", metavar="FILE")
    ] = Path("keys.toml"),
) -> None:
    """Make a key for `ttc serve`: the secret is printed once, and only its hash is kept."""
    with _installed():
        from ttc.serve import Keys, new_key

    secret, lines = new_key(name)
    if keys.exists() and name in {known.name for known in Keys.read(keys, None).all}:
        raise Fault(f"{keys} has a key {name} already; take another name, or remove it")
    with keys.open("a", encoding="utf-8") as file:
        file.write(lines)
    note(f"added to {keys}; this secret is shown once:")
    say(secret)


def _serve(
    listener: socket.socket,
    models: Mapping[str, Engine],
    roles: Mapping[str, Engine],
    settings: Settings,
    keys: Keys,
) -> None:
    from ttc.serve import App, Server, Service
    from ttc.serve.logs import JsonLines

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("ttc.serve").setLevel(logging.INFO)
    service = Service(models, roles=roles, settings=settings)
    address, port = listener.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    say(f"serving {', '.join(models)} on http://{shown}:{port}/v1")
    Server(App(service, keys), host=address, port=port).run(sockets=[listener])


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise Fault(f"serving needs {error.name}: {install_hint('serve')}") from error


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise Fault(f"cannot listen on {host} port {port}: {error}") from error
    with listener:
        yield listener


def _settings(**given: Any) -> Settings:
    from ttc.serve import Settings
    from ttc.text_form import parse

    for option, value, allowed in (
        ("--sampling", given["sampling"], ("request", "strategy")),
        ("--sandbox", given["sandbox"], _SANDBOXES),
    ):
        if value not in allowed:
            raise Fault(f"{option}: {value!r} is none of {', '.join(allowed)}")
    for spec in (given["strategy"], *given["named"].values()):
        if spec is not None:
            parse(spec)
    try:
        return Settings(**given)
    except ValueError as error:
        raise Fault(str(error)) from error


def _models(served: Sequence[str] | None) -> dict[str, str]:
    """Models by the names that clients use."""
    models = {}
    for given in served or [default_model()]:
        name, is_named, model = given.partition("=")
        if not is_named:
            name, model = Path(given).stem if os.sep in given else given, given
        if "@" in name or not name or name in models:
            raise Fault(f"--model: {name!r} is no name of its own without @; write NAME=MODEL")
        models[name] = model
    return models


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for one in given or ():
        name, separator, value = one.partition("=")
        if not separator or not name.isidentifier() or name in pairs:
            raise Fault(f"{option}: {one!r} is not NAME=VALUE, with a name of its own")
        pairs[name] = value
    return pairs


def _budget(option: str, text: str) -> Budget:
    if not text:
        return Budget()
    try:
        return parse_budget(text)
    except Fault as fault:
        raise Fault(str(fault).replace("--budget", option, 1)) from None


def _check_bind(host: str, keys: Keys) -> None:
    """Refuses to let a whole network in without keys."""
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_local = host == "localhost"
    if not is_local and not keys.all:
        raise Fault(
            f"--host {host} lets others than this machine in, and there are no keys; make one by "
            f"`ttc key NAME`, and pass --keys FILE or set {_KEYS}"
        )


def _hosts(host: str, more: Sequence[str]) -> frozenset[str]:
    from ttc.serve.settings import LOOPBACK

    own = () if host in ("0.0.0.0", "::") else (host,)
    return LOOPBACK | {name.lower() for name in (*own, *more)}
