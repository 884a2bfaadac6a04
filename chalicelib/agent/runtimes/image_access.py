"""Access of projects to this machine's images.

An image that was pulled for a job stays on the machine, for the next job. It may be a private image of that job's
project, so another project may run it only after the registry has granted it to that project's own login, which is
checked once for each project and image. The record is a folder for each pulled image, named after the engine's id, with
a file for each project. An image without a folder wasn't pulled for a job: the machine's owner put it there, for all
jobs.

The engine has an image a moment before its record is written, or much longer if the supervisor is killed in between or
the task ends meanwhile. So before a pull, the task notes which image the name stood for until then. Until the task is
removed or the record is written, an image that the name stands for now isn't taken for the owner's.
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
    def locked(self) -> Iterator[None]:
        """Hold the lock of the records, so that `retain` doesn't delete one that was written after the engine had
        listed its images."""
        with open(self._path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def restrict(self, image_id: str) -> None:
        """Make the image available to allowed projects only."""
        os.makedirs(self._folder(image_id), mode=0o700, exist_ok=True)

    def allow(self, project: str, image_id: str) -> None:
        """Let this project run the image, which the registry has just granted."""
        folder = self._folder(image_id)
        if os.path.isdir(folder):
            with open(os.path.join(folder, _name(project)), "w", encoding="ascii"):
                pass

    def retain(self, image_ids: Iterable[str]) -> None:
        """Delete the records of all images but these, which the engine still has."""
        present = {_name(image_id) for image_id in image_ids}
        for name in os.listdir(self._path) if os.path.isdir(self._path) else []:
            if name not in present:
                delete_tree(os.path.join(self._path, name))

    def begin_pull(self, task: str, image: str, image_id: str) -> str:
        """Note which image the name `image` stands for before a pull. Returns the id that was noted first, since an
        earlier attempt of the task may have pulled the image meanwhile."""
        noted = self.pull(task)
        if noted is None:
            noted = image, image_id
            write_atomic(self._note_path(task), json.dumps({"image": image, "was": image_id}))
        return noted[1]

    def end_pull(self, task: str) -> None:
        """Delete the task's note: its pull is recorded."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._note_path(task))

    def pull(self, task: str) -> Optional[Tuple[str, str]]:
        """The note of a task whose pull isn't recorded yet: the image's name, and the id that it stood for."""
        noted = read_json(self._note_path(task))
        return None if noted is None else (str(noted["image"]), str(noted["was"]))

    def pulls(self) -> List[Tuple[str, str]]:
        return [noted for noted in map(self.pull, list_tasks(self._data)) if noted is not None]

    def _note_path(self, task: str) -> str:
        return os.path.join(TaskFolder(self._data, task).path, "pull.json")

    def _folder(self, image_id: str) -> str:
        return os.path.join(self._path, _name(image_id))


def _name(text: str) -> str:
    """A file name for an id or a project."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
