"""An export: hosts of a project that other projects may use. To those projects it is an import, `<project>/<export>`.

The export is one record in its own project. Each importing project has a pointer to it, so what a project may use is
read from its own partition, and is always consistent with the last commit.
"""

from __future__ import annotations

from typing import ClassVar

from chalicelib.domain import keys
from chalicelib.domain.ids import derive
from chalicelib.domain.instants import Micros
from chalicelib.domain.noun import Noun

MOST_IMPORTERS = 20  # of one export: each has a pointer and an event in one commit
MOST_FLEETS = 100


class Export(Noun):
    kind: ClassVar[str] = "export"

    id: str
    project_id: str
    project_name: str
    name: str
    is_global: bool = False  # for every project
    fleets: tuple[str, ...] = ()  # their ids
    importers: tuple[str, ...] = ()  # ids of projects
    created_at: Micros

    def place(self) -> keys.Place:
        return keys.Place(keys.export(self.project_id, self.name))

    @property
    def pointers(self) -> frozenset[keys.Key]:
        """The keys of the pointers by which importing projects find it."""
        found = {keys.imported(importer, self.project_id, self.name) for importer in self.importers}
        return frozenset(found | ({keys.for_all(self.project_id, self.name)} if self.is_global else set()))

    def is_for(self, project_id: str) -> bool:
        return project_id != self.project_id and (self.is_global or project_id in self.importers)

    def import_id(self, project_id: str) -> str:
        return derive(self.id, "import", project_id)
