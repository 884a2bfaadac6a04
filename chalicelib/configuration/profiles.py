"""Profiles: which one is chosen, and how it changes a configuration.

A profile has the lowest priority: the configuration overrides it, and flags override both. A null counts as unset.
Files and the environment are inputs; reading them is the client's job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from chalicelib.configuration.problems import nearest
from chalicelib.domain.specs.profiles import Profile, ProfileParams, ProfilesConfig
from chalicelib.errors import Invalid, Problem

P = TypeVar("P", bound=ProfileParams)

FILES = (".dstack/profiles.yml", ".dstack/profiles.yaml")  # in the working folder, then in the home folder
NO_NAME = "default"  # the name of a profile without one
NONE_WANTED = Profile(name="no-profile")

_SWITCHES = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False, "": False}


def wanted(profile: str | None, no_profile: bool, environment: Mapping[str, str]) -> tuple[str | None, bool]:
    """The name of the profile to use, and whether to use one: flags first, then `DSTACK_NO_PROFILE` and
    `DSTACK_PROFILE`."""
    if no_profile:
        return None, False
    if profile is not None:
        return profile, True
    switch = environment.get("DSTACK_NO_PROFILE", "").strip().lower()
    if switch not in _SWITCHES:
        hint = "one of 1, true, on, 0, false, off"
        raise Invalid([Problem(f"DSTACK_NO_PROFILE is {switch[:40]!r}", hint=hint, code="unknown-value")])
    if _SWITCHES[switch]:
        return None, False
    return environment.get("DSTACK_PROFILE") or None, True


def chosen(name: str | None, files: tuple[ProfilesConfig | None, ...]) -> Profile:
    """The profile of that name, or the default one, from the first file that has it. `files`: in order of
    preference."""
    profiles = [profile for file in files if file for profile in file.profiles]
    if name is None:
        return next((profile for profile in profiles if profile.default), Profile(name=NO_NAME))
    for profile in profiles:
        if profile.name == name:
            return profile
    names = [profile.name for profile in profiles]
    near = nearest(name, names)
    hint = (
        f"did you mean `{near}`?" if near else f"there is {', '.join(names)}" if names else f"write one in {FILES[0]}"
    )
    raise Invalid([Problem(f"there is no profile `{name[:60]}`", hint=hint, code="unknown-value")])


def merged(configuration: P, profile: ProfileParams | None) -> P:
    """The configuration, with its unset fields taken from the profile."""
    if profile is None:
        return configuration
    shared = ProfileParams.model_fields.keys() & type(configuration).model_fields.keys()
    taken = {
        field: value
        for field in shared
        if getattr(configuration, field) is None and (value := getattr(profile, field)) is not None
    }
    return configuration.with_(**taken) if taken else configuration
