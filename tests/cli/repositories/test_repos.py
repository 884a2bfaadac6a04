"""Bringing a repository: what a checkout is found to be, that its patch fits, and what is said when it can't be.

That the server is told the same as by the genuine client is proven in `tests/wire`; here is what only we promise.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chalicelib.errors import DstackError
from cli.repositories.checkout import read_checkout
from cli.repositories.remotes import parse_remote
from tests.cli.conftest import Dstack
from tests.cli.plane import NOT_THERE, Plane, finished, offer, run
from tests.wire.far import CLOSED, OPEN, TOKEN, Far

pytestmark = pytest.mark.slow

TASK = "type: task\nname: train\ncommands: [ls]\n"
FAR = f"https://{OPEN}/case/app.git"
LOCKED = f"https://{CLOSED}/case/app.git"
GIT_VARIABLES = {"GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    with Far(tmp_path_factory.mktemp("far")) as found:
        yield found


@pytest.fixture
def env(bare: Dstack, far: Far) -> dict[str, str]:
    return {**GIT_VARIABLES, "HOME": str(bare.terminal.home), **far.variables}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, far: Far) -> Path:
    """What each test gets a copy of: a home, a checkout, and the repository that it follows."""
    folder, bare_one = tmp_path_factory.mktemp("made"), far.server.root / "case" / "app.git"
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    (folder / "work" / ".dstack.yml").write_text(TASK)
    sh(
        folder / "work",
        {**GIT_VARIABLES, "HOME": str(folder / "home"), **far.variables},
        "git config --global user.name Me; git config --global user.email me@example.com",
        f"git init -q --template= --bare -b main {bare_one}; git init -q --template= -b main .",
        f"mkdir .git/info; git remote add origin {bare_one}",
        "git add .; git commit -q -m first; git push -q -u origin main",
        f"git config remote.origin.url {FAR}; git config remote.origin.pushurl {bare_one}",
    )
    bare_one.rename(folder / "app.git")
    return folder


@pytest.fixture
def work(bare: Dstack, made: Path, far: Far) -> Path:
    """A checkout of a repository that is new for each test."""
    bare_one = far.server.root / "case" / "app.git"
    shutil.rmtree(bare_one, ignore_errors=True)
    shutil.copytree(made / "app.git", bare_one)
    shutil.copytree(made / "home", bare.terminal.home, dirs_exist_ok=True)
    return Path(shutil.copytree(made / "work", bare.terminal.cwd, dirs_exist_ok=True))


@pytest.fixture
def apply(dstack: Dstack, plane: Plane, work: Path, env: dict[str, str]) -> Dstack:
    plane.answers = {
        "/repos/get": NOT_THERE,
        "/repos/init": None,
        "/repos/upload_code": None,
        "/runs/get_plan": lambda body: {
            "project_name": "main",
            "user": "admin",
            "run_spec": body["run_spec"],
            "effective_run_spec": body["run_spec"],
            "job_plans": [
                {
                    "job_spec": {"requirements": {"resources": body["run_spec"]["configuration"]["resources"]}},
                    "offers": [offer()],
                    "total_offers": 1,
                    "max_price": 0.1,
                }
            ],
            "current_resource": None,
            "action": "create",
        },
        "/runs/apply": run("train", "submitted"),
        "/runs/get": finished("train"),
    }
    return Dstack(replace(dstack.terminal, env=env), dstack.naps)


def sh(folder: Path, env: dict[str, str], *lines: str) -> str:
    command = ["bash", "-ec", "\n".join(lines)]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- addresses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "https", "ssh", "name"),
    [
        ("https://github.com/me/app.git", "https://github.com/me/app.git", "ssh://git@github.com/me/app.git", "app"),
        ("https://GitHub.com:443/me/app", "https://github.com/me/app", "ssh://git@github.com/me/app", "app"),
        ("https://me:secret@h.example:8443/app/", "https://h.example:8443/app/", "ssh://git@h.example/app/", "app"),
        ("bob@h.example:me/app.git", "https://h.example/me/app.git", "ssh://bob@h.example/me/app.git", "app"),
        ("ssh://bob@h.example:2222/me/b.c", "https://h.example/me/b.c", "ssh://bob@h.example:2222/me/b.c", "b.c"),
        ("ssh://h.example:22/~me/app", "https://h.example/~me/app", "ssh://git@h.example/~me/app", "app"),
        ("https://[::1]:80/me/app", "https://[::1]:80/me/app", "ssh://git@[::1]/me/app", "app"),
        ("https://h.example/Ü b", "https://h.example/%C3%9C%20b", "ssh://git@h.example/%C3%9C%20b", "%C3%9C%20b"),
        ("https://h.example", "https://h.example/", "ssh://git@h.example/", "unknown"),
    ],
)  # fmt: skip
def test_an_address_is_one_of_two(tmp_path: Path, address: str, https: str, ssh: str, name: str) -> None:
    remote = parse_remote(address, tmp_path, named_by="--repo")
    assert (remote.https, remote.ssh, remote.name) == (https, ssh, name)


def test_an_id_is_of_host_and_path(tmp_path: Path) -> None:
    """As the genuine client makes it; the figures are from it."""
    known = {
        "https://github.com/me/app.git": "app-uz1667ds",
        "git@github.com:me/app": "app-uz1667ds",
        "ssh://bob@GITHUB.com:99/me/app.git/": "app-uz1667ds",
        "https://gitlab.com/me/app": "app-zc0ixzaz",
        "https://example.invalid/Me/App.git": "App-dak2suei",
        "https://example.invalid/a/b/c/app.git": "app-itbj4pfv",
        "https://example.invalid/me/app.git.git": "app.git-3n81ol50",
        "https://example.invalid/": "unknown-k4pupubq",
        "https://[::1]:80/me/app": "app-7nr10y78",
        "https://example.invalid/me/my app.git": "my%20app-4pjv6r0n",
    }
    assert {address: parse_remote(address, tmp_path, named_by="--repo").id for address in known} == known


def test_a_password_in_an_address_is_dropped(tmp_path: Path) -> None:
    assert "secret" not in repr(parse_remote("https://me:secret@h.example/app", tmp_path, named_by="--repo"))


def test_ssh_has_a_say(tmp_path: Path) -> None:
    folder = tmp_path / "a home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "more").write_text("Host short\n  HostName long.example\n  Port 2200\n")
    (folder / ".ssh" / "config").write_text(
        f'Include "{folder}/.ssh/more"\nHost short other\n  User zed\n  IdentityFile %d/.ssh/mine\n  IdentityFile no\n'
    )
    short = parse_remote("git@short:me/app", folder, named_by="--repo")
    assert (short.https, short.ssh) == ("https://long.example/me/app", "ssh://git@long.example:2200/me/app")
    assert short.ssh_key == f"{folder}/.ssh/mine"
    other = parse_remote("https://other/me/app", folder, named_by="--repo")
    assert (other.ssh, other.ssh_key) == ("ssh://zed@other/me/app", short.ssh_key)
    unknown = parse_remote("https://unknown/me/app", folder, named_by="--repo")
    assert (unknown.ssh, unknown.ssh_key) == ("ssh://git@unknown/me/app", None)
    (folder / ".ssh" / "config").write_text("Host x\n  Nonsense yes\n")
    with pytest.raises(DstackError, match=r"config can't be used: .*[Nn]onsense"):
        parse_remote("git@short:me/app", folder, named_by="--repo")


# --- the patch -------------------------------------------------------------------------------------------------------

CHANGES = {
    "nothing": "true",
    "everything": """
        echo more >> text; rm gone; chmod +x mode; rm kind; ln -s text kind; printf '\\0\\3' > binary
        git mv moved moved2; echo staged > staged; git add staged; echo later >> staged
        echo committed >> text; git commit -qm local -- text; echo last >> text
        mkdir -p new/deep; echo a > new/deep/x; printf abc > new/no-eol; touch new/empty; printf 'a\\0b' > new/binary
        echo '#!/bin/sh' > new/run; chmod +x new/run; ln -s nowhere new/dangling; ln -s new link-to-folder
        echo a > -dash; echo a > 'a b'; echo a > $'t\\tb\\n'; echo a > é; printf 'caf\\351' > latin; echo a > 'g*b'
        printf 'a\\r\\nb\\r\\n' > crlf; echo x > some.log; echo n > intended; git add -N intended
    """,
    "behind": "echo a > a; git add a; git commit -qm a; git push -q; git reset -q --hard HEAD~1",
    "unpushed branch": "git switch -q -c x; git branch -q -u origin/main; echo a > a; git add a; git commit -qm a",
}
SETTINGS = {
    "none": "true",
    "for people": """
        git config diff.noprefix true; git config diff.mnemonicPrefix true; git config color.ui always
        git config diff.context 0; git config diff.external false; git config diff.submodule log
        git config diff.renames false; git config core.quotePath false; git config core.abbrev 40
        git config diff.shout.textconv 'tr a-z A-Z <'; git config diff.wordRegex .; git config diff.relative true
        git config diff.interHunkContext 9; git config diff.algorithm patience; git config status.short true
        echo '* diff=shout' > .git/info/attributes
    """,
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_patch_makes_the_same_files(
    work: Path, env: dict[str, str], far: Far, tmp_path: Path, change: str, settings: str
) -> None:
    (tmp_path / "far.git").symlink_to(far.server.root / "case" / "app.git")
    files = {"text": "one\ntwo\n", "gone": "x", "mode": "x", "kind": "x", "binary": "\0\1", "moved": "as it\nwas\n"}
    for name, text in {**files, ".gitignore": "*.log\n"}.items():
        (work / name).write_text(text)
    sh(work, env, "git add .; git commit -qm more; git push -q", CHANGES[change], SETTINGS[settings])
    before = sh(work, env, "git status --porcelain=v2; git ls-files --stage")
    found = read_checkout(work, env, named_by="--repo")
    assert sh(work, env, "git status --porcelain=v2; git ls-files --stage") == before, "nothing was changed here"
    other = tmp_path / "other"
    sh(tmp_path, env, f"git clone -q far.git other; cd other; git checkout -q {found.commit}")
    if found.patch:
        (tmp_path / "patch").write_bytes(found.patch)
        sh(other, env, "git apply --binary --whitespace=nowarn ../patch")
    (work / "some.log").unlink(missing_ok=True)
    assert bool(found.patch) == (change != "nothing")
    assert sh(tmp_path, env, "diff -r --no-dereference -x .git work other") == ""
    modes = "find . -path ./.git -prune -o -type f -perm -100 -print | sort"
    assert sh(work, env, modes) == sh(other, env, modes)


def test_another_repository_in_the_environment_is_not_meant(work: Path, env: dict[str, str], tmp_path: Path) -> None:
    """A hook of git's has such variables."""
    before = read_checkout(work, env, named_by="--repo")
    sh(tmp_path, env, "git init -q elsewhere")
    of_a_hook = {**env, "GIT_DIR": str(tmp_path / "elsewhere" / ".git"), "GIT_INDEX_FILE": "nothing"}
    assert read_checkout(work, of_a_hook, named_by="--repo") == before


