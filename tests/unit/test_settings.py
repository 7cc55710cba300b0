"""Settings: flags before environment before defaults, checked once."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from service.errors import InvalidSetting
from service.settings import Settings, read_settings

FIXED = {
    "host": "127.0.0.1",
    "port": 8080,
    "data_dir": Path("data"),
    "redis_url": "",
    "api_processes": 1,
    "shards": 16,
    "bandwidth": 1.0,
    "lease_s": 60.0,
    "min_delay_s": 1.0,
    "lookahead_s": 1.0,
    "ahead_s": 0.01,
    "signal_delay_s": 0.0,
    "durability": "local",
}


def test_defaults_are_those_of_the_contract() -> None:
    settings = read_settings({}, {})
    assert {name: getattr(settings, name) for name in FIXED} == FIXED


@pytest.mark.parametrize("name", FIXED)
def test_each_setting_has_a_variable_and_a_flag(name: str) -> None:
    texts = {
        "host": "::1",
        "data_dir": "/x",
        "redis_url": "redis://x",
        "durability": "memory",
        "ahead_s": "0.02",
    }
    text = texts.get(name, "7")
    by_variable = read_settings({f"FRESHET_{name.upper()}": text}, {})
    by_flag = read_settings({}, {name: text})
    assert by_variable == by_flag
    assert str(getattr(by_flag, name)).removesuffix(".0") == text


def test_a_flag_goes_before_the_environment() -> None:
    assert read_settings({"FRESHET_PORT": "1"}, {"port": "2"}).port == 2
    assert read_settings({"FRESHET_PORT": "1"}, {"port": None}).port == 1


def test_an_empty_variable_is_no_setting() -> None:
    assert read_settings({"FRESHET_PORT": ""}, {}).port == 8080


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("port", "x"),
        ("port", "70000"),
        ("port", "-1"),
        ("shards", "0"),
        ("shards", "1.5"),
        ("bandwidth", "-1"),
        ("bandwidth", "nan"),
        ("bandwidth", "inf"),
        ("bandwidth", "1e12"),
        ("bandwidth", "1e-7"),
        ("lease_s", "0"),
        ("min_delay_s", "-1"),
        ("lookahead_s", "61"),
        ("ahead_s", "0.06"),
        ("signal_window_s", "0"),
        ("requests_half_life_s", "59"),
        ("requests_half_life_s", "31536001"),
        ("api_processes", "0"),
        ("durability", "sometimes"),
        ("redis_url", "http://127.0.0.1:6379"),
        ("redis_url", "127.0.0.1:6379"),
    ],
)
def test_what_is_out_of_bounds_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=f"FRESHET_{name.upper()}"):
        read_settings({f"FRESHET_{name.upper()}": text}, {})


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_only_loopback_counts_as_this_machine(host: str, expected: bool) -> None:
    assert Settings(host=host).is_loopback is expected


def test_every_setting_has_a_help_text_and_numbers_have_bounds() -> None:
    for setting in fields(Settings):
        assert setting.metadata["help"]
        if isinstance(setting.default, int | float):
            assert setting.metadata["low"] is not None
            assert setting.metadata["low"] <= setting.default <= setting.metadata["high"]


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Settings().port = 1  # type: ignore[misc]
