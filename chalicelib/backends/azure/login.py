"""Tokens for Azure's API: of an application with a secret, of one whose identity another provider vouches for, or of
the machine that the control plane runs on. Each is one exchange over HTTP. A token is used until shortly before it
expires.

The default is what Azure's own tools find in the environment, in their order: a secret, a workload's identity file, the
machine's managed identity. Logins of command lines aren't used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import orjson

from chalicelib.backends.azure.config import AzureBackendConfig, AzureClientCreds
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.rest import HEADERS, NoAnswer, RestAnswer, RestCall, Sender, at
from chalicelib.backends.kit.tokens import AccessToken
from chalicelib.domain.instants import MINUTE, SECOND, Micros, retry_after
from chalicelib.errors import InvalidCredentials, Throttled, Transient

AUTHORITY = "https://login.microsoftonline.com"
METADATA = "http://169.254.169.254"
RESOURCE = "https://management.azure.com"
MARGIN: Micros = 5 * MINUTE  # before its end, in which a token isn't used any more
DEADLINE, NEARBY = 15.0, 3.0  # seconds; the metadata service is on the machine itself
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class AzureLogin:
    def __init__(
        self,
        config: AzureBackendConfig,
        now: Now,
        send: Sender,
        env: Mapping[str, str],
        endpoint: str = "",
    ) -> None:
        self._config, self._now, self._send, self._env = config, now, send, env
        self._authority = at(endpoint, env.get("AZURE_AUTHORITY_HOST") or AUTHORITY)
        self._metadata = at(endpoint, METADATA)
        self._token = AccessToken(now, self._fetched)

    def __call__(self, call: RestCall) -> Mapping[str, str]:
        """The headers that authenticate a call. Raises InvalidCredentials if there is no token."""
        return {"Authorization": f"Bearer {self._token.get()}"}

    def forget(self) -> None:
        """The token was refused."""
        self._token.forget()

    @property
    def secrets(self) -> tuple[str, ...]:
        creds = self._config.creds
        own = creds.client_secret if isinstance(creds, AzureClientCreds) else self._env.get("AZURE_CLIENT_SECRET", "")
        return (own,) if own else ()

    # --- the exchanges -----------------------------------------------------------------------------------------------

    def _fetched(self) -> tuple[str, Micros]:
        creds, env = self._config.creds, self._env
        if isinstance(creds, AzureClientCreds):
            tenant = creds.tenant_id or self._config.tenant_id
            return self._exchanged(tenant, {"client_id": creds.client_id, "client_secret": creds.client_secret})
        tenant, client = env.get("AZURE_TENANT_ID") or self._config.tenant_id, env.get("AZURE_CLIENT_ID", "")
        if client and (secret := env.get("AZURE_CLIENT_SECRET")):
            return self._exchanged(tenant, {"client_id": client, "client_secret": secret})
        if client and (file := env.get("AZURE_FEDERATED_TOKEN_FILE")):
            assertion = {"client_assertion_type": _ASSERTION, "client_assertion": _read(Path(file))}
            return self._exchanged(tenant, {"client_id": client, **assertion})
        return self._of_machine(client)

    def _exchanged(self, tenant: str, form: Mapping[str, str]) -> tuple[str, Micros]:
        authority = urlsplit(self._authority)
        whole = {**form, "grant_type": "client_credentials", "scope": f"{RESOURCE}/.default"}
        call = RestCall(
            "POST",
            f"{authority.scheme}://{authority.netloc}",
            f"/{tenant}/oauth2/v2.0/token",
            headers={**HEADERS, "Content-Type": "application/x-www-form-urlencoded"},
            body=urlencode(whole).encode(),
        )
        hidden = tuple(value for name, value in form.items() if name in ("client_secret", "client_assertion"))
        return self._token_of(call, DEADLINE, hidden, "Microsoft's login")

    def _of_machine(self, client: str) -> tuple[str, Micros]:
        query = {"api-version": "2018-02-01", "resource": RESOURCE, **({"client_id": client} if client else {})}
        path, headers = "/metadata/identity/oauth2/token", {**HEADERS, "Metadata": "true"}
        call = RestCall("GET", self._metadata, path, tuple(query.items()), headers)
        where = "the machine's metadata service"
        try:
            answer = self._send(call, NEARBY)
        except NoAnswer as error:
            why = f"{where} has no answer: {cleaned(str(error), ())}"
        else:
            if self._token.was_fetched or answer.status != 404:  # a 404 is also what other clouds' machines have there
                return self._token_in(answer, (), where)
            why = f"{where} answers 404"
        if self._token.was_fetched:
            raise Transient(why)
        raise InvalidCredentials(
            "The server's environment has no credentials for Azure: neither AZURE_CLIENT_ID with "
            "AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE, nor a managed identity of its machine.",
            hint=f"Set them, or give the backend `creds` of the type `client`. ({why})",
        )

    def _token_of(self, call: RestCall, deadline: float, hidden: tuple[str, ...], where: str) -> tuple[str, Micros]:
        try:
            answer = self._send(call, deadline)
        except NoAnswer as error:
            raise Transient(f"{where} has no answer: {cleaned(str(error), hidden)}") from None
        return self._token_in(answer, hidden, where)

    def _token_in(self, answer: RestAnswer, hidden: tuple[str, ...], where: str) -> tuple[str, Micros]:
        data = _json(answer)
        if answer.status == 200 and isinstance(token := data.get("access_token"), str) and token:
            return token, _lasts(data.get("expires_in")) - MARGIN
        text = str(data.get("error_description") or data.get("error") or "").partition("\r\n")[0]
        shown = f"{where} answers {answer.status}: {cleaned(text, hidden)}"
        if answer.status == 429:
            wait = retry_after(answer.headers.get("retry-after", ""), self._now()) / SECOND
            raise Throttled(shown, retry_after=wait)
        if answer.status in (400, 401, 403):
            raise InvalidCredentials(f"Azure refused the credentials: {shown}")
        raise Transient(shown)


def _json(answer: RestAnswer) -> dict[str, Any]:
    try:
        data = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return {}
    return data if isinstance(data, dict) else {}


def _lasts(given: object) -> Micros:
    """A number, or a text of one; a token that doesn't say so serves once."""
    try:
        seconds = float(str(given))
    except ValueError:
        return 0
    return round(seconds * SECOND) if math.isfinite(seconds) else 0


def _read(file: Path) -> str:
    """Read for each exchange: the file is replaced before what is in it expires."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidCredentials(f"The identity token in AZURE_FEDERATED_TOKEN_FILE can't be read: {error}.") from None
