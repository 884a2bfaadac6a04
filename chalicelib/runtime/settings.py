"""Settings. The only reader of the environment, so that every setting is listed in one place."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chalicelib import otlp
from chalicelib.backends.simulated import WIRE_NAME
from chalicelib.domain.bounds import MOST_BLOCKS
from chalicelib.domain.owner import ANY
from chalicelib.domain.retention import Retention
from chalicelib.errors import Invalid, NotDeployed
from chalicelib.loopback import is_loopback
from chalicelib.runtime.addresses import checked_url
from chalicelib.runtime.audit_targets import AuditTargets
from chalicelib.runtime.backup_settings import BackupSettings, PairSettings, lasting
from chalicelib.runtime.event_chains import LONGEST
from chalicelib.runtime.server_log import FORMATS, JSON, TEXT
from chalicelib.runtime.trusted_proxies import TrustedProxies
from chalicelib.runtime.trusted_proxies import read as proxies_in
from chalicelib.usecases.context import JobImages, SizeLimits
from chalicelib.usecases.pace import PER_CALL

if TYPE_CHECKING:
    from chalicelib.engine.certificate_authority import CertificateAuthority

DEFAULT_PORT = 3000
LETS_ENCRYPT = "https://acme-v02.api.letsencrypt.org/directory"
MOST_LOCAL_HOSTS = 64  # each is a process, and they share one machine
MOST_DAYS = 36_500  # a hundred years: for operators who keep everything
SECRETS = ("DSTACK_SERVER_ADMIN_TOKEN", "DSTACK_ACME_EAB_HMAC_KEY", "DSTACK_BACKUP_PASSPHRASE", *otlp.HEADERS)
LOG_LEVELS = ("debug", "info", "warning", "error")
RUNTIMES = ("auto", "docker", "process")
SWITCHES = {"on": True, "off": False, "1": True, "0": False, "true": True, "false": False, "yes": True, "no": False}


@dataclass(frozen=True)
class AuthoritySettings:
    """The certificate authority that certifies gateways' hosts; Let's Encrypt unless set."""

    server: str = LETS_ENCRYPT  # its directory
    ca: str = ""  # PEM: whom to trust about it, where it isn't known to all
    eab_kid: str = ""  # of an account that it gave
    eab_hmac_key: str = field(default="", repr=False)

    def build(self) -> CertificateAuthority:
        from chalicelib.identity.acme import Acme

        return Acme(self.server, self.ca, self.eab_kid, self.eab_hmac_key)


@dataclass(frozen=True)
class ServerSettings:
    """How `dstack server` runs on one machine."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    public_url: str | None = None  # where remote machines reach this server
    tls_cert: Path | None = None  # PEM: its certificate, with those that signed it, and …
    tls_key: Path | None = None  # … its key
    tls_acme: str = ""  # the host for which the authority certifies it instead
    acme_port: int = 80  # where it answers the authority's questions, and sends browsers on to https
    trusted_proxies: TrustedProxies = field(default_factory=TrustedProxies)
    data_dir: Path = Path("~/.dstack/server")
    config_path: Path = Path("~/.dstack/config.yml")  # the client's, to which the new project is added
    server_config: Path | None = None  # the server's own; config.yml in the data folder unless set
    server_config_disabled: bool = False
    log_level: str = "info"
    audit_file: Path | None = None  # to which every event is appended
    audit: AuditTargets = field(default_factory=AuditTargets)  # where else, and how
    traces: bool = False  # of runs, to where OTEL_EXPORTER_OTLP_ENDPOINT says
    trace_headers: str = field(default="", repr=False)  # of these requests: they may have a token
    log_format: str = TEXT
    log_requests: str = ""  # the level of the lines about requests; unset: info in JSON, debug in text
    admin_token: str | None = None
    local_fleet: bool = True
    local_blocks: str = "1"  # how many jobs may share this machine: a number or `auto`
    local_hosts: int | None = None  # agents on this machine: several are a cluster; None: as many as there were, or one
    fake_cloud: bool = False
    fake_cloud_name: str = WIRE_NAME  # the type that it stands in for
    catalog_file: Path | None = None  # prices for accounts that may not ask their provider for them
    catalog_url: str = ""  # of a published catalogue of prices
    endpoints: Mapping[str, str] = field(default_factory=dict)  # by backend: what stands in for its provider, in tests
    stop_jobs: bool = False  # on SIGTERM, end the jobs of this machine too
    enter_project: bool | None = None  # in the client's file: even over another's entry, never, or only if it is free
    agent_runtime: str = "auto"  # docker, process, or auto: docker if an engine answers
    job_users: str = "61000-61999"  # ids for the plain processes of a server that root runs: each job gets its own
    trust_jobs: bool = False  # every member's plain processes run as the server's user
    docker_socket: Path = Path("/var/run/docker.sock")
    services_domain: str = "localhost"  # services have hosts under it: RUN.PROJECT.localhost
    authority: AuthoritySettings = field(default_factory=AuthoritySettings)
    limits: SizeLimits = field(default_factory=SizeLimits)
    images: JobImages = field(default_factory=JobImages)
    retention: Retention = field(default_factory=Retention)
    backups: BackupSettings = field(default_factory=BackupSettings)
    pair_place: str = ""  # a folder or s3://bucket/prefix, which both servers of a pair reach; none: it has no pair
    pair: PairSettings = field(default_factory=PairSettings)

    @property
    def request_level(self) -> int:
        """The level of the lines about requests."""
        return logging.getLevelNamesMapping()[
            (self.log_requests or ("info" if self.log_format == JSON else "debug")).upper()
        ]

    @property
    def agent_users(self) -> str:
        """Who jobs run as, in the words of the agent's command line."""
        return "agent" if self.trust_jobs else self.job_users

    def resolved(self) -> ServerSettings:
        return replace(
            self,
            data_dir=Path(self.data_dir).expanduser(),
            config_path=Path(self.config_path).expanduser(),
            server_config=Path(self.server_config).expanduser() if self.server_config else None,
            tls_cert=Path(self.tls_cert).expanduser() if self.tls_cert else None,
            tls_key=Path(self.tls_key).expanduser() if self.tls_key else None,
        )


