"""The `freshet` command."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields

from service import __version__, logs
from service.clock import ServerClock
from service.errors import SchedulerError, StoreUnavailable
from service.settings import Settings, read_settings
from service.store.connection import Server
from service.store.control import Control
from service.store.keyring import ROLES, Keyring

COMMANDS = {
    "up": "everything in one: embedded store, API and workers",
    "demo": "`up` with a small synthetic web and crawlers, so that there is something to look at",
    "serve": "the API only, on an existing store (FRESHET_REDIS_URL)",
    "work": "the workers only, on an existing store (FRESHET_REDIS_URL)",
    "import": "add or update pages from a file of URLs or NDJSON, one per line",
    "export": "write every page with its state as NDJSON",
    "keys": "create, list and revoke API keys",
    "simulate": "freshness on a synthetic web, with a table and a plot (see `freshet simulate --help`)",
    "bench": "speed, memory and scale beside what the machine can do (see `freshet bench --help`)",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["simulate"]:
        from loadtest.simulate import main as simulate

        return simulate(arguments[1:])
    if arguments[:1] == ["bench"]:
        from loadtest.bench.run import main as bench

        return bench(arguments[1:])
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except BrokenPipeError:  # whoever read what was written has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing to flush at exit
        return 1
    except (SchedulerError, OSError) as error:
        print(f"freshet: {error}", file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    settings = read_settings(os.environ, vars(options))
    logs.configure()
    if options.command == "up":
        from service.supervisor import up

        return up(settings)
    if options.command == "demo":
        from loadtest.demo import demo

        return demo(settings)
    if options.command == "keys":
        from service.keychain import manage_keys

        return manage_keys(settings, options.action, options.name, options.role, options.id)
    if options.command == "import":
        from service.transfer import import_pages

        return import_pages(settings, options.file, options.processes)
    if options.command == "export":
        from service.transfer import export_pages

        return export_pages(settings, options.file)
    if not settings.redis_url:
        raise SchedulerError(
            f"`freshet {options.command}` needs FRESHET_REDIS_URL; `freshet up` brings its own"
        )
    if options.command == "work":
        import uvloop

        from workers.loop import work

        uvloop.run(work(settings))
        return 0
    return serve(settings)


def serve(settings: Settings) -> int:
    """Serve HTTP until told to stop."""
    from service.serving import run

    refuse_open_door(settings)
    refuse_other_shards(settings)
    os.environ.update(as_environment(settings))
    run(settings)
    return 0


def refuse_open_door(settings: Settings) -> None:
    """Without a key nobody but this machine may ask."""
    if settings.is_loopback or asyncio.run(_count_keys(settings.redis_url)):
        return
    raise SchedulerError(
        f"no API key is configured, so FRESHET_HOST must be a loopback address, not {settings.host}; "
        "make a key with `freshet keys create`"
    )


def refuse_other_shards(settings: Settings) -> None:
    """Before anything runs on a store that was made with another number; who cannot ask finds out later."""
    with suppress(StoreUnavailable):
        asyncio.run(_claim_shards(settings))


async def _claim_shards(settings: Settings) -> None:
    server = Server(settings.redis_url, connections=1)
    try:
        await Control(server, ServerClock()).claim_shards(settings.shards)
    finally:
        await server.close()


async def _count_keys(redis_url: str) -> int:
    server = Server(redis_url, connections=1)
    try:
        return len(await Keyring(server).all())
    finally:
        await server.close()


def as_environment(settings: Settings) -> dict[str, str]:
    """Settings as the variables a child process reads."""
    return {f"FRESHET_{f.name.upper()}": str(getattr(settings, f.name)) for f in fields(settings)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="freshet",
        description="Tells a crawler fleet which URL to fetch next.",
        epilog="Every flag is also a variable FRESHET_<NAME>; flags win.",
    )
    parser.add_argument("--version", action="version", version=f"freshet {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == "keys":
            _add_key_arguments(command)
        if name in ("import", "export"):
            command.add_argument("file", nargs="?", default="-", help="a file, or - for the standard stream")
        if name == "import":
            cores = os.cpu_count() or 1
            command.add_argument(
                "--processes", type=_processes, default=cores, help="at work (default: cores)"
            )
        for setting in fields(Settings):
            flag = f"--{setting.name.replace('_', '-')}"
            help_text = f"{setting.metadata['help']} (default {setting.default})"
            command.add_argument(flag, metavar="VALUE", help=help_text, default=None)
    return parser


def _processes(text: str) -> int:
    count = int(text)
    if not 1 <= count <= 64:
        raise argparse.ArgumentTypeError("between 1 and 64")
    return count


def _add_key_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("action", choices=("create", "list", "revoke"), help="what to do")
    command.add_argument("--name", default="", help="whose key it is, for `create`")
    command.add_argument(
        "--role", choices=ROLES, default="operator", help="what it may do, for `create` (default: everything)"
    )
    command.add_argument("--id", default="", help="which key, for `revoke`")
