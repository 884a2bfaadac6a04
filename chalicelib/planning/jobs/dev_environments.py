"""What a dev environment's job runs: preparations, the user's `init`, then nothing until it is stopped.

The job prints how to connect, since every client shows the log of what it is attached to. Preparing an editor's server
only saves time: the editor installs what is missing, so a failure there is reported and doesn't end the job.
"""

from __future__ import annotations

import shlex

from chalicelib.domain.editors import EDITORS, Editor
from chalicelib.domain.specs.runs import DevEnvironmentConfiguration

_FETCH = """\
case $(uname -m) in x86_64) arch=x64;; aarch64) arch=arm64;; *) exit 1;; esac
to="$HOME/{folder}/{commit}"
[ -e "$to" ] && exit
mkdir -p "$to.part" || exit
{{ curl -fsSL --connect-timeout 10 "{url}" || wget -q -T 10 -O - "{url}"; }} 2>/dev/null |
  tar xzf - -C "$to.part" --strip-components 1 2>/dev/null && mv "$to.part" "$to" || {{ rm -rf "$to.part"; exit 1; }}"""

# Waits for ever, even in an image that has only a shell: nothing is ever typed on a job's terminal.
_WAIT = """\
if command -v tail >/dev/null; then tail -f /dev/null
else while read -r dstack_line </dev/tty; do :; done
fi"""


def commands(
    config: DevEnvironmentConfiguration, run_name: str
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Shell commands: before the user's, the user's, and after them."""
    editor = EDITORS[config.ide] if config.ide else None
    fetch = (_fetching(editor, config.version),) if editor and config.version else ()
    return fetch, config.init, ("\n".join([*(f"echo {line}" for line in _connect_lines(editor, run_name)), _WAIT]),)


def _fetching(editor: Editor, written: str) -> str:
    version, _, commit = written.rpartition("@")
    url = editor.server.format(arch="$arch", commit=commit, version=version)
    script = _FETCH.format(folder=editor.folder, commit=commit, url=url)
    instead = f"{editor.name} {written} was not prepared here; it installs itself when you connect."
    return f"{{ (\n{script}\n) || echo {shlex.quote(instead)}; }}"


def _connect_lines(editor: Editor | None, run_name: str) -> list[str]:
    """The lines that explain how to connect, each quoted for a shell."""
    lines = [shlex.quote(f"Connect to this dev environment while attached: ssh {run_name}")]
    if editor:
        # Not percent-encoded: only the job knows its folder, and shells have no tool for that.
        link = editor.link.format(host=run_name)
        lines += [shlex.quote(f"Open it in {editor.name}:"), f'"  {link}$DSTACK_WORKING_DIR"']
    return lines