def backup_settings(environ: Mapping[str, str] | None = None, **flags: object) -> BackupSettings:
    """From `DSTACK_BACKUP_*`, overridden by the flags that were given. The passphrase is removed from the process's
    environment, as `server_settings` does with its secrets."""
    if environ is None:
        environ = dict(os.environ)
        os.environ.pop("DSTACK_BACKUP_PASSPHRASE", None)
    env = {name: value for name, value in environ.items() if value}
    values: dict[str, Any] = {
        "to": env.get("DSTACK_BACKUP_TO", ""),
        "every": lasting(env, "DSTACK_BACKUP_EVERY", BackupSettings.every, least=60),
        "keep": lasting(env, "DSTACK_BACKUP_KEEP", BackupSettings.keep),
        "key_file": env.get("DSTACK_BACKUP_KEY_FILE"),
        "passphrase": env.get("DSTACK_BACKUP_PASSPHRASE", ""),
    }
    values |= {name: value for name, value in flags.items() if value not in (None, "")}
    if values["key_file"] is not None:
        values["key_file"] = Path(values["key_file"]).expanduser()
        values["passphrase"] = ""
    return BackupSettings(**values)


def server_settings(environ: Mapping[str, str] | None = None, **flags: object) -> ServerSettings:
    """Settings from `DSTACK_*` variables, overridden by the flags that were given (None: not given).

    Raises Invalid, naming the variable or the flag, for an invalid value. Secrets are removed from the process's
    environment, or an agent started from here and its jobs would inherit them.
    """
    if environ is None:
        environ = dict(os.environ)
        for name in SECRETS:
            os.environ.pop(name, None)
    env = {name: value for name, value in environ.items() if value}  # an empty variable counts as unset
    values: dict[str, object] = {
        "host": env.get("DSTACK_SERVER_HOST", ServerSettings.host),
        "port": _number(env, "DSTACK_SERVER_PORT", DEFAULT_PORT, most=65_535),
        "public_url": env.get("DSTACK_SERVER_URL"),
        "tls_cert": env.get("DSTACK_SERVER_TLS_CERT"),
        "tls_key": env.get("DSTACK_SERVER_TLS_KEY"),
        "tls_acme": env.get("DSTACK_SERVER_TLS_ACME", ""),
        "acme_port": _number(env, "DSTACK_SERVER_ACME_PORT", ServerSettings.acme_port, most=65_535),
        "trusted_proxies": env.get("DSTACK_SERVER_TRUSTED_PROXIES", ""),
        "data_dir": Path(env.get("DSTACK_SERVER_DIR", str(ServerSettings.data_dir))),
        "server_config": env.get("DSTACK_SERVER_CONFIG"),
        "server_config_disabled": "DSTACK_SERVER_CONFIG_DISABLED" in env,  # whatever it is set to
        "log_level": _choice(env, "DSTACK_SERVER_LOG_LEVEL", LOG_LEVELS, ServerSettings.log_level),
        "audit_file": Path(env["DSTACK_SERVER_AUDIT_FILE"]).expanduser() if "DSTACK_SERVER_AUDIT_FILE" in env else None,
        "audit": AuditTargets.read(env),
        "traces": otlp.wanted(env),
        "trace_headers": next(filter(None, (env.get(name) for name in otlp.HEADERS)), ""),
        "log_format": _choice(env, "DSTACK_SERVER_LOG_FORMAT", FORMATS, ServerSettings.log_format),
        "log_requests": _choice(env, "DSTACK_SERVER_LOG_REQUESTS", LOG_LEVELS, "info")
        if "DSTACK_SERVER_LOG_REQUESTS" in env
        else "",
        "admin_token": env.get("DSTACK_SERVER_ADMIN_TOKEN"),
        "local_fleet": _switch(env, "DSTACK_SERVER_LOCAL_FLEET", ServerSettings.local_fleet),
        "local_blocks": env.get("DSTACK_SERVER_LOCAL_BLOCKS", ServerSettings.local_blocks),
        "local_hosts": _number(env, "DSTACK_SERVER_LOCAL_HOSTS", 0, most=MOST_LOCAL_HOSTS) or None,
        "fake_cloud": _switch(env, "DSTACK_SERVER_FAKE_CLOUD", ServerSettings.fake_cloud),
        "fake_cloud_name": env.get("DSTACK_SERVER_FAKE_CLOUD_NAME", ServerSettings.fake_cloud_name).lower(),
        "catalog_file": Path(env["DSTACK_CATALOG_FILE"]).expanduser() if "DSTACK_CATALOG_FILE" in env else None,
        "catalog_url": _catalog_url(env, ("https", "http", "file")),
        "endpoints": _endpoints(env),
        "stop_jobs": _switch(env, "DSTACK_SERVER_STOP_JOBS", ServerSettings.stop_jobs),
        "enter_project": _switch(env, "DSTACK_SERVER_ENTER_PROJECT", ServerSettings.enter_project),
        "agent_runtime": _choice(env, "DSTACK_AGENT_RUNTIME", RUNTIMES, ServerSettings.agent_runtime),
        "docker_socket": _docker_socket(env),
        "job_users": _job_users(env),
        "services_domain": env.get("DSTACK_SERVER_SERVICES_DOMAIN", ServerSettings.services_domain),
        "trust_jobs": _switch(env, "DSTACK_SERVER_TRUST_JOBS", ServerSettings.trust_jobs),
        "authority": _authority(env),
        "limits": SizeLimits(
            upload=_number(env, "DSTACK_SERVER_CODE_UPLOAD_LIMIT", SizeLimits.upload),
            uploads=_number(env, "DSTACK_SERVER_USER_UPLOADS_LIMIT", SizeLimits.uploads),
        ),
        "images": _images(env),
        "retention": _retention(env),
        "backups": backup_settings(environ),
        "pair_place": env.get("DSTACK_SERVER_PAIR", ""),
        "pair": PairSettings.read(env),
    }
    values |= {name: value for name, value in flags.items() if value not in (None, "")}
    if values["public_url"] is not None:
        name, sign = ("--public-url", " ") if flags.get("public_url") else ("DSTACK_SERVER_URL", "=")
        values["public_url"] = _url(str(values["public_url"]), name, sign)
    _check_tls(values)
    name = "--trusted-proxies" if flags.get("trusted_proxies") else "DSTACK_SERVER_TRUSTED_PROXIES"
    values["trusted_proxies"] = proxies_in(str(values["trusted_proxies"]), name)
    named = bool(flags.get("services_domain"))
    values["services_domain"] = _domain(str(values["services_domain"]), flag=named)
    _check_cloud(str(values["fake_cloud_name"]), flag=bool(flags.get("fake_cloud_name")))
    _check_blocks(str(values["local_blocks"]), flag=bool(flags.get("local_blocks")))
    return ServerSettings(**values).resolved()  # type: ignore[arg-type]