# --- what is sent, and when ------------------------------------------------------------------------------------------


def test_the_patch_goes_up_once_it_is_agreed_to(apply: Dstack, plane: Plane, work: Path) -> None:
    (work / "new").write_text("n\n")
    ended = apply("apply", "-d", "-P", ".", answers="n\n")
    assert ended.code == 0 and plane.paths() == ["/repos/get", "/repos/init", "/runs/get_plan"], ended
    plane.requests.clear()
    ended = apply("apply", "-d", "-P", ".", answers="y\n")
    assert ended.code == 0, ended
    assert plane.paths() == ["/repos/get", "/repos/init", "/runs/get_plan", "/repos/upload_code", "/runs/apply"]
    upload = plane.requests[3]
    assert upload.path.endswith("?repo_id=" + plane.bodies("/repos/init")[0]["repo_id"])
    assert plane.bodies("/runs/get_plan")[0]["run_spec"]["repo_code_hash"].encode() in upload.raw


def test_a_run_isnt_stopped_for_a_patch_that_cant_be_uploaded(apply: Dstack, plane: Plane, work: Path) -> None:
    plan = plane.answers["/runs/get_plan"]
    plane.answers["/runs/get_plan"] = lambda body: {**plan(body), "current_resource": run("train")}
    plane.answers |= {"/repos/upload_code": (400, {"detail": [{"msg": "It is too large"}]}), "/runs/stop": None}
    (work / "new").write_text("n\n")
    ended = apply("apply", "-y", "-d", "-P", ".")
    assert ended.code == 1 and "can't be uploaded" in ended.err and "/runs/stop" not in plane.paths(), ended


