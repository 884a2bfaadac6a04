"""Which projects may run which images of this machine.

An image that a job's pull brought stays on the machine, for the next job. It may be a private one of that job's
project, so another project gets it only after the registry has let that project have it, with its own login: asked
once for a project and an image. The record is a folder for each image that a pull brought, by the engine's id of it,
with a file for each project. An image without a folder was brought by nobody's job: whoever owns the machine put it
there, for all its jobs.
"""

from __future__ import annotations

import hashlib
import os
from typing import Iterable

from .tasks import delete_tree


class ImageAccess:
    def __init__(self, data: str) -> None:
        self._path = os.path.join(data, "images")

    def allows(self, project: str, image_id: str) -> bool:
        folder = self._folder(image_id)
        return not os.path.isdir(folder) or os.path.exists(os.path.join(folder, _name(project)))

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

    def _folder(self, image_id: str) -> str:
        return os.path.join(self._path, _name(image_id))


def _name(text: str) -> str:
    """A file's name for an id, whatever is in it."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
