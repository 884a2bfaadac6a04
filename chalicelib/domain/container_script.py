"""The command and the environment of a container that is bought in place of a machine: they start the agent in it.

The image is the job's, so it may have anything or nothing. If it has a Python 3.8 or newer, the agent runs on that;
otherwise the script fetches a *carrier*, an archive with a Python of its own (`chalicelib/carrier`). All settings are
environment variables: providers show a container's arguments to more people than its environment, and one constant
script serves all containers.

The script runs a download only if its digest is among the settings, so the connection needn't be authenticated: many
images have no certificates to verify it with. Some builds of busybox crash on `wget -T` or lack long options.

An image without a shell needs a mounted folder, which another container fills first by running the same script with
`DSTACK_PREPARE` set.
"""

from __future__ import annotations

from collections.abc import Mapping

GATEWAY_IMAGE = "debian:12-slim"  # of a gateway's container: nginx and its Lua module are installed there
MOUNTED = "/dstack"  # the agent's folder is made here if it can be
LONGEST = 4096  # bytes: the limit of some providers for all arguments together
HIDDEN = "DSTACK_HIDDEN"  # a setting of some backends: the provider's variables that neither agent nor job may have
CARRIER_SETTINGS = {"x86": "DSTACK_CARRIER_X86_SHA256", "arm": "DSTACK_CARRIER_ARM_SHA256"}  # by architecture

SCRIPT = r"""umask 077
fail() { echo "dstack: $*" >&2; exit 78; }
lacks() { fail "this image has $*"; }
have() { command -v "$1" >/dev/null 2>&1; }
for name in SERVER INSTANCE TOKEN AGENT_SHA256; do
eval "[ -n \"\${DSTACK_$name-}\" ]" || fail "the container has no DSTACK_$name: its provider dropped the environment"
done
python= folder= tried=
usable='import sys, ssl, json, zlib, ctypes, hashlib, termios, os
p = ssl.get_default_verify_paths()
known = p.cafile or p.capath and os.listdir(p.capath)
sys.exit(sys.version_info < (3, 8) or sys.argv[1][:5] == "https" and not known)'
[ -n "${DSTACK_PREPARE-}" ] || for each in python3 python /usr/bin/python3 /usr/local/bin/python3; do
"$each" -I -S -c "$usable" "$DSTACK_SERVER" >/dev/null 2>&1 && python=$each && break
done
set -- "${DSTACK_DATA-}" /dstack/dstack-agent /tmp/dstack-agent /dev/shm/dstack-agent "${HOME-}/dstack-agent"
[ -z "${DSTACK_PREPARE-}" ] || set -- "$DSTACK_PREPARE"
for each; do
[ -n "$each" ] && mkdir -p "$each" 2>/dev/null && (: >"$each/writable") 2>/dev/null && folder=$each && break
done
[ -n "$folder" ] || fail "none of these folders can be written: $*; mount one at /dstack"
once() {
{ have curl && curl -kfsSL --connect-timeout 10 -y 30 -Y 1 -o "$2" "$1"; } ||
{ have wget && { wget -q -T 30 --no-check-certificate -O "$2" "$1" || wget -q -O "$2" "$1"; }; } ||
for each in python3 python; do have $each && $each -I -c 'import ssl, sys
from urllib.request import urlopen
any = ssl._create_unverified_context()
open(sys.argv[2], "wb").write(urlopen(sys.argv[1], timeout=60, context=any).read())' "$1" "$2" && return; done ||
{ have perl && perl -MHTTP::Tiny -e \
'$r = HTTP::Tiny->new->mirror(@ARGV); $r->{success} or die "$r->{status} $r->{content}\n"' "$1" "$2"; }
}
sum() {
if have sha256sum; then sha256sum "$1"; elif have shasum; then shasum -a 256 "$1"
elif have openssl; then openssl dgst -sha256 -r "$1"
else "${python:-python3}" -I -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
fi
}
get() {
have curl || have wget || have python3 || have python || perl -MHTTP::Tiny -e1 2>&- ||
lacks "neither curl, wget, python nor perl to fetch $1 with: add one of them"
waited=0 pause=1
while :; do
why="$1 can't be fetched from $DSTACK_SERVER"
if once "$DSTACK_SERVER/agent/$1?sha256=$3" "$2"; then
found=$(sum "$2") || lacks "neither sha256sum, openssl nor python to check $1 with: add one of them"
[ "${found%% *}" = "$3" ] && return
why="$1 from $DSTACK_SERVER has an unexpected SHA-256: ${found%% *}"
fi
(echo >"$folder/writable") 2>/dev/null || fail "$folder is full"
[ $waited -lt 600 ] || fail "$why"
sleep $pause
waited=$((waited + pause)) pause=$((pause < 30 ? pause * 2 : 30))
done
}
unpack() {
digest=${DSTACK_CARRIER_X86_SHA256-}
case $(uname -m) in aarch64 | arm64) digest=${DSTACK_CARRIER_ARM_SHA256-};; esac
[ -n "$digest" ] ||
lacks "no Python 3.8 or newer, and this control plane has no carrier that brings one: ask its admin"
have tar || lacks "no tar to unpack a Python with: add tar, or Python 3.8 or newer"
packed=$folder/carrier.tar.gz
get carrier.tar.gz "$packed" "$digest"
for carrier; do
why=$(exec 2>&1; mkdir -p "$carrier" && tar -xzof "$packed" -C "$carrier" &&
"$carrier/lib/loader" --library-path "$carrier/lib" "$carrier/bin/python3" -I -S -c '') && break
tried="$tried; $carrier: ${why%%"
"*}" carrier=
done
[ -n "$carrier" ] || fail "no folder can hold and run a Python: mount one at /dstack, without noexec$tried"
rm -f "$packed"
}
get agent.pyz "$folder/agent.pyz" "$DSTACK_AGENT_SHA256"
if [ -n "${DSTACK_PREPARE-}" ]; then
umask 022; unpack "$folder"; chmod a+rX "$folder" "$folder/agent.pyz"; exit 0
fi
if [ -n "$python" ]; then set -- "$python"; else
unpack "$folder/carrier" /tmp/dstack-carrier "${HOME-}/dstack-carrier" /dev/shm/dstack-carrier
set -- "$carrier/lib/loader" --library-path "$carrier/lib" "$carrier/bin/python3"
fi
printf %s "$DSTACK_TOKEN" >"$folder/token" || fail "$folder is full"
unset DSTACK_TOKEN ${DSTACK_HIDDEN-}
exec "$@" -I -S "$folder/agent.pyz" --inside --data "$folder" --token-file "$folder/token"
"""


