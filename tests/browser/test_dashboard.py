"""The operator's page in a real browser, against a real service and a real store.

The browser is driven by the W3C WebDriver protocol, which is plain HTTP: chromedriver and httpx are enough.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api import dashboard
from service.api.problems import Problem, render
from service.app import create_app
from service.embedded import EmbeddedServer
from service.settings import Settings
from tests.acceptance.processes import free_port

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver on PATH (Debian: apt-get install chromium-driver)",
)

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element reference, fixed by the standard
WAIT_S = 60.0
DIAL_VALUE = "return document.getElementById('dial-input').value"
HOSTILE = (
    "https://a.example/<script>alert(1)</script>",
    'https://a.example/?q=<img src=x onerror="alert(1)">',
)


class Browser:
    """As much of WebDriver as these tests use."""

    def __init__(self, driver_url: str, profile: Path) -> None:
        arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            "--no-proxy-server",
            "--window-size=1280,1000",
            f"--user-data-dir={profile}",
        ]
        wanted = {
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        self._http = httpx.Client(base_url=driver_url, timeout=60, trust_env=False)
        session = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base = f"/session/{session['sessionId']}"

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._http.request(method, path, json=body if method == "POST" else None)
        value = answer.json()["value"]
        if answer.is_error:
            raise AssertionError(f"{value['error']}: {value['message']}")
        return value

    def _element(self, selector: str) -> str:
        found = {"using": "css selector", "value": selector}
        reference = self._send("POST", f"{self._base}/element", found)[ELEMENT]
        return f"{self._base}/element/{reference}"

    def open(self, url: str) -> None:
        self._send("POST", f"{self._base}/url", {"url": url})

    def close(self) -> None:
        self._send("DELETE", self._base)
        self._http.close()

    def run(self, script: str) -> Any:
        """The value of a script in the page."""
        return self._send("POST", f"{self._base}/execute/sync", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        return str(self._send("GET", f"{self._element(selector)}/text"))

    def click(self, selector: str) -> None:
        self._send("POST", f"{self._element(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Replace what is in a field, key by key."""
        element = self._element(selector)
        self._send("POST", f"{element}/clear", {})
        self._send("POST", f"{element}/value", {"text": text})

    def devtools(self, command: str, **params: Any) -> Any:
        body = {"cmd": command, "params": params}
        return self._send("POST", f"{self._base}/goog/cdp/execute", body)

    def console_errors(self) -> list[str]:
        """What the console complained of since the last call."""
        lines = self._send("POST", f"{self._base}/se/log", {"type": "browser"})
        return [line["message"] for line in lines if line["level"] in ("SEVERE", "WARNING")]

    def until(self, is_met: Callable[[], Any], what: str) -> Any:
        """Wait for something to become true."""
        deadline = time.monotonic() + WAIT_S
        while not (value := is_met()):
            if time.monotonic() > deadline:
                seen = self.run("return document.body.innerText")
                raise AssertionError(f"never came: {what}; the page says:\n{seen}")
            time.sleep(0.05)
        return value

    def until_text(self, selector: str, pattern: str) -> str:
        """Wait until an element's text matches."""
        wanted = re.compile(pattern)
        self.until(lambda: wanted.search(self.text(selector)), f"{selector} ~ {pattern}")
        return self.text(selector)