def test_what_is_clean_needs_no_patch(apply: Dstack, plane: Plane) -> None:
    assert apply("apply", "-y", "-d", "-P", ".").code == 0
    assert plane.paths() == ["/repos/get", "/repos/init", "/runs/get_plan", "/runs/apply"]
    assert plane.bodies("/runs/get_plan")[0]["run_spec"]["repo_code_hash"] is None


def test_a_patch_that_is_too_large_is_called_one_and_names_its_largest_files(
    apply: Dstack, plane: Plane, work: Path, env: dict[str, str]
) -> None:
    sh(work, env, "git init -q inner; echo small > small")
    (work / "inner" / "large").write_bytes(os.urandom(300_000))
    plane.answers["/repos/upload_code"] = (400, {"detail": [{"msg": "The upload has 2.9 MB", "code": "error"}]})
    ended = apply("apply", "-y", "-d", "-P", ".")
    assert ended.code == 1 and "/runs/apply" not in plane.paths()
    what = (
        "The patch with what changed since the last push or fetch, most of it inner/large (0.4 MB), can't be uploaded."
    )
    assert f"{what} The upload has 2" in ended.err and "Leave out large files" in ended.err


@pytest.fixture
def model(work: Path, env: dict[str, str]) -> Path:
    """A file of Git LFS."""
    sh(work, env, "echo '*.bin filter=lfs' > .gitattributes; git add .gitattributes")
    put_model(work / "m.bin", env, b"model")
    return work / "m.bin"


