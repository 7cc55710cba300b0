"""Addresses: one spelling per page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.address import (
    MAX_URL_BYTES,
    Address,
    _parse,
    host_id_of,
    parse_host,
    parse_url,
    shard_of,
    url_of,
)
from service.errors import InvalidUrl

PARTS = st.text(st.characters(blacklist_categories=("Cs",), max_codepoint=0x2FFFF), min_size=0, max_size=40)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTP://EXAMPLE.com:80", "http://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("https://example.com/a//b", "https://example.com/a//b"),
        ("https://example.com/a/./../b", "https://example.com/b"),
        ("https://example.com/%2e%2e/b", "https://example.com/b"),
        ("https://example.com/%41%7e%2F", "https://example.com/A~%2F"),
        ("https://example.com/?", "https://example.com/"),
        ("https://example.com/?q=%7E", "https://example.com/?q=~"),
        ("https://example.com/#f", "https://example.com/"),
        ("https://faß.example/", "https://xn--fa-hia.example/"),
        ("https://EXAMPLE.com./", "https://example.com/"),
        ("https://[2001:DB8::1]:8443/", "https://[2001:db8::1]:8443/"),
        ("https:\\\\example.com\\a", "https://example.com/a"),
        ("  https://example.com/  ", "https://example.com/"),
        ("https://example.com/a b", "https://example.com/a%20b"),
        ("https://ex%61mple.com/", "https://example.com/"),
    ],
)
def test_spellings_of_one_page_have_one_address(url: str, canonical: str) -> None:
    assert parse_url(url).url == canonical
    assert parse_url(canonical) == parse_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com/",
        "data:text/plain,x",
        "https://user@example.com/",
        "https://:secret@example.com/",
        "https://",
        "https://.",
        "https://example..",
        "https://a:99999/",
        "https://exa<mple/",
        "https://example.com/" + "x" * MAX_URL_BYTES,
        "https://example.com/" + "é" * (MAX_URL_BYTES // 4),
    ],
    ids=lambda url: url[:30],
)
def test_what_cannot_be_crawled_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl) as refusal:
        parse_url(url)
    assert str(refusal.value)


def test_a_lone_surrogate_is_refused_or_encoded() -> None:
    try:
        address = parse_url("https://example.com/\ud800")
    except InvalidUrl:
        return
    assert address.url.isascii()


@given(PARTS, PARTS)
def test_the_canonical_form_is_stable(path: str, query: str) -> None:
    try:
        address = parse_url(f"https://example.com/{path}?{query}")
    except InvalidUrl:
        return
    again = parse_url(address.url)
    assert again == address
    assert address.url.isascii()
    assert 0 <= address.page_id < 2**31


@given(PARTS)
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_url(text)
    except InvalidUrl:
        return
    assert parse_url(address.url) == address


def said_by(parse: Callable[[str], Address], url: str) -> Address | str:
    try:
        return parse(url)
    except InvalidUrl as refusal:
        return str(refusal)


@given(
    st.sampled_from(["http://", "https://"]),
    st.sampled_from(
        ["a.example", "A.b.", "1.2", "0x7f.1", "xn--a", "a:80", "a:443", "a:", "a..", ".", "a:99999"]
    )
    | st.sampled_from(
        ["-a.b-.c--d.example", "1.2.example", "xn--a.example", "a.xn--b", "a.0x1", "a.example:8080"]
    )
    | st.text("ab0.-", min_size=1, max_size=12)
    | st.text("aZ09.-:", min_size=1, max_size=12),
    st.text("aZ09-._~!$&'()*+,;=:@/?%#\\", max_size=20),
)
def test_the_short_way_leads_to_the_same_address(scheme: str, host: str, rest: str) -> None:
    for url in (scheme + host + "/" + rest, scheme + host + rest):
        assert said_by(parse_url, url) == said_by(_parse, url)


def test_the_scheme_is_part_of_the_page_but_not_of_the_host() -> None:
    plain, secure = parse_url("http://example.com/"), parse_url("https://example.com/")
    assert plain.host_id == secure.host_id
    assert plain.path != secure.path


def test_a_port_makes_another_host() -> None:
    assert parse_url("http://a.example/").host_id != parse_url("http://a.example:8080/").host_id


def test_a_url_is_rebuilt_from_host_and_path() -> None:
    address = parse_url("http://example.com:8080/a?b")
    assert url_of(address.host, address.path) == "http://example.com:8080/a?b"


@pytest.mark.parametrize("host", ["a.example/x", "a@b", "", "a?b", "a#b", "a\\b", "https://a"])
def test_what_is_no_bare_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_host(host)


def test_host_ids_are_eleven_safe_characters_and_lead_to_a_shard() -> None:
    ids = {host_id_of(f"h{at}.example") for at in range(2000)}
    assert len(ids) == 2000
    assert all(len(id_) == 11 and id_.replace("-", "a").replace("_", "a").isalnum() for id_ in ids)
    counts = [0] * 16
    for id_ in ids:
        counts[shard_of(id_, 16)] += 1
    assert min(counts) > 70  # of 125 expected: five standard deviations


def test_addresses_do_not_move_between_releases() -> None:
    """Changing any of these loses every stored page."""
    address = parse_url("https://example.com/path?q=1")
    assert (address.host, address.path) == ("example.com", "s/path?q=1")
    assert (address.host_id, address.page_id) == ("E8UTBcHPJmY", 1546519015)