def settings(
    server_url: str, instance_id: str, token: str, program: str, carriers: Mapping[str, str]
) -> dict[str, str]:
    """The environment of such a container. `program`: SHA-256 of the agent. `carriers`: SHA-256 of the carrier for each
    architecture, x86 and arm; one that is empty or missing doesn't exist, so images for it need their own Python."""
    return {
        "DSTACK_SERVER": server_url,
        "DSTACK_INSTANCE": instance_id,
        "DSTACK_TOKEN": token,
        "DSTACK_AGENT_SHA256": program,
        **{name: carriers.get(architecture, "") for architecture, name in CARRIER_SETTINGS.items()},
    }


def read_settings(settings: Mapping[str, str]) -> tuple[str, str, str]:
    """The server's URL, the instance's id and the bootstrap token."""
    return settings["DSTACK_SERVER"], settings["DSTACK_INSTANCE"], settings["DSTACK_TOKEN"]


def command() -> list[str]:
    """The command for an image that has a shell."""
    return ["/bin/sh", "-c", SCRIPT]


def prepared(folder: str = MOUNTED) -> list[str]:
    """The command for any image, where `folder` is a mount that was filled by the script with `DSTACK_PREPARE`."""
    loader = [f"{folder}/lib/loader", "--library-path", f"{folder}/lib"]
    return [*loader, f"{folder}/bin/python3", "-I", "-S", f"{folder}/agent.pyz", "--inside"]