def put_model(model: Path, env: dict[str, str], content: bytes) -> None:
    pointer = f"oid sha256:{hashlib.sha256(content).hexdigest()}\nsize {len(content)}\n"
    model.write_text(f"version https://git-lfs.github.com/spec/v1\n{pointer}")
    sh(model.parent, env, "git add m.bin; git commit -qm lfs; git push -q")
    model.write_bytes(content)


STORED = "Jobs get these as the repository stores them, unfiltered: m.bin\n"


def test_a_large_file_goes_along_unless_jobs_should_have_pointers(apply: Dstack, plane: Plane, model: Path) -> None:
    ended = apply("apply", "-y", "-d", "-P", ".")
    assert ended.code == 0 and STORED not in ended.err and "/repos/upload_code" in plane.paths(), ended
    plane.requests.clear()
    ended = apply("apply", "-y", "-d", "-P", ".", "--lfs-pointers")
    assert ended.code == 0 and STORED in ended.err and "/repos/upload_code" not in plane.paths(), ended


def test_a_patch_that_is_too_large_names_its_large_files_and_the_flag(apply: Dstack, plane: Plane, model: Path) -> None:
    limit = {"msg": "The upload has 2.9 MB", "code": "error", "hint": "Leave out files."}
    plane.answers["/repos/upload_code"] = (400, {"detail": [limit]})
    ended = apply("apply", "-y", "-d", "-P", ".")
    assert ended.code == 1 and "The patch with Git LFS files and what changed since" in ended.err, ended
    assert "Instead of m.bin (5 B), let jobs have pointers with `--lfs-pointers`; `git lfs pull` in" in ended.err


