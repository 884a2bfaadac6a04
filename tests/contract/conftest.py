from tests.api.conftest import rig

__all__ = ["rig"]
