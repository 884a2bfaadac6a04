"""A client for the HTTP API of registries (OCI distribution, Docker's version 2), for one question: what an image runs.

All calls together have one deadline, and each answer a largest size. A registry that doesn't let everybody in names a
place that gives out tokens, or takes the login itself. Large answers may be elsewhere: the login doesn't go there.
"""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import orjson

from chalicelib.backends.kit.cache import LookupCache
from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.rest import NoAnswer, RestAnswer, RestCall, Sender
from chalicelib.backends.spi import RegistryLogin
from chalicelib.domain.instants import SECOND
from chalicelib.errors import ContainerFailed, Throttled
from chalicelib.registries.addresses import NoPublicAddress
from chalicelib.registries.names import ImageName, image_name, is_local

DEADLINE = 15.0  # seconds for all calls
LARGEST = 8 << 20  # bytes of an answer
REDIRECTS = 5
LONGEST_COMMAND = 64 << 10  # bytes
RETRY = 20.0  # seconds, after a failure that may pass
PROCESSORS = {"x86": "amd64", "arm": "arm64"}  # our names, the registries'
LISTS = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
ACCEPT = ", ".join((*LISTS, *MANIFESTS))
ADVICE = "Write `commands` or the `entrypoint`, and it isn't looked up."


class Registries:
    def __init__(self, send: Sender, clock: Callable[[], float] = time.monotonic, *, listing: str = "") -> None:
        """`listing`: where an admin lists hosts that may have addresses that aren't public; empty: nowhere."""
        self._send, self._clock, self._listing = send, clock, listing
        self._commands = LookupCache[tuple[str, ...]](lambda: int(clock() * SECOND))

    def command(self, image: str, login: RegistryLogin | None, architecture: str) -> tuple[str, ...]:
        """The entry point and the arguments of an image, for a processor of x86 or arm. Raises ContainerFailed, and
        Throttled if it is worth another try."""
        name = image_name(image)
        if name is None:
            raise ContainerFailed(f"{cleaned(image)} isn't the name of an image.")
        identity = [image, architecture, *((login.username, login.password) if login else ())]
        key = hashlib.sha256(orjson.dumps(identity)).hexdigest()  # whoever has another login asks for themselves
        reading = _Reading(self._send, self._clock, name, image, login, self._listing)
        found = self._commands.get(key, lambda: reading.command(PROCESSORS[architecture]))
        if not found:
            raise ContainerFailed(f"The image {image} has neither an entry point nor a command. Write `commands`.")
        return found