def test_a_repository_with_files_that_are_too_large_can_be_registered(
    apply: Dstack, plane: Plane, model: Path, env: dict[str, str]
) -> None:
    put_model(model, env, bytes(9 << 20))
    ended = apply("apply", "-y", "-d", "-P", ".")
    assert ended.code == 1 and "m.bin (9.0 MB)" in ended.err and plane.paths() == [], ended
    ended = apply("init", "-P", ".")
    assert ended.code == 0 and ended.err == "" and plane.paths() == ["/repos/init"], ended


def test_a_folder_that_is_no_checkout_goes_up_as_it_is(apply: Dstack, plane: Plane, work: Path) -> None:
    folder = work.parent / "plain"
    (folder / "sub").mkdir(parents=True)
    for name, text in (("sub/a.txt", "a"), ("b.log", "b"), (".gitignore", "*.log"), (".dstackignore", "c")):
        (folder / name).write_text(text)
    (folder / "c").write_text("c")
    ended = apply("apply", "-y", "-d", "-P", "../plain")
    assert ended.code == 0, ended
    assert plane.paths() == ["/repos/init", "/runs/get_plan", "/repos/upload_code", "/runs/apply"]
    known, spec = plane.bodies("/repos/init")[0], plane.bodies("/runs/get_plan")[0]["run_spec"]
    assert known["repo_info"] == spec["repo_data"] == {"repo_type": "local", "repo_dir": str(folder.resolve())}
    assert re.fullmatch(r"plain-[0-9a-f]{8}", known["repo_id"]) and spec["repo_id"] == known["repo_id"]
    raw = plane.requests[2].raw
    with tarfile.open(fileobj=io.BytesIO(raw[raw.index(b"\r\n\r\n") + 4 :])) as tar:
        names = sorted(tar.getnames())
    assert names == [".", "./.dstackignore", "./.gitignore", "./sub", "./sub/a.txt"]


def test_who_gets_credentials_is_told(apply: Dstack, plane: Plane) -> None:
    ended = apply("apply", "-y", "-d", "-P", FAR, "-t", TOKEN)
    assert ended.code == 0 and "keeps it" not in ended.err, "they weren't needed, and stayed here"
    ended = apply("apply", "-y", "-d", "-P", LOCKED, "-t", TOKEN)
    assert ended.code == 0 and f"Jobs will read {LOCKED} with --token; the server stores it for you." in ended.err, (
        ended
    )
    assert [body["repo_creds"]["oauth_token"] for body in plane.bodies("/repos/init")] == [None, TOKEN]
    assert TOKEN not in ended.out + ended.err


def test_what_an_access_token_cant_see_is_neither_replaced_nor_asked_for(apply: Dstack, plane: Plane) -> None:
    """The job clones with what the server has stored; only what the command line gives goes in its place."""
    known = {"repo_id": "r", "repo_info": {"repo_type": "remote", "repo_name": "r"}, "repo_creds": None}
    plane.answers["/repos/get"] = {**known, "has_creds": True}
    ended = apply("apply", "-y", "-d", "-P", LOCKED)
    assert ended.code == 0 and plane.paths() == ["/repos/get", "/runs/get_plan", "/runs/apply"], ended
    ended = apply("apply", "-y", "-d", "-P", LOCKED, "-t", TOKEN)
    assert ended.code == 0 and [body["repo_creds"]["oauth_token"] for body in plane.bodies("/repos/init")] == [TOKEN]
    plane.answers["/repos/get"] = {**known, "has_creds": False}
    ended = apply("apply", "-y", "-d", "-P", LOCKED)
    assert ended.code == 1 and "can't be read" in ended.err, "there is nothing to clone it with"


