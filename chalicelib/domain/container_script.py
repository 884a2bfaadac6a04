"""How the agent starts in a container that is a machine: what its provider is given to run there.

The job's image may be any. Where it has a Python that will do, the agent runs on that; else the script fetches the
carrier, which brings one (`chalicelib/carrier`). Settings come as the container's environment, because providers show
arguments to more people, and because the same text then starts every container.

What is fetched is run only if its digest is the one among the settings. So it needn't come over a connection that the
image can verify: many images have no certificates. Some builds of busybox crash at `wget -T`, or know no long options.

An image without a shell can only be served by a folder that is mounted into it, which another container fills first,
with the same script and `DSTACK_PREPARE`.
"""

from __future__ import annotations

from collections.abc import Mapping

MOUNTED = "/dstack"  # where the agent looks first for a folder of its own
LONGEST = 4096  # bytes that providers take as arguments, all together

SCRIPT = r"""umask 077
fail() { echo "dstack: $*" >&2; exit 78; }
have() { command -v "$1" >/dev/null 2>&1; }
for name in SERVER INSTANCE TOKEN AGENT_SHA256; do
eval "[ -n \"\${DSTACK_$name-}\" ]" || fail "the container has no DSTACK_$name: its provider dropped the environment"
done
python= folder=
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
{ have curl && curl -kfsSL --connect-timeout 10 -o "$2" "$1"; } ||
{ have wget && { wget -q -T 30 --no-check-certificate -O "$2" "$1" || wget -q -O "$2" "$1"; }; } ||
for each in python3 python; do have $each && $each -c 'import ssl, sys, shutil
from urllib.request import urlopen
any = ssl._create_unverified_context()
shutil.copyfileobj(urlopen(sys.argv[1], context=any), open(sys.argv[2], "wb"))' "$1" "$2" && return; done ||
{ have perl && perl -MHTTP::Tiny -e \
'$r = HTTP::Tiny->new->mirror(@ARGV); $r->{success} or die "$r->{status} $r->{content}\n"' "$1" "$2"; }
}
sum() {
if have sha256sum; then sha256sum "$1"; elif have shasum; then shasum -a 256 "$1"
elif have openssl; then openssl dgst -sha256 -r "$1"
else "${python:-python3}" -c 'import hashlib, sys
print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
fi
}
get() {
have curl || have wget || have python3 || have python || have perl ||
fail "this image has neither curl, wget, python nor perl to fetch $1 with: add one of them to it"
for pause in 1 2 4 8 16 0; do
once "$DSTACK_SERVER/agent/$1?sha256=$3" "$2" && break
[ $pause = 0 ] && fail "$1 can't be fetched from $DSTACK_SERVER"
sleep $pause
done
found=$(sum "$2") || fail "this image has neither sha256sum, openssl nor python to check $1 with: add one of them to it"
[ "${found%% *}" = "$3" ] || fail "$1 from $DSTACK_SERVER isn't the one that was meant: its SHA-256 is ${found%% *}"
}
carried() { "$1/lib/loader" --library-path "$1/lib" "$1/bin/python3" -I -S -c '' 2>/dev/null; }
unpack() {
[ -n "${DSTACK_CARRIER_SHA256-}" ] ||
fail "this image has no Python 3.8 or newer, and this control plane has no carrier that brings one: ask its admin"
have tar || fail "this image has no tar to unpack a Python with: add tar, or Python 3.8 or newer, to it"
get carrier.tar.gz "$folder/carrier.tar.gz" "$DSTACK_CARRIER_SHA256"
for carrier in "$@"; do
mkdir -p "$carrier" 2>/dev/null && tar -xzof "$folder/carrier.tar.gz" -C "$carrier" && carried "$carrier" && break
carrier=
done
[ -n "$carrier" ] || fail "no program can be run in $*: mount a folder without noexec at /dstack or /tmp"
rm -f "$folder/carrier.tar.gz"
}
get agent.pyz "$folder/agent.pyz" "$DSTACK_AGENT_SHA256"
if [ -n "${DSTACK_PREPARE-}" ]; then
umask 022; unpack "$folder"; chmod 755 "$folder"; chmod 644 "$folder/agent.pyz"; exit 0
fi
if [ -n "$python" ]; then set -- "$python"; else
unpack "$folder/carrier" /tmp/dstack-carrier "${HOME-}/dstack-carrier" /dev/shm/dstack-carrier
set -- "$carrier/lib/loader" --library-path "$carrier/lib" "$carrier/bin/python3"
fi
printf %s "$DSTACK_TOKEN" >"$folder/token" || fail "$folder is full"
unset DSTACK_TOKEN
exec "$@" -I -S "$folder/agent.pyz" --inside --data "$folder" --server "$DSTACK_SERVER" \
--instance "$DSTACK_INSTANCE" --token-file "$folder/token"
"""


def settings(server_url: str, instance_id: str, token: str, program: str, carrier: str) -> dict[str, str]:
    """The environment of such a container. `program`, `carrier`: SHA-256 of the agent and of the carrier for its
    processor, which is empty where this control plane has none: then images need a Python of their own."""
    return {
        "DSTACK_SERVER": server_url,
        "DSTACK_INSTANCE": instance_id,
        "DSTACK_TOKEN": token,
        "DSTACK_AGENT_SHA256": program,
        "DSTACK_CARRIER_SHA256": carrier,
    }


def read_settings(settings: Mapping[str, str]) -> tuple[str, str, str]:
    """Server URL, instance id and token."""
    return settings["DSTACK_SERVER"], settings["DSTACK_INSTANCE"], settings["DSTACK_TOKEN"]


def command() -> list[str]:
    """What runs in a container of an image that has a shell."""
    return ["/bin/sh", "-c", SCRIPT]


def prepared(folder: str = MOUNTED) -> list[str]:
    """What runs in a container of any image, once `folder` is mounted there as `DSTACK_PREPARE` had it filled."""
    loader = [f"{folder}/lib/loader", "--library-path", f"{folder}/lib"]
    return [*loader, f"{folder}/bin/python3", "-I", "-S", f"{folder}/agent.pyz", "--inside"]
