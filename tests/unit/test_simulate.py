"""`freshet simulate`: what it cannot do is refused before it starts."""

from __future__ import annotations

import pytest

from loadtest.simulate import main


@pytest.mark.parametrize("name", ["pages", "hosts", "runs", "bandwidth", "time", "sweep-every"])
def test_a_simulation_of_nothing_is_refused_by_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([f"--{name}", "0"])
    assert f"--{name} must be more than 0" in capsys.readouterr().err