@pytest.mark.parametrize("address", [FAR, f"ssh://git@{OPEN}:2222/case/app"])
def test_a_stored_address_of_the_repository_stays(apply: Dstack, plane: Plane, address: str) -> None:
    plane.answers["/repos/get"] = known_at(address)
    ended = apply("apply", "-y", "-d", "-P", FAR)
    assert ended.code == 0 and plane.paths() == ["/repos/get", "/runs/get_plan", "/runs/apply"], ended


@pytest.mark.parametrize("address", ["https://evil.example/case/app.git", f"https://{OPEN}/evil/app.git", ""])
def test_a_stored_address_of_another_repository_is_replaced(apply: Dstack, plane: Plane, address: str) -> None:
    """Whoever registered it, jobs would clone that one."""
    plane.answers["/repos/get"] = known_at(address)
    ended = apply("apply", "-y", "-d", "-P", FAR)
    assert ended.code == 0 and f"had another address for this repository, which it replaces: {address!r}" in ended.err
    (stored,) = plane.bodies("/repos/init")
    assert stored["repo_creds"] == {"clone_url": FAR, "private_key": None, "oauth_token": None}


def known_at(address: str) -> dict[str, Any]:
    creds = {"clone_url": address, "private_key": None, "oauth_token": None}
    info = {"repo_type": "remote", "repo_name": "app"}
    return {"repo_id": "r", "repo_info": info, "repo_creds": creds, "has_creds": True}


def test_a_token_is_in_no_command_line(apply: Dstack, tmp_path: Path, env: dict[str, str]) -> None:
    tools, log = tmp_path / "tools", tmp_path / "git.log"
    tools.mkdir()
    (tools / "git").write_text(f'#!/bin/sh\necho "$0 $*" >> {log}\nexec {shutil.which("git")} "$@"\n')
    (tools / "git").chmod(0o755)
    ended = apply("apply", "-y", "-d", "-P", LOCKED, "-t", TOKEN, env={**env, "PATH": f"{tools}:{env['PATH']}"})
    assert ended.code == 0 and log.read_text().count("ls-remote") == 2
    assert TOKEN not in log.read_text()


def test_init_makes_it_known_and_writes_nothing(apply: Dstack, plane: Plane, work: Path) -> None:
    (work / ".dstack.yml").unlink()
    ended = apply("init", "-P", ".")
    assert ended.code == 0 and ended.out.startswith(f"Registered {FAR} as app-"), ended
    assert plane.paths() == ["/repos/init"] and not (work / ".dstack.yml").exists()
    ended = apply("init", "-P", ".", "--schema")
    assert ended.code == 2 and "--schema and --skill set up this folder" in ended.err


# --- what is said when it can't be -----------------------------------------------------------------------------------