class _Reading:
    """One image, read once."""

    def __init__(
        self,
        send: Sender,
        clock: Callable[[], float],
        name: ImageName,
        image: str,
        login: RegistryLogin | None,
        listing: str,
    ) -> None:
        self._send, self._clock, self._until = send, clock, clock() + DEADLINE
        self._listing = listing
        self._name, self._image, self._login = name, image, login
        self._secrets = (login.password, *([login.username] if login.secret_username else [])) if login else ()
        self._authorization = ""

    def command(self, processor: str) -> tuple[str, ...]:
        config = self._configuration(processor).get("config") or {}
        if not isinstance(config, dict):
            raise self._unreadable()
        found = (*self._strings(config.get("Entrypoint")), *self._strings(config.get("Cmd")))
        if any("\0" in each for each in found) or sum(len(each.encode()) + 1 for each in found) > LONGEST_COMMAND:
            raise self._failed(f"runs a command with NUL bytes, or with more than {LONGEST_COMMAND >> 10} KiB")
        return found

    def _strings(self, value: Any) -> list[str]:
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._unreadable()
        return value

    def _configuration(self, processor: str) -> dict[str, Any]:
        found = self._manifest(self._name.reference)
        if "manifests" in found:
            found = self._manifest(self._chosen(found["manifests"], processor))
        config = found.get("config")
        if not isinstance(config, dict) or not isinstance(config.get("digest"), str):
            raise self._failed("is in a form that is no longer in use, and doesn't say what it runs")
        return self._json("blobs", config["digest"])

    def _manifest(self, reference: str) -> dict[str, Any]:
        return self._json("manifests", reference)

    def _chosen(self, manifests: Any, processor: str) -> str:
        platforms: dict[str, str] = {}
        if not isinstance(manifests, list) or not all(isinstance(each, dict) for each in manifests):
            raise self._unreadable()
        for each in manifests:
            platform = each.get("platform") or {}
            if not isinstance(platform, dict):
                raise self._unreadable()
            platforms.setdefault(f"{platform.get('os')}/{platform.get('architecture')}", str(each.get("digest")))
        wanted = f"linux/{processor}"
        if wanted not in platforms:
            others = ", ".join(sorted(name for name in platforms if "unknown" not in name)) or "nothing"
            raise ContainerFailed(f"The image {self._image} isn't made for {wanted}, only for {cleaned(others)}.")
        return platforms[wanted]

    def _json(self, kind: str, reference: str) -> dict[str, Any]:
        if not re.fullmatch(r"[\w.:-]+", reference, re.ASCII):
            raise self._failed("has parts with malformed names")
        answer = self._get(f"/v2/{self._name.repository}/{kind}/{reference}")
        if reference.startswith("sha256:") and hashlib.sha256(answer.body).hexdigest() != reference[7:]:
            raise self._failed("isn't what its registry says: the digest of a part is wrong")
        try:
            found = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise self._unreadable()
        return found

    # --- calls --------------------------------------------------------------------------------------------------------

    def _get(self, path: str) -> RestAnswer:
        answer = self._followed(path)
        if answer.status == 401 and not self._authorization:
            self._authorization = self._authorized(answer.headers.get("www-authenticate", ""))
            answer = self._followed(path)
        if answer.status == 200:
            return answer
        raise self._refusal(answer)

    def _followed(self, path: str) -> RestAnswer:
        url = self._name.base + path
        for _ in range(REDIRECTS + 1):
            is_registry = _origin(url) == self._name.base
            headers = {"Authorization": self._authorization} if is_registry and self._authorization else {}
            answer = self._call(url, headers)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            try:
                url = urljoin(url, answer.headers.get("location", ""))
            except ValueError:
                raise self._malformed() from None
        raise self._failed("can't be read: its registry leads from one address to the next")

    def _authorized(self, challenge: str) -> str:
        """What to authenticate with, as the registry's answer demands it."""
        basic = "Basic " + _encoded(self._login) if self._login else ""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() != "bearer":
            if not basic:
                raise self._login_refused()
            return basic
        demanded = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = demanded.get("realm", "")
        query = [(name, demanded[name]) for name in ("service", "scope") if name in demanded]
        answer = self._call(realm, {"Authorization": basic} if basic else {}, query)
        if answer.status in (401, 403):
            raise self._login_refused()
        if answer.status != 200:
            raise self._refusal(answer)
        try:
            given = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            given = None
        token = (given.get("token") or given.get("access_token")) if isinstance(given, dict) else None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise self._failed("can't be read: its registry gives out no token")
        return f"Bearer {token}"

    def _call(self, url: str, headers: Mapping[str, str], query: list[tuple[str, str]] | None = None) -> RestAnswer:
        try:
            parts = urlsplit(url)
        except ValueError:
            raise self._malformed() from None
        local = is_local(urlsplit(self._name.base).netloc) and is_local(parts.netloc)
        if not parts.hostname or (parts.scheme != "https" and not (local and parts.scheme == "http")):
            raise self._failed("can't be read: its registry leads to an address that isn't https")
        query_text = "&".join(filter(None, [parts.query, urlencode(query or ())]))  # as it is: it may be signed
        path = f"{parts.path or '/'}?{query_text}" if query_text else parts.path
        call = RestCall("GET", _origin(url), path, headers={"Accept": ACCEPT, **headers})
        try:
            return self._answered(call)
        except NoPublicAddress:
            raise self._not_public(cleaned(parts.netloc)) from None
        except NoAnswer as problem:
            why = cleaned(str(problem).partition(":")[0], self._secrets)  # what follows may have a signed address
            text = f"What the image {self._image} runs can't be looked up: {parts.netloc} can't be reached ({why})."
            raise ContainerFailed(text, hint=ADVICE) from None

    def _answered(self, call: RestCall) -> RestAnswer:
        """A second attempt costs little, and a lost packet would fail a job."""
        for again in (True, False):
            left = self._until - self._clock()
            if left <= 0:
                raise NoAnswer("it takes too long")
            try:
                return self._send(call, left)
            except NoAnswer:
                if not again:
                    raise
        raise AssertionError("the last attempt returns or raises")

    # --- failures -----------------------------------------------------------------------------------------------------

    def _failed(self, text: str) -> ContainerFailed:
        return ContainerFailed(f"The image {self._image} {text}.", hint=ADVICE)

    def _not_public(self, host: str) -> ContainerFailed:
        """Of hosts that don't exist, too: nobody learns here which do."""
        text = f"What the image {self._image} runs can't be looked up: {host} has no public address"
        if not self._listing:
            return ContainerFailed(f"{text}; no others are called.", hint=ADVICE)
        more = f"Or have an admin list the host, where it exists: `registries: [{host}]` in {self._listing}."
        return ContainerFailed(f"{text}, and no admin has listed it.", hint=f"{ADVICE} {more}")

    def _unreadable(self) -> ContainerFailed:
        return self._failed("can't be read: its registry's answer isn't one of a registry")

    def _malformed(self) -> ContainerFailed:
        return self._failed("can't be read: its registry leads to an address that is malformed")

    def _login_refused(self) -> ContainerFailed:
        host = self._name.host
        if self._login:
            return ContainerFailed(f"The registry {host} refuses the login for the image {self._image}.")
        return ContainerFailed(
            f"The image {self._image} doesn't exist in {host}, or needs a login.",
            hint="For a private image, write `registry_auth`.",
        )

    def _refusal(self, answer: RestAnswer) -> ContainerFailed | Throttled:
        text = f"{self._name.host} answers {answer.status}{self._reason(answer.body)}"
        if answer.status in (401, 403):
            return self._login_refused()
        if answer.status == 404:
            return ContainerFailed(f"The image {self._image} doesn't exist in {self._name.host}.")
        if answer.status == 429 or answer.status >= 500:
            return Throttled(f"What the image {self._image} runs can't be looked up: {text}.", retry_after=RETRY)
        return ContainerFailed(f"What the image {self._image} runs can't be looked up: {text}.", hint=ADVICE)

    def _reason(self, body: bytes) -> str:
        try:
            (first, *_) = orjson.loads(body)["errors"]
            secrets = (*self._secrets, self._authorization.partition(" ")[2])
            return f" ({cleaned(str(first['message']), secrets)})"
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return ""


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _encoded(login: RegistryLogin) -> str:
    return base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
