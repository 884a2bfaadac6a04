"""The clusters of a configuration: a part of a kubeconfig, and where jobs go there.

A kubeconfig can make a client run programs and read files where it is loaded, and that is the server. So those that
name programs or files are refused, and what remains is text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from chalicelib.backends.kubernetes.addresses import has_local_server
from chalicelib.backends.kubernetes.config import KubernetesBackendConfig, KubernetesContext
from chalicelib.errors import InvalidCredentials

IN_CLUSTER = "in-cluster"  # the region, unless a context gives it another name
LARGEST = 1 << 20  # bytes of a kubeconfig's file
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_AUTHORITY = _NAMESPACE.with_name("ca.crt")
_RUNS = {"exec": "runs a program", "auth-provider": "uses an authentication plugin"}
_FILES = {
    "cluster": {"certificate-authority": "certificate-authority-data"},
    "user": {
        "client-certificate": "client-certificate-data",
        "client-key": "client-key-data",
        "tokenFile": "token",
    },
}
_TOKENS = "create a service account, and give its token as `token`"


@dataclass(frozen=True)
class Cluster:
    """A cluster and a namespace in it: a region."""

    context: KubernetesContext
    namespace: str
    kubeconfig: Mapping[str, Any] | None = field(repr=False)  # with this context alone; None: the pod's own account
    may_be_local: bool = False  # it may be on the control plane's own machine: a global admin has written it

    @property
    def region(self) -> str:
        return self.context.name

    @property
    def place(self) -> Mapping[str, str]:
        """Where it is, and who vouches for it, as digests."""
        if self.kubeconfig is None:
            found = {"authority": _read(_AUTHORITY)}
        else:
            cluster = self.kubeconfig["clusters"][0]["cluster"]
            authority = str(cluster.get("certificate-authority-data") or "").encode()
            found = {"server": str(cluster["server"]).rstrip("/").encode(), "authority": authority}
        return {name: sha256(value).hexdigest()[:16] for name, value in found.items() if value}

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no text may show."""
        if self.kubeconfig is None:
            return ()
        user = self.kubeconfig["users"][0]["user"]
        return tuple(str(user[name]) for name in ("token", "password", "client-key-data") if user.get(name))


def clusters(config: KubernetesBackendConfig) -> tuple[Cluster, ...]:
    """One for each context. Raises InvalidCredentials for a kubeconfig that can't be used."""
    if config.kubeconfig.in_cluster:
        (context,) = config.contexts or (KubernetesContext(name=IN_CLUSTER),)
        return (Cluster(context, context.namespace or config.namespace or _own_namespace(), None, may_be_local=True),)
    document = _document(config)
    current = document.get("current-context")
    if config.contexts is None and not (isinstance(current, str) and current):
        raise InvalidCredentials("The kubeconfig has no current context.", hint="Name one in `contexts`.")
    contexts = config.contexts or (KubernetesContext(name=str(current), namespace=config.namespace),)
    by_admin = config.kubeconfig.filename is not None
    found = tuple(_cluster(document, context, may_be_local=by_admin) for context in contexts)
    _check_distinct(found)
    return found


def _document(config: KubernetesBackendConfig) -> Mapping[str, Any]:
    import yaml

    text = config.kubeconfig.data or _file(str(config.kubeconfig.filename))
    try:
        document = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark else ""
        raise InvalidCredentials(
            f"The kubeconfig isn't YAML{place}.", hint="Give the whole text of the file."
        ) from None
    if not isinstance(document, Mapping) or document.get("kind", "Config") != "Config":
        raise InvalidCredentials("This is no kubeconfig.", hint="Give what `kubectl config view --raw` prints.")
    return document


def _file(name: str) -> str:
    path = Path(name).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise InvalidCredentials(f"The kubeconfig {name} is larger than {LARGEST} bytes.")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise InvalidCredentials(
            f"The kubeconfig {name} can't be read where the server runs: {why}.",
            hint="Correct `kubeconfig.filename`, or give its text as `kubeconfig.data`.",
        ) from None


def _own_namespace() -> str:
    try:
        return _NAMESPACE.read_text().strip()
    except OSError:
        raise InvalidCredentials(
            "The server doesn't run in a Kubernetes cluster, or its pod has no service account.",
            hint="Give a kubeconfig in place of `in_cluster`.",
        ) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _cluster(document: Mapping[str, Any], context: KubernetesContext, *, may_be_local: bool) -> Cluster:
    there = _entry(document, "context", context.name)
    cluster, user = (_entry(document, kind, str(there.get(kind, ""))) for kind in ("cluster", "user"))
    _check_text(context.name, cluster, user)
    namespace = context.namespace or str(there.get("namespace") or "default")
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": namespace}}],
        "clusters": [{"name": "it", "cluster": dict(cluster)}],
        "users": [{"name": "it", "user": dict(user)}],
    }
    return Cluster(context, namespace, kubeconfig, may_be_local or has_local_server(cluster))


def _entry(document: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    """The entry of that name in one of the kubeconfig's lists."""
    listed = document.get(f"{kind}s")
    entries = [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    found = next((each.get(kind) for each in entries if each.get("name") == name), None)
    if not isinstance(found, Mapping):
        known = ", ".join(str(each.get("name")) for each in entries) or "none"
        raise InvalidCredentials(
            f"The kubeconfig has no {kind} `{name}`.", hint=f"It has: {known}." if kind == "context" else ""
        )
    return found


def _check_text(name: str, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    if not str(cluster.get("server", "")).startswith(("https://", "http://")):
        raise InvalidCredentials(f"The cluster of the context `{name}` has no `server` with an http(s) address.")
    for field_name, does in _RUNS.items():
        if user.get(field_name):
            raise InvalidCredentials(
                f"The user of the context `{name}` has `{field_name}`, which {does}. "
                "The control plane runs no programs from a kubeconfig.",
                hint=f"For the server, {_TOKENS}.",
            )
    for kind, body in (("cluster", cluster), ("user", user)):
        for field_name, instead in _FILES[kind].items():
            if body.get(field_name):
                raise InvalidCredentials(
                    f"The {kind} of the context `{name}` names a file with `{field_name}`. The server reads none.",
                    hint=f"Write what is in it as `{instead}`; `kubectl config view --raw --flatten` does it.",
                )
    if user.get("as") or user.get("as-groups"):
        raise InvalidCredentials(
            f"The user of the context `{name}` acts as another one (`as`), which isn't supported.", hint=f"{_TOKENS}."
        )


def _check_distinct(found: tuple[Cluster, ...]) -> None:
    """Two regions that are one would show everything twice."""
    seen: dict[tuple[str, str], str] = {}
    for cluster in found:
        assert cluster.kubeconfig is not None
        server = str(cluster.kubeconfig["clusters"][0]["cluster"]["server"]).rstrip("/")
        other = seen.setdefault((server, cluster.namespace), cluster.region)
        if other != cluster.region:
            raise InvalidCredentials(
                f"The contexts `{other}` and `{cluster.region}` are the same namespace of the same cluster.",
                hint="Keep one of them, or give them different namespaces.",
            )
