"""Tokens for Azure's API: of an application with a secret, of one whose identity another provider vouches for, or of
the machine that the control plane runs on. Each is one exchange over HTTP. A token is used until shortly before it
expires.

The default is what Azure's own tools find in the environment, in their order: a secret, a workload's identity file, the
machine's managed identity. Logins of command lines aren't used.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from chalicelib.backends.azure.config import AzureBackendConfig, AzureClientCreds
from chalicelib.backends.kit.clock import Now
from chalicelib.backends.kit.errors import cleaned
from chalicelib.backends.kit.oauth import TokenService
from chalicelib.backends.kit.rest import HEADERS, NoAnswer, RestCall, Sender, at
from chalicelib.backends.kit.tokens import AccessToken, read_secret
from chalicelib.domain.instants import Micros
from chalicelib.errors import InvalidCredentials, Transient

AUTHORITY = "https://login.microsoftonline.com"
METADATA = "http://169.254.169.254"
RESOURCE = "https://management.azure.com"
DEADLINE, NEARBY = 15.0, 3.0  # seconds; the metadata service is on the machine itself
IDENTITY = "The identity token in AZURE_FEDERATED_TOKEN_FILE"  # which is replaced before it expires
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class AzureLogin:
    def __init__(
        self,
        config: AzureBackendConfig,
        now: Now,
        send: Sender,
        env: Mapping[str, str],
        endpoint: str,
    ) -> None:
        self._config, self._now, self._send, self._env = config, now, send, env
        self._authority = at(endpoint, env.get("AZURE_AUTHORITY_HOST") or AUTHORITY)
        self._metadata = at(endpoint, METADATA)
        self._token = AccessToken(now, self._fetched)
        self._service = TokenService("Azure", "Microsoft's login", send, now)
        self._machine = TokenService("Azure", "the machine's metadata service", send, now)

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
            assertion = {"client_assertion_type": _ASSERTION, "client_assertion": read_secret(file, IDENTITY)}
            return self._exchanged(tenant, {"client_id": client, **assertion})
        return self._of_machine(client)

    def _exchanged(self, tenant: str, form: Mapping[str, str]) -> tuple[str, Micros]:
        whole = {**form, "grant_type": "client_credentials", "scope": f"{RESOURCE}/.default"}
        authority = urlsplit(self._authority)
        url = f"{authority.scheme}://{authority.netloc}/{tenant}/oauth2/v2.0/token"
        return self._service.exchanged(url, whole, DEADLINE)

    def _of_machine(self, client: str) -> tuple[str, Micros]:
        query = {"api-version": "2018-02-01", "resource": RESOURCE, **({"client_id": client} if client else {})}
        path, headers = "/metadata/identity/oauth2/token", {**HEADERS, "Metadata": "true"}
        call = RestCall("GET", self._metadata, path, tuple(query.items()), headers)
        where = self._machine.where
        try:
            answer = self._send(call, NEARBY)
        except NoAnswer as error:
            why = f"{where} has no answer: {cleaned(str(error), ())}"
        else:
            if self._token.was_fetched or answer.status != 404:  # a 404 is also what other clouds' machines have there
                return self._machine.read(answer)
            why = f"{where} answers 404"
        if self._token.was_fetched:
            raise Transient(why)
        raise InvalidCredentials(
            "The server's environment has no credentials for Azure: neither AZURE_CLIENT_ID with "
            "AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE, nor a managed identity of its machine.",
            hint=f"Set them, or give the backend `creds` of the type `client`. ({why})",
        )
