"""The editors of dev environments: how each opens a folder over SSH, and how its server part is fetched beforehand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Editor:
    name: str
    link: str  # `{host}`: an alias of the SSH configuration; an absolute path follows
    command: str = ""  # prints its version and its commit, a line each
    folder: str = ""  # of its server, one subfolder a commit
    server: str = ""  # where the server is published: `{arch}`, `{commit}`, `{version}`


_REMOTE = "vscode-remote/ssh-remote+{host}"
EDITORS = {  # `ide` of a configuration
    "vscode": Editor(
        "VS Code",
        f"vscode://{_REMOTE}",
        "code",
        ".vscode-server/bin",
        "https://update.code.visualstudio.com/commit:{commit}/server-linux-{arch}/stable",
    ),
    "cursor": Editor(
        "Cursor",
        f"cursor://{_REMOTE}",
        "cursor",
        ".cursor-server/bin",
        "https://cursor.blob.core.windows.net/remote-releases/{commit}/vscode-reh-linux-{arch}.tar.gz",
    ),
    "windsurf": Editor(
        "Windsurf",
        f"windsurf://{_REMOTE}",
        "windsurf",
        ".windsurf-server/bin",
        "https://windsurf-stable.codeiumdata.com/linux-reh-{arch}/stable/{commit}/"
        "windsurf-reh-linux-{arch}-{version}.tar.gz",
    ),
    "zed": Editor("Zed", "zed://ssh/{host}"),  # uploads its server by itself
}
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*(@[0-9a-f]+)?")


def link_to(ide: str, host: str, path: str) -> str:
    return EDITORS[ide].link.format(host=host) + quote(path)
