"""Which projects may run which images of this machine.

An image that a job's pull brought stays on the machine, for the next job. It may be a private one of that job's
project, so another project gets it only after the registry has let that project have it, with its own login: asked
once for a project and an image. The record is a folder for each image that a pull brought, by the engine's id of it,
with a file for each project. An image without a folder was brought by nobody's job: whoever owns the machine put it
there, for all its jobs.

The engine has an image a moment before its record is written, or much longer if the supervisor is killed in between or
the task ends meanwhile. So each task whose pull begins notes what its image's name stood for until then, and until the
task is removed or the record is written, what the name stands for now isn't taken for the owner's.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import TYPE_CHECKING, Iterable, Iterator, List, Optional, Tuple

from ..kernel.lazy import LazyModule
from ..kernel.tasks import TaskFolder, delete_tree, list_tasks, read_json, write_atomic

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = LazyModule("hashlib")


class ImageAccess:
    def __init__(self, data: str) -> None:
        self._data, self._path = data, os.path.join(data, "images")

    def allows(self, project: str, image_id: str) -> bool:
        folder = self._folder(image_id)
        return not os.path.isdir(folder) or os.path.exists(os.path.join(folder, _name(project)))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Records are written under a lock: or one that has just been written would be deleted by somebody to whom the
        engine has named its images before that."""
        with open(self._path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def restrict(self, image_id: str) -> None:
        """From now on it is for those projects only that are allowed it."""
        os.makedirs(self._folder(image_id), mode=0o700, exist_ok=True)

    def allow(self, project: str, image_id: str) -> None:
        """The registry has just let this project have it."""
        folder = self._folder(image_id)
        if os.path.isdir(folder):
            with open(os.path.join(folder, _name(project)), "w", encoding="ascii"):
                pass

    def forget_all_but(self, image_ids: Iterable[str]) -> None:
        """Delete the records of images that the engine no longer has."""
        present = {_name(image_id) for image_id in image_ids}
        for name in os.listdir(self._path) if os.path.isdir(self._path) else []:
            if name not in present:
                delete_tree(os.path.join(self._path, name))

    def begin_pull(self, task: str, image: str, image_id: str) -> str:
        """Note what the name `image` stands for before a pull. An earlier attempt of the task may have noted it, before
        it brought something: returns what was noted first."""
        noted = self.pull(task)
        if noted is None:
            noted = image, image_id
            write_atomic(self._noted(task), json.dumps({"image": image, "was": image_id}))
        return noted[1]

    def end_pull(self, task: str) -> None:
        """What it brought is recorded."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._noted(task))

    def pull(self, task: str) -> Optional[Tuple[str, str]]:
        """What a task noted that hasn't recorded yet what its pull brought: a name, and what it stood for."""
        noted = read_json(self._noted(task))
        return None if noted is None else (str(noted["image"]), str(noted["was"]))

    def pulls(self) -> List[Tuple[str, str]]:
        return [noted for noted in map(self.pull, list_tasks(self._data)) if noted is not None]

    def _noted(self, task: str) -> str:
        return os.path.join(TaskFolder(self._data, task).path, "pull.json")

    def _folder(self, image_id: str) -> str:
        return os.path.join(self._path, _name(image_id))


def _name(text: str) -> str:
    """A file's name for an id, whatever is in it."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
