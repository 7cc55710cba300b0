"""One spelling per page: canonical URLs and the hashes that keys and shards are made of.

Parsed by Ada (the WHATWG rules browsers follow), then made stricter: http and https only, no user
information, no fragment, no trailing dot in the host, unreserved percent escapes decoded. Changing any
rule changes the address of every page.
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from hashlib import blake2b

import can_ada
from msgspec import Struct

from service.errors import InvalidUrl

MAX_URL_BYTES = 2048
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
# What canonicalisation leaves as it is, split where the host ends: most of what crawlers send.
_PLAIN = re.compile(
    r"(https?://[A-Za-z0-9.:-]+)(/[A-Za-z0-9._~!$&'()*+,;=:@/-]*(?:\?[A-Za-z0-9._~!$&()*+,;=:@/?-]+)?)"
)
# A beginning whose host needs no parser: no port, no address of numbers, nothing encoded.
_PLAIN_ORIGIN = re.compile(r"http(s?)://([a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]+)")
_ENCODED = "xn--"
_TO_URL, _FROM_URL = bytes.maketrans(b"+/", b"-_"), bytes.maketrans(b"-_", b"+/")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PAGE_DIGEST = blake2b(digest_size=4)  # copied, which is cheaper than to make one
_SCHEMES = {"https:": "s", "http:": "h"}
_PREFIXES = {"s": "https://", "h": "http://"}


class Address(Struct, frozen=True, gc=False):
    """Where a page lives: its host (with a non-default port), and its path behind a scheme letter."""

    host: str
    path: str
    host_id: str
    page_id: int

    @property
    def url(self) -> str:
        return url_of(self.host, self.path)


def url_of(host: str, path: str) -> str:
    """The URL of a stored path: its first letter names the scheme."""
    return _PREFIXES[path[0]] + host + path[1:]


def parse_url(url: str) -> Address:
    """The address of a URL, or InvalidUrl with what is wrong with it."""
    plain = _PLAIN.fullmatch(url)
    if plain is None or len(url) > MAX_URL_BYTES:
        return _parse(url)
    prefix, rest = plain.groups()
    if "/." in rest:
        return _parse(url)
    scheme, host, host_id = _origin(prefix)
    path = scheme + rest
    return Address(host, path, host_id, _page_id_of(path))


@lru_cache(maxsize=65536)
def _origin(prefix: str) -> tuple[str, str, str]:
    """Scheme letter, host and host id of a URL's beginning: pages of one host share the work."""
    plain = _PLAIN_ORIGIN.fullmatch(prefix)
    if plain is not None and _ENCODED not in prefix:
        return "s" if plain[1] else "h", plain[2], host_id_of(plain[2])
    address = _parse(prefix + "/")
    return address.path[0], address.host, address.host_id


def _parse(url: str) -> Address:
    """The address of any text, by the whole rules."""
    if len(url.encode("utf-8", "surrogatepass")) > MAX_URL_BYTES:
        raise InvalidUrl(f"URL is longer than {MAX_URL_BYTES} bytes")
    try:
        parsed = can_ada.parse(url)
    except (ValueError, UnicodeError, TypeError):
        raise InvalidUrl("not an absolute URL") from None
    scheme = _SCHEMES.get(parsed.protocol)
    if scheme is None:
        raise InvalidUrl("only http and https URLs can be crawled")
    if parsed.username or parsed.password:
        raise InvalidUrl("URL must not carry a user name or password")
    query = parsed.search if parsed.search != "?" else ""
    path = scheme + _ESCAPE.sub(_plain_escape, parsed.pathname + query)
    if len(path) > MAX_URL_BYTES:
        raise InvalidUrl(f"URL is longer than {MAX_URL_BYTES} bytes")
    host = canonical_host(parsed.hostname, parsed.port)
    return Address(host, path, host_id_of(host), _page_id_of(path))


def parse_host(host: str) -> Address:
    """The address of a bare `host` or `host:port` (of its front page)."""
    if not host or any(c in host for c in "/?#@\\"):
        raise InvalidUrl("not a host name")
    return parse_url(f"http://{host}/")


def canonical_host(hostname: str, port: str) -> str:
    """Host as politeness sees it: no trailing dot, a port only where it is not the default."""
    bare = hostname[:-1] if hostname.endswith(".") else hostname
    if not bare or bare.endswith("."):
        raise InvalidUrl("URL has no host")
    return f"{bare}:{port}" if port else bare


def host_id_of(host: str) -> str:
    """Eleven characters that stand for a host in key names."""
    digest = blake2b(host.encode(), digest_size=8).digest()
    return b2a_base64(digest, newline=False)[:11].translate(_TO_URL).decode()


@lru_cache(maxsize=65536)
def shard_of(host_id: str, shards: int) -> int:
    """The shard a host belongs to; a lease carries the host id, so its shard follows."""
    return int.from_bytes(a2b_base64(host_id.encode("ascii").translate(_FROM_URL) + b"=")) % shards


def _page_id_of(path: str) -> int:
    """31 bits, so that a listpack stores the id in five bytes; scripts probe past collisions."""
    digest = _PAGE_DIGEST.copy()
    digest.update(path.encode())
    return int.from_bytes(digest.digest()) & 0x7FFFFFFF


def _plain_escape(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in _UNRESERVED else f"%{match[1].upper()}"