REFUSALS = {
    "within": ("mkdir sub", "-P sub", "is within the checkout", "Name that folder to use all of it"),
    "none": ("mkdir ../x", "-P ../x -t x", "--token is for a repository, and", "Leave it out"),
    "broken": ("mkdir -p ../x/.git", "-P ../x", "isn't a checkout of a Git repository (fatal: not a", "with `files`"),
    "missing": ("true", "-P ../x", "doesn't exist", "Name the folder of a checkout"),
    "file": ("true", "-P .dstack.yml", "is a file", "single files go into `files`"),
    "bare": ("git init -q --bare ../x", "-P ../x", "is a bare repository", "Name a checkout"),
    "detached": ("git switch -q --detach", "-P .", "a detached HEAD", "`git switch BRANCH`"),
    "no upstream": ("git switch -q -c x", "-P .", "the branch x follows no branch", "`git push -u origin x`"),
    "local upstream": ("git switch -q -c x -t main", "-P .", "follows another branch here", "`git push -u origin x`"),
    "not pushed": (
        "git switch -q -c x; git config branch.x.remote origin; git config branch.x.merge refs/heads/x",
        "-P .",
        "follows x at origin, which isn't known here",
        "`git push -u origin x`, or fetch it with `git fetch origin`",
    ),
    "no address": ("git config --unset remote.origin.url", "-P .", "follows origin, which has no address", "remote -v"),
    "http": ("true", "-P http://127.0.0.1/a", "uses http; jobs can clone only", "Serve it over https (agents trust"),
    "git": ("true", "-P git://open.example/a", "uses git; jobs can clone only", "It looks like https://"),
    "no port": ("true", "-P https://open.example:99999/a", "has an invalid port", "It looks like https://"),
    "no branch": ("true", f"-P {FAR} --repo-branch x", f"{FAR} has no branch x", f"git ls-remote --heads {FAR}"),
    "no such": ("true", "-P https://open.example/x", "can't be read:\n  without credentials: fatal", "--token TOKEN"),
    "locked": ("true", f"-P {LOCKED}", "can't be read:\n  without credentials: fatal: ", "`$(gh auth token)`"),
    "wrong token": ("true", f"-P {LOCKED} -t x", "\n  with --token: fatal: ", "Can the token read this repository"),
    "odd token": ("true", f"-P {FAR} -t 'a b'", "--token: a token has no spaces", "Copy it again"),
    "no key": ("true", f"-P {FAR} --git-identity x", "--git-identity: ", "Name a private key"),
    "branch of a checkout": ("true", "-P . --repo-branch x", "its own branch and commit", "the repository's address"),
    "only a branch": ("true", "--repo-branch x", "--repo-branch needs a repository", "Add --repo"),
    "pointers of an address": ("true", f"-P {FAR} --lfs-pointers", "named by its address", "have the pointers anyway"),
    "pointers of a folder": ("mkdir ../x", "-P ../x --lfs-pointers", "for a repository, and", "Leave it out"),
    "pointers of nothing": ("true", "--lfs-pointers", "--lfs-pointers needs a repository", "Add --repo"),
    "none at all": ("true", "--no-repo --repo-hash x", "--no-repo was given", "or leave it out"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(apply: Dstack, plane: Plane, work: Path, env: dict[str, str], name: str) -> None:
    import shlex

    before, flags, what, hint = REFUSALS[name]
    sh(work, env, before)
    ended = apply("apply", "-y", *shlex.split(flags))
    assert (ended.code, ended.out) == (1, "") and "Traceback" not in ended.err, ended
    problem, _, advice = ended.err.strip().rpartition("\n")
    assert what in problem and hint in advice, ended
    assert "/repos/init" not in plane.paths() and "/runs/get_plan" not in plane.paths()


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("repos:\n  - sub", ".dstack.yml:5:5: repos.0: "),
        ("repos: [{url: 'ftp://open.example/a'}]", ".dstack.yml:4:9: repos.0: ftp://open.example/a uses ftp"),
        ("repos: [{local_path: ., hash: abc}]", ".dstack.yml:4:9: repos.0: . is a checkout, which has its own"),
    ],
)
def test_the_file_is_told_by_its_line(apply: Dstack, work: Path, written: str, what: str) -> None:
    (work / ".dstack.yml").write_text(TASK + written + "\n")
    ended = apply("apply", "-y")
    assert ended.code == 1 and what in ended.err, ended


def test_without_git(apply: Dstack, env: dict[str, str], tmp_path: Path) -> None:
    for flags in (["-P", "."], ["-P", FAR]):
        ended = apply("apply", "-y", *flags, env={**env, "PATH": str(tmp_path)})
        assert ended.code == 1 and "needs git, which isn't on the PATH" in ended.err, ended
        assert "Install git" in ended.err


def test_a_damaged_checkout(apply: Dstack, work: Path, env: dict[str, str]) -> None:
    sh(work, env, "rm -rf .git/objects/*")
    ended = apply("apply", "-y", "-P", ".")
    assert ended.code == 1 and "--repo: " in ended.err and "Traceback" not in ended.err, ended


def test_no_server_that_knows_repos(apply: Dstack, plane: Plane) -> None:
    plane.answers["/repos/get"] = (400, {"detail": [{"msg": "Not today", "code": "error"}]})
    ended = apply("apply", "-y", "-P", ".")
    assert ended.code == 1 and "Not today" in ended.err