# The SSM parameters of these names under a path, as far as they are there.
Parameters = Callable[[str, Sequence[str]], Mapping[str, str]]


@dataclass(frozen=True)
class LambdaSettings:
    """The settings of the functions in AWS.

    They are in SSM under one path, `/dstack-STAGE`, and are read with one call: `settings`, a JSON object that the
    stack writes itself, because only CloudFormation knows what its resources are called; and what the function uses of
    the install's two keys, which the deploy command makes, and of `sign-on`, `acme` and `traces-headers`, which an
    operator may put there. `DSTACK_READS` names these, the only ones. A variable of the function overrides the stack's.
    """

    table: str
    bucket: str
    wake_function: str  # the name of functions.reconcile
    api_url: str  # for people
    agent_url: str  # for agents
    install_key: bytes = field(repr=False)  # empty: this function has no use for it
    master_key: bytes = field(repr=False)  # the same
    install_id: str = ""  # made of the install key, for functions without it
    provider_functions: Mapping[str, str] = field(default_factory=dict)  # of each artefact's functions.provider
    host_function: str | None = None  # of functions.bootstrap_host; without it nobody logs in to hosts
    dead_letter_queue: str | None = None  # the URL of the queue where Lambda puts the events that it gave up
    bus: str | None = None  # state changes are announced there, if it is on
    state_machines: Mapping[str, str] = field(default_factory=dict)  # ARN of each workflow's
    sync_seconds: float = PER_CALL.fast  # between an agent's calls while something changes
    endpoint: str | None = None  # an emulator's address, in tests
    endpoints: Mapping[str, str] = field(default_factory=dict)  # as the server's
    catalog_url: str = ""
    tags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by backend: of machines, as the stage's own
    longest_chain: int = LONGEST  # of events that ask for each other: an emulator may allow fewer than AWS
    fake_cloud: str | None = None  # a folder: only where the functions run on one machine, in tests
    fake_cloud_name: str = ServerSettings.fake_cloud_name
    sign_on: str = field(default="", repr=False)  # the sections `sign_on` and `workloads` of a server's file, as YAML
    acme: str = field(default="", repr=False)  # the certificate authority's settings, as JSON
    traces: bool = False  # as the server's
    trace_headers: str = field(default="", repr=False)  # the same
    images: JobImages = field(default_factory=JobImages)
    retention: Retention = field(default_factory=Retention)

    @staticmethod
    def read(parameters: Parameters, environ: Mapping[str, str] | None = None) -> LambdaSettings:
        """Raises NotDeployed, naming what is missing and the command that brings it."""
        env = {name: value for name, value in (os.environ if environ is None else environ).items() if value}
        prefix = env.get("DSTACK_KEYS", "")
        names = tuple(env.get("DSTACK_READS", "settings,install-key,master-key,sign-on,acme").split(","))
        found = parameters(prefix, names) if prefix else {}
        values: dict[str, Any] = {**json.loads(found.get("settings", "{}")), **_overrides(env)}
        missing = [name for name in _NEEDED if not values.get(name)]
        missing += [f"{prefix}/{name}" for name in ("install-key", "master-key") if name in names and name not in found]
        id_ = env.get("DSTACK_INSTALL_ID", "")
        if "install-key" not in names and id_ in ("", ANY):
            missing.append("the stack's parameter InstallId")
        if missing:
            raise _not_deployed(prefix, missing)
        return LambdaSettings(
            table=values["table"],
            bucket=values["bucket"],
            wake_function=values["wake_function"],
            api_url=values["api_url"].rstrip("/"),
            agent_url=(values.get("agent_url") or values["api_url"]).rstrip("/"),
            install_key=bytes.fromhex(found.get("install-key", "")),
            master_key=bytes.fromhex(found.get("master-key", "")),
            install_id="" if id_ == ANY else id_,
            provider_functions=values.get("provider_functions") or {},
            host_function=values.get("host_function"),
            dead_letter_queue=values.get("aside_queue"),
            bus=values.get("bus") or None,
            state_machines=values.get("state_machines") or {},
            sync_seconds=_seconds(env, "DSTACK_SYNC_SECONDS", PER_CALL.fast),
            endpoint=env.get("DSTACK_AWS_ENDPOINT"),
            endpoints=_endpoints(env),
            catalog_url=_catalog_url(env, ("https",)),
            tags=json.loads(env.get("DSTACK_BACKEND_TAGS", "{}")),
            longest_chain=_number(env, "DSTACK_LONGEST_CHAIN", LONGEST, least=2, most=10_000),
            fake_cloud=env.get("DSTACK_FAKE_CLOUD"),
            fake_cloud_name=env.get("DSTACK_FAKE_CLOUD_NAME", ServerSettings.fake_cloud_name),
            sign_on=found.get("sign-on", ""),
            acme=found.get("acme", ""),
            traces=otlp.wanted(env),
            trace_headers=found.get("traces-headers", "").strip(),
            images=_images(env),
            retention=_retention(env),
        )


