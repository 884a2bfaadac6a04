"""A job has the files that the user sees: whatever Git was told to overlook, wherever another repository begins.

Each case changes a checkout. Then a clone of what was pushed, with its submodules and the patch, has the same files.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from chalicelib.errors import DstackError
from cli.repositories.checkout import Checkout, largest_parts, read_checkout

pytestmark = pytest.mark.slow

BASE = """
git config --global user.name Me; git config --global user.email me@example.com
git config --global protocol.file.allow always; git config --global init.defaultBranch main
git config --global maintenance.auto false
git init -q --bare leaf.git; git init -q --bare sub.git; git init -q --bare app.git
git clone -q leaf.git leaf 2>/dev/null; cd leaf; echo leaf > leaf; git add .; git commit -qm 1; git push -q; cd ..
git clone -q sub.git sub 2>/dev/null; cd sub; mkdir d; echo one > f; echo gone > 'd/a é'; printf '\\0\\1' > binary
git submodule --quiet add ../leaf.git leaf; git add .; git commit -qm 1; git push -q; cd ..; rm -rf leaf sub
git clone -q app.git app 2>/dev/null; cd app; echo one > text; echo b > b; mkdir -p deep/er; echo x > deep/er/x
printf '*.log\\n' > .gitignore; git submodule --quiet add ../sub.git 'li b'
git submodule --quiet update --init --recursive
git add .; git commit -qm 1; git push -q
"""
POINT = "printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize %s\\n'"
LFS_FILTER = f"""
cat > ~/clean <<'END'
cat > ~/cleaned; [ ! -s ~/cleaned ] || {POINT} $(sha256sum < ~/cleaned | cut -c1-64) $(stat -c %s ~/cleaned)
END
git config --global filter.lfs.required true; git config --global filter.lfs.clean 'sh ~/clean'
echo '*.bin filter=lfs -text' >> .gitattributes
"""
LFS = f"""{LFS_FILTER}
echo model > m.bin; touch -d 2001-01-01 m.bin; git add .gitattributes m.bin; git commit -qm lfs; git push -q
git config --global filter.lfs.clean 'touch {{marker}}; tr a-z n-za-m'
"""
SUBMODULE = "cd 'li b'; git switch -q main; git remote set-url origin ../../sub.git"
LFS_OF_SUBMODULE = f"{SUBMODULE}{LFS}cd ..; git commit -qam lfs; git push -q"
CRYPT = """
git config --global filter.crypt.clean 'tr a-z n-za-m'; echo '*.enc filter=crypt' >> .gitattributes; echo abc > s.enc
touch -d 2001-01-01 s.enc; git add .gitattributes s.enc; git commit -qm enc; git push -q
git config --global filter.crypt.clean 'touch {marker}; cat'
"""
EVERY_INDEX = (
    "find . -name .git -prune -printf '%h\\0' | sort -z | xargs -0 -I '{}' git -C '{}' ls-files -v --stage --debug"
)
SAME = {
    "nothing": "true",
    "a submodule's files": """
        cd 'li b'; echo 2 >> f; rm -r d; printf '\\0\\2' > binary; echo n > n; chmod +x f; echo s > s; git add s""",
    "a submodule at another commit": "cd 'li b'; echo 2 >> f; git mv f g; git commit -qam 2",
    "one that is recorded and committed": "cd 'li b'; echo 2 >> f; git commit -qam 2; cd ..; git commit -qam 2",
    "a submodule's submodule": "cd 'li b/leaf'; echo 2 >> leaf; git commit -qam 2; echo é > é",
    "a submodule that was added": "git submodule --quiet add ../leaf.git new; echo 2 >> new/leaf",
    "one that was added and committed": "git submodule --quiet add ../leaf.git new; git commit -qam new",
    "one for which jobs get nothing": """
        git config -f .gitmodules submodule.'li b'.update none; git commit -qam none; git push -q
        echo 2 >> 'li b/f'""",
    "a submodule without an address": """
        git init -q bare; cd bare; echo a > a; git add .; git commit -qm a; cd ..; git add bare 2>/dev/null
        git rm -q -f 'li b' .gitmodules; git commit -qm bare; git push -q""",
    "a submodule in place of a file": "git rm -q b; git submodule --quiet add ../leaf.git b",
    "a repository inside": """
        git init -q inner; cd inner; echo a > a; echo l > l.log; git add a; git commit -qm x; echo b >> a""",
    "one without a commit": "git init -q deep/inner; echo a > deep/inner/a",
    "one in one": "git init -q in; git init -q in/in; echo a > in/a; echo b > in/in/b; printf '\\0' > in/in/c",
    "another checkout of the same": "git worktree add -q -b other other; echo o > other/o; rm -r 'other/li b'",
    "overlooked changes": "echo 2 >> text; echo 2 >> b; git update-index --skip-worktree text --assume-unchanged b",
    "overlooked deletions": "git update-index --assume-unchanged text --skip-worktree b; rm text b",
    "an overlooked change of the mode": "git update-index --skip-worktree text; chmod +x text",
    "overlooked in a submodule": "cd 'li b'; git update-index --assume-unchanged f; echo 2 >> f",
    "a conflict": """
        git switch -qc x; echo x > text; git commit -qam x; git switch -q main; echo y > text; git commit -qam y
        git merge x > /dev/null || true""",
    "a split index": "git update-index --split-index; echo 2 >> text; git add text; echo n > n",
    "an index with a cache": "git update-index --untracked-cache; git status > /dev/null; echo n > deep/n",
    "a shallow clone": """
        git clone -q --depth 1 file://$PWD/../app.git s; rm -rf .git 'li b'; mv s/.git .git; rm -rf s; mkdir 'li b'
        git submodule --quiet update --init --recursive; echo 2 >> text""",
    "a clone that borrows": """
        git clone -q --shared ../app.git ../s; rm -rf .git 'li b'; mv ../s/.git .git
        echo ../../../app.git/objects > .git/objects/info/alternates
        git submodule --quiet update --init --recursive; echo 2 >> text; git add text""",
    "another name for the origin": "git remote rename origin up; echo 2 >> text",
    "odd names": """
        printf 'a' > 'a"b\\c'; printf a > $'n\nl'; printf a > $'\\377'; mkdir ':x'; printf a > ':x/[a]*?'
        git init -q $'q"é\t'; echo q > $'q"é\t/é "'; echo q > $'li b/\t"'""",
    "a change of the same second": "echo two > text; git add text; echo six > text",
    "line ends": """
        printf 'a\\r\\nb\\r\\n' > crlf; printf 'crlf -text\\n*.dos text eol=crlf\\n' > .gitattributes; git add .
        git commit -qm crlf; git push -q; printf 'a\\r\\nB\\r\\n' > crlf; printf 'a\\r\\nb\\r\\n' > x.dos""",
    "odd attributes": """
        printf '* text=auto diff=odd\\n*.enc -diff\\n' > .gitattributes; echo e > e.enc
        git add .; git commit -qm odd; git push -q; echo f > e.enc; echo u >> text""",
    "a large file": LFS,
    "one that was touched, and is a program now": LFS + "touch m.bin; chmod +x m.bin",
    "one whose name is odd, in a folder with attributes of its own": LFS_FILTER + r"""
        mkdir "a é"; cd "a é"; echo '* filter=lfs' > .gitattributes; printf '\0\377' > $'\377"\t'; : > empty
        touch -d 2001-01-01 *; git add .; git commit -qm odd; git push -q""",
    "one of a submodule": LFS_OF_SUBMODULE,
    "one of a repository inside": "git init -q in; cd in" + LFS.replace("git push -q", "true"),
    "one that is stored as it is": LFS_FILTER + """
        echo raw > raw.bin; git -c filter.lfs.clean=cat add .; git commit -qm raw; git push -q""",
    "one that is untracked by Git LFS, but not yet committed": LFS + ": > .gitattributes",
    "a large file that was changed": LFS + "echo other > m.bin; echo new > n.bin",
    "one of a commit that isn't pushed": LFS + f"""
        echo other > m.bin; id=$({POINT} $(sha256sum < m.bin | cut -c1-64) 6 | git hash-object -w --stdin)
        git update-index --cacheinfo 100644,$id,m.bin; git commit -qm lfs2""",
    "one that is a pointer here, too": LFS + "git cat-file blob HEAD:m.bin > m.bin",
}  # fmt: skip
NO_PATCH = ("nothing", "one that is a pointer here, too", "one that is stored as it is")


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder, self.app, self.marker = folder, folder / "app", folder / "ran"
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", "GIT_TEMPLATE_DIR": ""}

    def sh(self, lines: str, folder: Path | None = None, **env: str) -> str:
        command = ["bash", "-ec", lines.replace("{marker}", str(self.marker))]
        done = subprocess.run(
            command, cwd=folder or self.app, env=self.env | env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read(self, *, lfs_pointers: bool = False) -> Checkout:
        return read_checkout(self.app, self.env, named_by="--repo", lfs_pointers=lfs_pointers)

    def job(self, found: Checkout) -> Path:
        """What a job gets."""
        (self.folder / "patch").write_bytes(found.patch)
        job = self.folder / "job"
        if (self.folder / found.commit).exists():
            shutil.copytree(self.folder / found.commit, job, symlinks=True)
        else:
            self.clone(found.commit, job)
        if found.patch:
            self.sh("git apply --whitespace=nowarn ../patch", job, GIT_CONFIG_GLOBAL="/dev/null")
        return job

    def clone(self, commit: str, job: Path) -> None:
        """A clone of what was pushed, with its submodules, as of this commit."""
        self.sh(
            f"git clone -q app.git {job}; cd {job}; git reset -q --hard {commit}; [ ! -e .gitmodules ] || "
            "git submodule --quiet update --init --recursive",
            self.folder,
            GIT_CONFIG_GLOBAL="/dev/null",
            GIT_ALLOW_PROTOCOL="file",
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Place(tmp_path_factory.mktemp("made"))
    place.sh(BASE, place.folder)
    commit = place.sh("git rev-parse HEAD").strip()
    place.clone(commit, place.folder / commit)  # what every job gets whose user has pushed nothing since
    return place.folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Place:
    """A copy of its own."""
    found = Place(Path(shutil.copytree(made, tmp_path / "place", symlinks=True)))
    found.sh(f"git config remote.origin.url {found.folder}/app.git")
    return found


def differences(one: Path, other: Path) -> str:
    command = ["diff", "-r", "--no-dereference", "-x", ".git", "-x", "*.log", str(one), str(other)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def modes(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if ".git" not in path.parts and path.is_file()]
    return sorted(str(path.relative_to(folder)) for path in files if path.stat().st_mode & 0o100)


@pytest.mark.parametrize("case", SAME)
def test_a_job_has_the_files_that_the_user_sees(place: Place, case: str) -> None:
    place.sh(SAME[case])
    before = place.sh(EVERY_INDEX)
    found = place.read()
    assert place.sh(EVERY_INDEX) == before, "nothing was changed here"
    job = place.job(found)
    assert differences(place.app, job) == "" and modes(place.app) == modes(job)
    assert found.stored == () and bool(found.patch) == (case not in NO_PATCH)


def test_what_a_sparse_checkout_lacks_is_there_in_the_job(place: Place) -> None:
    for cone in ("--sparse-index", "--no-sparse-index"):
        place.sh(f"git sparse-checkout set --cone {cone} deep; echo 2 >> deep/er/x; echo n > deep/n")
        job = place.job(place.read())
        assert differences(place.app / "deep", job / "deep") == "" and (job / "li b" / "f").exists()
        shutil.rmtree(job)


def test_a_commit_of_sha256(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.sh(
        "for each in '--bare app.git' app; do git init -q --object-format=sha256 -b main $each; done; cd app"
        "; git config user.name Me; git config user.email me@example.com; git remote add origin ../app.git"
        "; echo a > a; git add .; git commit -qm a; git push -q -u origin main; echo b >> a; printf '\\0' > b",
        tmp_path,
    )
    assert differences(place.app, place.job(place.read())) == ""


def test_a_file_of_another_filter_stays_as_it_is_stored_and_is_named(place: Place) -> None:
    place.sh(CRYPT + "echo 'as is' > same.enc; git add same.enc; git commit -qm same; git push -q")
    place.sh("git update-index --assume-unchanged s.enc; echo 2 >> text; rm -f {marker}")
    found = place.read()
    assert found.stored == ("s.enc",) and found.sent == {} and found.patch.count(b"diff --git") == 1
    assert not place.marker.exists(), "no filter runs"
    assert (place.job(found) / "s.enc").read_text() == "nop\n"


def test_pointers_stay_if_the_user_wants_them(place: Place) -> None:
    place.sh(LFS_OF_SUBMODULE + LFS)
    place.sh("cp m.bin m; mv m m.bin; chmod +x m.bin; rm -f {marker}; echo new > n.bin")
    assert place.read().sent == {"m.bin": 6, "li b/m.bin": 6}
    found = place.read(lfs_pointers=True)
    assert found.stored == ("m.bin", "li b/m.bin") and found.sent == {}
    assert found.patch.count(b"diff --git") == 2 and b"old mode 100644\nnew mode 100755" in found.patch
    assert not place.marker.exists(), "no filter runs"
    job = place.job(found)
    assert all((job / name).read_text().startswith("version https://git-lfs") for name in found.stored)
    assert (job / "n.bin").read_text() == "new\n", "what is nowhere else goes along"


TOO_LARGE = f"{LFS_FILTER}truncate -s 5M m.bin; cp m.bin n.bin; git add .; git commit -qm lfs; git push -q;"


@pytest.mark.parametrize(
    ("folder", "before"), [(".", TOO_LARGE), ("li b", f"{SUBMODULE}{TOO_LARGE} cd ..; git commit -qam s; git push -q")]
)
def test_large_files_that_cant_go_along_are_refused_by_name(place: Place, folder: str, before: str) -> None:
    place.sh(before)
    with pytest.raises(DstackError) as refused:
        place.read()
    what = f"Git LFS files of {place.app / folder} are too large to go along, 10 MB in all: m.bin (5.0 MB), n.bin (5.0"
    assert what in refused.value.message and "with `--lfs-pointers`; `git lfs pull` in" in refused.value.hint
    assert len(place.read(lfs_pointers=True).stored) == 2
    place.sh(f"cd '{folder}'; git cat-file blob HEAD:m.bin > m.bin")
    assert list(place.read().sent.values()) == [5 << 20], "one fits, and the other is a pointer here, too"


REFUSALS = {
    "removed": ("git rm -q 'li b'", "li b was removed or moved here, but jobs still clone it", "Push the commit"),
    "deleted": ("rm -rf 'li b'", "li b was removed or moved here", "or check it out again"),
    "a file now": ("rm -rf 'li b'; echo x > 'li b'", "li b was removed or moved here", "or check it out again"),
    "a link now": ("mv 'li b' ../x; ln -s ../x 'li b'; rm ../x/.git", "li b was removed or moved", "Push the commit"),
    "moved": ("git mv 'li b' sub", "li b was removed or moved here", "Push the commit"),
    "not checked out": (
        "cd 'li b'; git commit -q --allow-empty -m 2; cd ..; git add .; git submodule --quiet deinit -f .",
        "li b is recorded at",
        "`git submodule update --init 'li b'`",
    ),
    "plain files": ("rm 'li b/.git'", "li b has files here, but isn't a checkout", "move them away"),
    "broken": ("echo gitdir: nowhere > 'li b/.git'", "li b isn't a checkout of a Git repository", "files"),
    "elsewhere": ("git -C 'li b' config core.worktree $PWD/deep", "li b has its files in", "check it out again"),
    "unknown commit": (
        "git clone -q ../sub.git ../s 2>/dev/null; cd ../s; git commit -q --allow-empty -m 2; git push -q; cd ../app"
        "; git update-index --cacheinfo 160000,$(git -C ../s rev-parse HEAD),'li b'; git commit -qm 2; git push -q",
        "which isn't known here",
        "fetch --all",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cant_go_along_is_refused_by_name(place: Place, case: str) -> None:
    before, what, hint = REFUSALS[case]
    place.sh(before)
    with pytest.raises(DstackError) as refused:
        place.read()
    assert what in refused.value.message and hint.lower() in refused.value.hint.lower(), refused.value.message


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("folder", [".", "li b"])
def test_a_checkout_of_another_user_is_refused_with_what_git_advises(place: Place, folder: str) -> None:
    place.sh("git -C 'li b' submodule --quiet deinit -f leaf; echo 2 >> text")
    place.sh(f"chown -R 4242 '{folder}'; chown -R 4242 .git/modules")
    with pytest.raises(DstackError, match="belongs to another user") as refused:
        place.read()
    advice = f"git config --global --add safe.directory {shlex.quote(str((place.app / folder).resolve()))}"
    assert f"`{advice}`" in refused.value.hint
    place.sh(f'{advice}; git config --global --add safe.directory "$PWD/li b"')
    assert place.read().patch


HOSTILE = """
echo 'touch {marker}; cat' > ../run; chmod +x ../run; r=$PWD/../run
hostile() {
    mkdir -p hooks; for hook in post-index-change pre-commit fsmonitor-watchman; do cp $r hooks/$hook; done
    for key in core.fsmonitor core.sshCommand core.pager core.askPass core.editor core.gitProxy diff.external \\
        diff.odd.command diff.odd.textconv filter.odd.clean filter.odd.smudge filter.odd.process merge.odd.driver \\
        remote.origin.uploadpack credential.helper core.alternateRefsCommand uploadpack.packObjectsHook pager.diff
    do git config "$key" "$r"; done
    for name in diff ls-files rev-parse config add update-index; do git config alias.$name "!$r"; done
    git config core.hooksPath "$PWD/hooks"; git config filter.odd.required true; git config protocol.allow always
    git config extensions.partialClone origin; git config remote.origin.promisor true
    echo '* filter=odd diff=odd merge=odd' > .gitattributes; echo new > new; echo more >> "$1"; touch "$1"
}
hostile text; cd 'li b'; hostile f; git init -q ../inner; cd ../inner; hostile x; git init -q in; cd in; hostile y
"""


def test_nothing_runs_that_a_checkout_configures(place: Place) -> None:
    place.sh(HOSTILE)
    found = place.read()
    assert not place.marker.exists()
    job = place.job(found)
    assert differences(place.app, job) == ""


def test_what_a_partial_clone_lacks_isnt_fetched(place: Place) -> None:
    place.sh("echo 2 > text; git commit -qam 2; git push -q; git reset -q --hard HEAD~1; git fetch -q")
    place.sh("git config remote.origin.promisor true; git config extensions.partialClone origin")
    place.sh("git config remote.origin.uploadpack 'touch {marker}; git-upload-pack'")
    lost = place.sh("git rev-parse origin/main:text").strip()
    place.sh(f"rm .git/objects/{lost[:2]}/{lost[2:]}")
    with pytest.raises(DstackError) as refused:
        place.read()
    assert "it is a partial clone" in refused.value.hint.lower() and not place.marker.exists()


def test_the_largest_parts_of_a_patch_are_known(place: Place) -> None:
    (place.app / "big b").write_bytes(os.urandom(9000))
    (place.app / "li b" / "bé").write_bytes(os.urandom(5000))
    place.sh("seq 999 > long; git add long; git commit -qm long; git push -q; git mv long b2; echo 2 >> text")
    patch = place.read().patch
    assert {"b2", "text"} < {name for name, _ in largest_parts(patch, 9)}
    parts = largest_parts(patch, 2)
    assert [name for name, _ in parts] == ["big b", "li b/bé"] and parts[0][1] > 9000 > parts[1][1] > 5000
