"""What a control plane answers that doesn't decide any more: agents learn where it has moved to, and so do people.

An agent is sent on with status 308, but only if its credential is one of those that were stored here. To others the
place of the control plane is no secret either, since people are told it; but an agent that this control plane doesn't
know must not be sent anywhere by it.
"""

from __future__ import annotations

import hmac

import orjson

from chalicelib.api import dispatch
from chalicelib.api.auth import bearer
from chalicelib.api.dispatch import Reply, Request
from chalicelib.domain import keys
from chalicelib.domain.fences import Fence
from chalicelib.domain.instances import Instance
from chalicelib.engine.bootstrap_tokens import bootstrap_token
from chalicelib.errors import Forbidden, Moved
from chalicelib.store import nouns
from chalicelib.usecases.agents.credentials import instance_holding
from chalicelib.usecases.ports import CredentialPorts

AGENTS = "/agent/"


def answer(plane: CredentialPorts, fence: Fence, request: Request) -> Reply:
    if not request.path.startswith(AGENTS) or not fence.agents_url:
        return dispatch.failure(Moved(fence.problem, hint=fence.hint), request.path, request.path)
    if not _known(plane, bearer(request.headers) or "", request.body):
        refused = Forbidden("This credential doesn't belong to an instance")
        return dispatch.failure(refused, request.path, request.path)
    headers = {"Content-Type": "application/json", "Location": f"{fence.agents_url}{request.path}"}
    return Reply(308, headers, orjson.dumps({"server": fence.agents_url}))


def _known(plane: CredentialPorts, credential: str, body: bytes) -> bool:
    try:
        instance_holding(plane, credential)
    except Forbidden:
        return _is_new(plane, credential, body)
    return True


def _is_new(plane: CredentialPorts, credential: str, body: bytes) -> bool:
    """Is it the token of a machine whose agent has never reported yet?"""
    try:
        instance_id = str(orjson.loads(body)["instance"])
    except (ValueError, KeyError, TypeError):
        return False
    instance = nouns.find(plane.store, Instance, keys.instance(instance_id)) if instance_id else None
    if instance is None:
        return False
    expected = bootstrap_token(plane.install_key, instance.id, instance.epoch)
    return hmac.compare_digest(credential.encode(), expected.encode())
