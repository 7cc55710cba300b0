"""Settings: read once at start, checked against their bounds, then passed down.

Each is a `FRESHET_*` variable and a flag of the same name. What changes while running (bandwidth, host
rules) lives in the store, behind `store/control.py`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from service.errors import InvalidSetting

DATA_DIR = Path("data")
LEAST_RATE = 1e-6  # crawls per second: one in eleven days; less is a slip of the pen, or a number that breaks
STORES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster")  # schemes of their addresses


def _setting(default: Any, help_text: str, low: float | None = None, high: float | None = None) -> Any:
    return field(default=default, metadata={"help": help_text, "low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Settings:
    host: str = _setting("127.0.0.1", "address to listen on; other than loopback only with keys")
    port: int = _setting(8080, "port to listen on", 0, 65535)
    data_dir: Path = _setting(DATA_DIR, "folder of the embedded server's data")
    redis_url: str = _setting(
        "",
        "an existing server or cluster instead of the embedded one (redis://, rediss://, unix://, "
        "redis+cluster://host:port,host:port)",
    )
    api_processes: int = _setting(1, "API processes", 1, 64)
    shards: int = _setting(16, "shards; fixed once pages exist", 1, 1024)
    bandwidth: float = _setting(1.0, "crawls per second at the first start", 0, 1e6)
    lease_s: float = _setting(60.0, "seconds a crawler may keep a page", 0.1, 86400)
    min_delay_s: float = _setting(1.0, "seconds between two crawls of one host", 0, 3600)
    lookahead_s: float = _setting(1.0, "seconds of slots one request may take ahead", 0, 60)
    ahead_s: float = _setting(
        0.01, "seconds for whose requests pages are leased ahead while many come; 0 for never", 0, 0.05
    )
    signal_delay_s: float = _setting(
        0.0, "seconds after a crawl in which signals are taken as late", 0, 86400
    )
    signal_window_s: float = _setting(60.0, "seconds in which signals without id count once", 1, 600)
    requests_half_life_s: float = _setting(
        604800.0, "seconds after which a reader's request weighs half", 60, 31_536_000
    )
    reprice_s: float = _setting(
        30.0, "seconds within which every page is ranked by a current price", 0.1, 3600
    )
    worker_share: float = _setting(0.5, "share of the store's time one worker may take", 0.01, 1)
    half_life_crawls: float = _setting(40.0, "crawls after which an observation counts half", 1, 1e6)
    durability: str = _setting(
        "local",
        "what writes the embedded server has acknowledged outlive: memory (nothing), local (every process), "
        "disk (a power cut)",
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check_bounds(setting.name, getattr(self, setting.name), setting.metadata)
        if 0 < self.bandwidth < LEAST_RATE:
            raise InvalidSetting(f"FRESHET_BANDWIDTH must be 0, or at least {LEAST_RATE:g}")
        if self.durability not in ("memory", "local", "disk"):
            raise InvalidSetting("FRESHET_DURABILITY must be memory, local or disk")
        scheme, found, _ = self.redis_url.partition("://")
        if self.redis_url and (not found or scheme not in STORES):
            raise InvalidSetting(f"FRESHET_REDIS_URL must begin with {', '.join(f'{s}://' for s in STORES)}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _check_bounds(name: str, value: Any, bounds: Mapping[str, Any]) -> None:
    low, high = bounds["low"], bounds["high"]
    if low is not None and not low <= value <= high:  # also refuses NaN
        raise InvalidSetting(f"FRESHET_{name.upper()} must be between {low:g} and {high:g}, not {value}")


def read_settings(environment: Mapping[str, str], flags: Mapping[str, str | None]) -> Settings:
    """Settings from flags first, then the environment, then defaults."""
    chosen: dict[str, Any] = {}
    for setting in fields(Settings):
        text = flags.get(setting.name)
        if text is None:
            text = environment.get(f"FRESHET_{setting.name.upper()}")
        if text is not None and text != "":
            chosen[setting.name] = _convert(setting.name, text, setting.default)
    return Settings(**chosen)


def _convert(name: str, text: str, default: Any) -> Any:
    kind = Path if isinstance(default, Path) else type(default)
    try:
        return kind(text)
    except ValueError:
        raise InvalidSetting(f"FRESHET_{name.upper()} must be {kind.__name__}, not {text!r}") from None