def stage_settings(stage: str, parameters: Parameters) -> LambdaSettings:
    """The settings of a deployed stage, read with the credentials of whoever has deployed it. Raises NotDeployed."""
    return LambdaSettings.read(parameters, {**os.environ, "DSTACK_KEYS": stage_path(stage)})


def stage_path(stage: str) -> str:
    """The path of a stage's parameters in Parameter Store."""
    return f"/dstack-{stage}"


def emulator() -> str | None:
    """The address of what stands in for AWS, in tests."""
    return os.environ.get("DSTACK_AWS_ENDPOINT") or None


_NEEDED = ("table", "bucket", "wake_function", "api_url")
_VARIABLES = {
    "table": "DSTACK_TABLE",
    "bucket": "DSTACK_BUCKET",
    "wake_function": "DSTACK_WAKE_FUNCTION",
    "host_function": "DSTACK_HOST_FUNCTION",
    "aside_queue": "DSTACK_ASIDE_QUEUE",
    "api_url": "DSTACK_API_URL",
    "agent_url": "DSTACK_AGENT_URL",
    "bus": "DSTACK_BUS",
}


def _overrides(env: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {key: env[name] for key, name in _VARIABLES.items() if name in env}
    if "DSTACK_PROVIDER_FUNCTION" in env:
        from chalicelib.backends.registry import CLOUDS

        given["provider_functions"] = {CLOUDS: env["DSTACK_PROVIDER_FUNCTION"]}
    return given


def _not_deployed(prefix: str, missing: list[str]) -> NotDeployed:
    if not prefix:
        return NotDeployed(
            "This function doesn't know its stage: DSTACK_KEYS isn't set.",
            hint="Deploy with `make deploy STAGE=prod`, which sets it.",
        )
    stage = prefix.removeprefix("/dstack-")
    return NotDeployed(
        f"The stage {stage} of this control plane isn't wholly deployed; missing: {', '.join(missing)}.",
        hint=f"Run `make deploy STAGE={stage}` in a clone of the repository: it makes what is missing.",
    )


def _url(text: str, name: str, sign: str) -> str:
    try:
        return checked_url(text)
    except ValueError as wrong:
        shown = re.sub("//.*@", "//...@", text[:200])  # don't repeat a password
        raise Invalid(
            f"{name} is {shown!r}: {wrong}.", hint=f"Set it as in {name}{sign}https://dstack.example.com:3000."
        ) from wrong


def _catalog_url(env: Mapping[str, str], schemes: Sequence[str]) -> str:
    name = "DSTACK_CATALOG_URL"
    address = env.get(name, "")
    if address and not re.fullmatch(rf"({'|'.join(schemes)})://[^\s?#@]+", address):
        raise Invalid(
            f"{name} is {address[:200]!r}, not the address of a catalogue of prices.",
            hint=f"Set it as in {name}=https://prices.example.com/v1 (here it may begin with {', '.join(schemes)}).",
        )
    return address


def _endpoints(env: Mapping[str, str]) -> Mapping[str, str]:
    """Pairs of a backend and an address. It must be this machine's: the backend sends the provider's credentials there,
    unencrypted."""
    name = "DSTACK_BACKEND_ENDPOINTS"
    pairs = [pair.partition("=")[::2] for pair in env.get(name, "").split(",") if pair]
    for backend, address in pairs:
        if not re.fullmatch(r"http://[\w.-]+(:\d{1,5})?", address) or not is_loopback(address):
            raise Invalid(
                f"{name} has {address[:200]!r} for the backend {backend[:200]!r}, not the address of a program on this "
                "machine that stands in for its provider.",
                hint=f"Set it as in {name}=crusoe=http://127.0.0.1:4566,gcp=http://127.0.0.1:4567.",
            )
    return dict(pairs)


def _check_blocks(blocks: str, *, flag: bool) -> None:
    if blocks != "auto" and not (
        blocks.isascii() and blocks.isdigit() and len(blocks) < 6 and 1 <= int(blocks) <= MOST_BLOCKS
    ):
        name, sign = ("--local-blocks", " ") if flag else ("DSTACK_SERVER_LOCAL_BLOCKS", "=")
        raise Invalid(
            f"{name} is {blocks!r}, neither `auto` nor a number from 1 to {MOST_BLOCKS}.",
            hint=f"Set it as in {name}{sign}4.",
        )


def _check_tls(values: Mapping[str, object]) -> None:
    cert, key, host = (values[name] for name in ("tls_cert", "tls_key", "tls_acme"))
    if bool(cert) != bool(key):
        there, lacking = ("--tls-cert", "--tls-key") if cert else ("--tls-key", "--tls-cert")
        raise Invalid(f"{there} is set without {lacking}.", hint="A certificate and its key belong together.")
    if cert and host:
        raise Invalid("--tls-acme and --tls-cert contradict each other.", hint="Leave out one of them.")
    if host and not re.fullmatch(
        r"(?=.{1,200}$)([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]([a-z0-9-]*[a-z0-9])?", str(host)
    ):
        raise Invalid(
            f"--tls-acme is {str(host)[:200]!r}, which isn't the name of a host that an authority certifies.",
            hint="Set it to the server's name in DNS, as in --tls-acme dstack.example.com.",
        )


def _domain(text: str, *, flag: bool) -> str:
    name = text.lower().strip(".")
    if len(name) > 200 or not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", name):
        called, sign = ("--services-domain", " ") if flag else ("DSTACK_SERVER_SERVICES_DOMAIN", "=")
        raise Invalid(
            f"{called} is {text[:200]!r}, which isn't the name of a domain.",
            hint=f"Set it as in {called}{sign}example.com: services are then RUN.PROJECT.example.com.",
        )
    return name


def _images(env: Mapping[str, str]) -> JobImages:
    return JobImages(
        base=env.get("DSTACK_DOCKER_BASE_IMAGE", JobImages.base),
        devel=env.get("DSTACK_DOCKER_DEVEL_IMAGE", JobImages.devel),
        python=env.get("DSTACK_DEFAULT_PYTHON", JobImages.python),
        docker=env.get("DSTACK_DIND_IMAGE", JobImages.docker),
    )


def _authority(env: Mapping[str, str]) -> AuthoritySettings:
    """`DSTACK_ACME_SERVER` and so on."""
    names = [field.name for field in fields(AuthoritySettings)]
    given = {name: env[f"DSTACK_ACME_{name.upper()}"] for name in names if f"DSTACK_ACME_{name.upper()}" in env}
    if path := given.get("ca"):
        try:
            given["ca"] = Path(path).expanduser().read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(
                f"DSTACK_ACME_CA is {path!r}, which can't be read: {error}.",
                hint="Set it to a PEM file with the certificates to trust about the certificate authority.",
            ) from error
    return _checked(
        AuthoritySettings(**given), "DSTACK_ACME_SERVER", "DSTACK_ACME_EAB_KID and DSTACK_ACME_EAB_HMAC_KEY"
    )


def authority_in(text: str) -> AuthoritySettings:
    """The same from the parameter `acme`, a JSON object whose `ca` is PEM itself. Raises Invalid."""
    try:
        values = json.loads(text or "{}")
        given = AuthoritySettings(**{name: str(value) for name, value in values.items()})
    except (ValueError, TypeError, AttributeError) as wrong:
        known = ", ".join(field.name for field in fields(AuthoritySettings))
        raise Invalid(f"The parameter acme isn't a JSON object of {known}: {wrong}.") from wrong
    return _checked(given, "`server` in the parameter acme", "`eab_kid` and `eab_hmac_key` in the parameter acme")


def _checked(given: AuthoritySettings, server: str, bound: str) -> AuthoritySettings:
    if not re.fullmatch(r"https://[^\s/@]+(/\S*)?", given.server):
        raise Invalid(
            f"{server} is {given.server[:200]!r}, not the https address of an ACME directory.",
            hint=f"Set it as in {server}={LETS_ENCRYPT}.",
        )
    if bool(given.eab_kid) != bool(given.eab_hmac_key):
        raise Invalid(f"Of {bound}, one is set without the other.", hint="The authority gives both together.")
    if not re.fullmatch(r"[A-Za-z0-9_-]*=*", given.eab_hmac_key):
        raise Invalid(f"Of {bound}, the key isn't base64url.", hint="Copy it from the authority as it shows it.")
    if given.ca:
        _check_certificates(given.ca)
    return given


def _check_certificates(pem: str) -> None:
    import ssl

    try:
        ssl.create_default_context(cadata=pem)
    except ssl.SSLError as wrong:
        raise Invalid(
            f"What is to be trusted about the certificate authority isn't a list of certificates: {wrong.reason}.",
            hint="It takes PEM: -----BEGIN CERTIFICATE----- and so on.",
        ) from wrong


def _retention(env: Mapping[str, str]) -> Retention:
    """`DSTACK_RETAIN_EVENTS` and so on, in days."""
    return Retention(
        **{
            field.name: _number(
                env,
                f"DSTACK_RETAIN_{field.name.upper()}",
                getattr(Retention, field.name),
                least=0 if field.name == "deleted" else 1,
                most=MOST_DAYS,
            )
            for field in fields(Retention)
        }
    )


def _docker_socket(env: Mapping[str, str]) -> Path:
    """`DOCKER_HOST` as Docker's own client reads it, if it names a socket of this machine."""
    scheme, _, path = env.get("DOCKER_HOST", "").partition("://")
    return Path(path) if scheme == "unix" and path else ServerSettings.docker_socket


def _job_users(env: Mapping[str, str]) -> str:
    text = env.get("DSTACK_SERVER_JOB_USERS", ServerSettings.job_users)
    first, _, last = text.partition("-")
    if not (
        text.isascii()
        and first.isdigit()
        and last.isdigit()
        and len(text) < 22
        and 1000 <= int(first) <= int(last) < 2**31
    ):
        raise Invalid(
            f"DSTACK_SERVER_JOB_USERS is {text!r}, not a range of user ids from 1000 on.",
            hint=f"Set it as in DSTACK_SERVER_JOB_USERS={ServerSettings.job_users}.",
        )
    return text


def _number(env: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = 2**40) -> int:
    text = env.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or not least <= int(text) <= most:
        raise Invalid(
            f"{name} is {text!r}, not a number from {least} to {most}.", hint=f"Set it as in {name}={default}."
        )
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, str(default))
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 60:
        raise Invalid(f"{name} is {text!r}.", hint="Set a number of seconds above 0 and up to 60.")
    return found


def _switch(env: Mapping[str, str], name: str, default: bool | None) -> bool | None:
    text = env.get(name)
    if text is None:
        return default
    if text.lower() not in SWITCHES:
        raise Invalid(f"{name} is {text!r}, not one of {', '.join(SWITCHES)}.", hint=f"Set it as in {name}=on.")
    return SWITCHES[text.lower()]


def _check_cloud(name: str, *, flag: bool) -> None:
    from chalicelib.backends.registry import BACKENDS

    if name not in BACKENDS:
        given, sign = ("--fake-cloud-name", " ") if flag else ("DSTACK_SERVER_FAKE_CLOUD_NAME", "=")
        raise Invalid(f"{given} is {name!r}, not one of {', '.join(BACKENDS)}.", hint=f"Set it as in {given}{sign}aws.")


def _choice(env: Mapping[str, str], name: str, known: tuple[str, ...], default: str) -> str:
    text = env.get(name, default).lower()
    if text not in known:
        raise Invalid(f"{name} is {text!r}, not one of {', '.join(known)}.", hint=f"Set it as in {name}={default}.")
    return text