class Guard:
    """Around the service: asks for a key if one is set."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.key: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if self.key is not None and path.startswith(("/admin", "/pages")):
            sent = dict(scope["headers"]).get(b"authorization")
            if sent != f"Bearer {self.key}".encode():
                await render(Problem(401, "send a key"))(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Service:
    """The API on a port, which can be stopped and started again."""

    def __init__(self, redis_url: str, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{self.port}"
        self._settings = Settings(redis_url=redis_url, bandwidth=20.0, min_delay_s=0.0)
        self.http = httpx.Client(base_url=self.url, trust_env=False)

    def start(self) -> None:
        app = create_app(self._settings)
        if not any(getattr(route, "path", None) == "/dashboard/app.js" for route in app.routes):
            app.include_router(dashboard.router)
        self.guard = Guard(app)
        config = uvicorn.Config(self.guard, port=self.port, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + WAIT_S
        while not self._server.started:
            assert self._thread.is_alive(), "the service did not start"
            assert time.monotonic() < deadline, "the service does not start"
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def bandwidth(self) -> float:
        return float(self.http.get("/admin/bandwidth").json()["crawls_per_second"])

    def set_bandwidth(self, crawls_per_second: float) -> None:
        body = {"crawls_per_second": crawls_per_second}
        self.http.put("/admin/bandwidth", json=body).raise_for_status()

    def add_pages(self, *urls: str) -> None:
        answer = self.http.put("/pages", json={"pages": [{"url": url} for url in urls]})
        assert answer.json()["added"] == len(urls)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(tmp_path_factory.mktemp("dashboard")) as server:
        yield server.url


@pytest.fixture
def service(store: str) -> Iterator[Service]:
    """A service without pages, its bandwidth at 20 crawls per second."""
    with contextlib.closing(redis.Redis.from_url(store)) as client:
        client.flushall()
    with free_port() as port:
        service = Service(store, port)
        service.start()
        yield service
        service.http.close()
        service.stop()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert DRIVER is not None
    command = [DRIVER, "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as driver:
        try:
            browser = Browser(_driver_url(driver), tmp_path_factory.mktemp("profile"))
            yield browser
            browser.close()
        finally:
            driver.terminate()


def _driver_url(driver: subprocess.Popen[bytes]) -> str:
    assert driver.stdout is not None
    for line in driver.stdout:
        if port := re.search(rb"started successfully on port (\d+)", line):
            return f"http://127.0.0.1:{int(port[1])}"
    raise AssertionError("chromedriver did not start")


@pytest.fixture
def browser(chromium: Browser, service: Service) -> Iterator[Browser]:
    """The dashboard of the service, with its first numbers."""
    chromium.open(service.url)
    chromium.until_text("#pill", "Live")
    chromium.until(lambda: chromium.run(DIAL_VALUE) == "20", "the dial")
    yield chromium
    chromium.run("sessionStorage.clear()")
    chromium.open("about:blank")
    chromium.console_errors()


@pytest.mark.parametrize("path", dashboard.FILES)
def test_every_file_comes_with_the_security_headers(service: Service, path: str) -> None:
    answer = service.http.get(path)
    policy = answer.headers["content-security-policy"]
    assert answer.status_code == 200
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-type"].startswith(dashboard.FILES[path][1])


def test_the_files_load_nothing_from_elsewhere(service: Service) -> None:
    """The only address in them is the name of the SVG namespace."""
    for path in dashboard.FILES:
        found = set(re.findall(r"(?:src|href)=\"(?:\w+:)?//", service.http.get(path).text))
        assert not found, path


def test_the_dashboard_is_not_in_the_api_description(service: Service) -> None:
    assert not set(dashboard.FILES) & set(service.http.get("/openapi.json").json()["paths"])


@needs_browser
def test_numbers_appear_and_follow_the_service(browser: Browser, service: Service) -> None:
    assert browser.text("#bandwidth") == "20"
    service.add_pages(*(f"https://h{n}.example/" for n in range(7)))
    browser.until_text("#pages", "^7$")
    leased = service.http.get("/next", params={"n": 1}).json()["pages"]
    browser.until_text("#leases", f"^{len(leased)}$")
    assert re.fullmatch(r"[\d.,]+ [kM]?B", browser.text("#memory"))
    assert browser.text("#price") != "–"


@needs_browser
def test_charts_draw_what_was_polled(browser: Browser) -> None:
    joined = "return document.querySelector('#chart-price .line').getAttribute('d').includes('L')"
    browser.until(lambda: browser.run(joined), "a line of at least two points")
    label = browser.run("return document.querySelector('#chart-price svg').ariaLabel")
    assert label.startswith("Price: now ")


@needs_browser
def test_pages_handed_out_per_second_come_from_the_counter(browser: Browser) -> None:
    """Where the status counts pages handed out, their rate is drawn instead of the leases."""
    browser.run(
        """
        const plain = window.fetch;
        window.fetch = async (...args) => {
          const response = await plain(...args);
          if (args[0] !== "admin/status") return response;
          const counted = {...await response.json(), next_pages_total: Date.now() * 0.012};
          return new Response(JSON.stringify(counted), {headers: response.headers});
        };
        """
    )
    browser.until_text("#flow-title", "^Pages handed out per second$")
    assert browser.until_text("#chart-flow output", r"^1[123](\.\d+)?$")


@needs_browser
def test_an_empty_service_shows_the_first_command(browser: Browser, service: Service) -> None:
    """The command shown adds a page as it stands, and is gone once it has."""
    command = browser.text("#empty-curl")
    assert f"curl -X PUT '{service.url}/pages'" in command
    body = re.search(r"-d '(.*)'", command)
    assert body is not None
    headers = {"Content-Type": "application/json"}
    assert service.http.put("/pages", content=body[1], headers=headers).json()["added"] == 1
    browser.until(lambda: browser.run("return empty.hidden"), "no empty state any more")


@needs_browser
def test_turning_the_dial_changes_the_bandwidth(browser: Browser, service: Service) -> None:
    browser.type("#dial-input", "42.5\n")
    browser.until_text("#dial-said", "Set to 42.5 crawls/s")
    assert service.bandwidth() == 42.5
    browser.until_text("#bandwidth", "^42.5$")


@needs_browser
def test_the_dial_pauses(browser: Browser, service: Service) -> None:
    browser.click("[data-fill=pause]")
    assert service.bandwidth() == 20.0
    browser.click("#dial-set")
    browser.until_text("#pill", "Paused")
    assert service.bandwidth() == 0.0


@needs_browser
def test_a_change_by_someone_else_is_not_overwritten_unseen(browser: Browser, service: Service) -> None:
    browser.type("#dial-input", "30")
    service.set_bandwidth(7)
    browser.until_text("#bandwidth", "^7$")
    browser.click("#dial-set")
    browser.until_text("#dial-said", "someone else changed the bandwidth to 7 crawls/s")
    assert service.bandwidth() == 7.0
    browser.click("#dial-set")
    browser.until_text("#dial-said", "Set to 30 crawls/s")
    assert service.bandwidth() == 30.0


@needs_browser
def test_a_change_by_someone_else_reaches_an_untouched_dial(browser: Browser, service: Service) -> None:
    service.set_bandwidth(11)
    browser.until(lambda: browser.run(DIAL_VALUE) == "11", "the new bandwidth in the field")


@needs_browser
@pytest.mark.parametrize("refused", ["-5", "2000000"])
def test_a_refused_bandwidth_says_why(browser: Browser, service: Service, refused: str) -> None:
    browser.type("#dial-input", refused)
    browser.click("#dial-set")
    browser.until_text("#dial-said", r"Not set. Invalid input \(422\): Expected")
    assert service.bandwidth() == 20.0


@needs_browser
@pytest.mark.parametrize("url", HOSTILE)
def test_a_hostile_url_is_only_text(browser: Browser, service: Service, url: str) -> None:
    service.add_pages(url)
    registered = service.http.get("/pages", params={"url": url}).json()["url"]
    browser.type("#why-url", url + "\n")
    browser.until_text("#why-sentence", "Never crawled")
    assert browser.text("#why-address") == registered
    assert browser.run("return document.querySelectorAll('main script, main img').length") == 0


@needs_browser
@pytest.mark.parametrize("url", HOSTILE)
def test_markup_in_any_answer_is_only_text(browser: Browser, service: Service, url: str) -> None:
    """Even if the service sent markup unescaped, as no real URL can be."""
    service.add_pages("https://a.example/")
    browser.run(
        f"""
        const plain = window.fetch;
        window.fetch = async (...args) => {{
          const response = await plain(...args);
          const page = await response.json();
          if (!("reason" in page)) return new Response(JSON.stringify(page), response);
          for (const name of ["url", "reason", "state"]) page[name] = {url!r};
          page.outcomes = [{{result: {url!r}}}];
          page.model.sources = {{[{url!r}]: {{signals: 1}}}};
          return new Response(JSON.stringify(page), response);
        }};
        """
    )
    browser.type("#why-url", "https://a.example/\n")
    browser.until_text("#why-address", re.escape(url))
    assert url in browser.text("#why-now")
    assert url in browser.text("#why-model")
    assert browser.run("return document.querySelectorAll('main script, main img').length") == 0


@needs_browser
def test_an_unknown_page_is_named_as_typed(browser: Browser) -> None:
    browser.type("#why-url", HOSTILE[0] + "\n")
    browser.until_text("#why-said", re.escape(f"Not registered: {HOSTILE[0]}"))
    assert browser.run("return document.querySelectorAll('main script').length") == 0


@needs_browser
def test_why_shows_value_against_price_and_the_model(browser: Browser, service: Service) -> None:
    service.add_pages("https://a.example/")
    lease = service.http.get("/next").json()["pages"][0]["lease"]
    service.http.post("/outcomes", json={"outcomes": [{"lease": lease, "status": 200}]})
    service.http.post("/signals", json={"signals": [{"url": "https://a.example/"}]})
    browser.type("#why-url", "https://a.example/\n")
    browser.until_text("#why-sentence", "Last crawled")
    assert re.search(r"Signals since\s+1\b", browser.text("#why-now"))
    assert re.search(r"Changes\s+\S+ per day", browser.text("#why-model"))
    assert browser.text("#why-value").startswith("A crawl is worth")
    assert "price of" in browser.text("#why-price")


@needs_browser
def test_a_lost_connection_is_shown_and_recovers_by_itself(browser: Browser, service: Service) -> None:
    service.stop()
    browser.until_text("#banner", "Connection lost")
    assert browser.text("#pill") == "Connection lost"
    service.start()
    service.add_pages("https://back.example/")
    browser.until_text("#pages", "^1$")
    assert browser.text("#pill") == "Live"
    assert browser.run("return banner.hidden")


@needs_browser
def test_a_missing_key_is_asked_for_and_kept_in_this_tab_only(browser: Browser, service: Service) -> None:
    service.guard.key = "s3cret"
    browser.until_text("#banner", r"Key needed \(401\)")
    browser.type("#key-input", "wrong\n")
    browser.until_text("#banner", "This API key is not accepted")
    browser.click("#key summary")
    browser.type("#key-input", "s3cret\n")
    browser.until_text("#pill", "Live")
    browser.type("#dial-input", "3\n")
    browser.until_text("#dial-said", "Set to 3 crawls/s")
    stored = "return [Object.values(sessionStorage), localStorage.length, document.cookie]"
    assert browser.run(stored) == [["s3cret"], 0, ""]


@needs_browser
def test_a_hidden_tab_does_not_poll(browser: Browser) -> None:
    """Counted where requests begin: one that began before may be on its way for long."""
    browser.run(
        """
        Object.defineProperty(document, "hidden", {configurable: true, get: () => true});
        document.dispatchEvent(new Event("visibilitychange"));
        window.polls = 0;
        const plain = window.fetch;
        window.fetch = (...args) => {
          window.polls += args[0] === "admin/status";
          return plain(...args);
        };
        """
    )
    polls = "return window.polls"
    time.sleep(2.5)
    assert browser.run(polls) == 0
    browser.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    browser.until(lambda: browser.run(polls), "polling again")


@needs_browser
def test_shards_are_folded_away_until_opened(browser: Browser) -> None:
    rows = "return document.querySelectorAll('#shards-body tr').length"
    assert not browser.run("return shards.open")
    browser.click("#shards summary")
    browser.until(lambda: browser.run(rows) == 16, "a row per shard")


@needs_browser
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_overflows(browser: Browser, service: Service, width: int) -> None:
    url = "https://a.example/" + "long" * 500
    service.add_pages(url)
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.devtools("Emulation.setDeviceMetricsOverride", **size)
    try:
        browser.run(f"document.getElementById('why-url').value = {url!r}")
        browser.click("#why button")
        browser.until_text("#why-sentence", "Never crawled")
        overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.run(overflow) == 0
    finally:
        browser.devtools("Emulation.clearDeviceMetricsOverride")


@needs_browser
def test_every_field_and_button_has_a_name(browser: Browser) -> None:
    nodes = browser.devtools("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "spinbutton", "link", "image", "table"}
    found = [n for n in nodes if not n["ignored"] and n["role"]["value"] in roles]
    assert len(found) > 10
    assert [n for n in found if not n.get("name", {}).get("value")] == []


@needs_browser
def test_the_console_stays_clean(browser: Browser, service: Service) -> None:
    """Loading, polling, turning the dial and asking why: no error, no violation of the policy."""
    service.add_pages("https://a.example/")
    browser.type("#dial-input", "9\n")
    browser.until_text("#dial-said", "Set to 9")
    browser.type("#why-url", "https://a.example/\n")
    browser.until_text("#why-sentence", "Never crawled")
    browser.click("#shards summary")
    assert browser.console_errors() == []
