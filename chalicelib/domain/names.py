"""Names: which ones are valid, and generated ones for nouns without a name.

A generated name is an adjective and an animal, chosen by a number from the caller, so that the choice is repeatable. A
run's name also ends in the first free number, because people often start the same run again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_STRICT = re.compile(r"[a-z][a-z0-9-]{1,40}")
_LONGEST = 41
_SHOWN = 5  # in one message
_LOOSE = re.compile(r"[A-Za-z0-9_-]+")

# The longest name by noun. All other nouns follow the rule of runs, fleets, volumes and gateways.
_LOOSE_LENGTHS = {"project": 50, "user": 60, "secret": 200}

_ADJECTIVES = """
    able agile amber ample apt azure bold brave breezy bright brisk calm candid chilly civil clever cosy crisp curious
    daring dapper deft dewy dizzy dusty eager early earnest easy elated fabled fair famous fancy fearless fleet fluffy
    fond frank fresh frosty gentle giddy glad gleaming golden graceful grand happy hardy hazy hearty honest humble
    icy jolly jovial keen kind lanky lively lofty loyal lucid lucky lunar mellow merry mighty mild misty modest neat
    nimble noble placid plucky polite proud quick quiet rapid rosy rustic serene sharp shiny silent snowy solar spry
    steady sunny swift tidy vivid warm wise witty zesty
"""

_ANIMALS = """
    alpaca ant badger bat bear beaver bee bison boar bobcat camel caribou cat cheetah cicada cobra condor cougar coyote
    crab crane cricket crow deer dingo dolphin donkey dove duck eagle egret elk emu falcon ferret finch fox frog gazelle
    gecko gibbon goat goose gopher hamster hare hawk hedgehog heron hippo horse ibex ibis iguana impala jackal jaguar
    jay kiwi koala lark lemur leopard lion lizard llama lobster lynx macaw marmot marten mole moose mouse newt ocelot
    octopus orca oriole osprey otter owl panda parrot pelican penguin pigeon pony puffin puma quail rabbit raccoon
    raven robin salmon seal shrew skunk sloth sparrow squid stork swan tapir tiger toad turtle walrus weasel whale
    wolf wombat wren yak zebra
"""

ADJECTIVES, ANIMALS = _ADJECTIVES.split(), _ANIMALS.split()


def problem(name: str, noun: str) -> tuple[str, str] | None:
    """Why a name is invalid, and a hint with a valid one; None if it is valid. `noun`: what it would name."""
    wrong = f"`{name[:60]}` can't be the name of {'an' if noun[0] in 'aeiou' else 'a'} {noun}"
    if noun in _LOOSE_LENGTHS:
        longest = _LOOSE_LENGTHS[noun]
        if _LOOSE.fullmatch(name) and len(name) <= longest:
            return None
        return wrong, f"up to {longest} letters, digits, `_` and `-`, for example `my-{noun}`"
    if _STRICT.fullmatch(name):
        return None
    if len(name) > _LONGEST:
        return f"{wrong}: it has {len(name)} characters", f"at most {_LONGEST} are possible"
    rule = f"2 to {_LONGEST} lower-case letters, digits and `-`, a letter first"
    return wrong, f"{rule}, for example `{_mended(name, noun)}`"


def first_of(names: Sequence[str]) -> str:
    """`a, b, c, d, e and 2 more`: as many as fit a message."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def those(noun: str, names: Sequence[str]) -> str:
    """`the run a`, `the runs a, b`."""
    return f"the {noun}{'s' if len(names) > 1 else ''} {first_of(names)}"


def _mended(name: str, noun: str) -> str:
    """The nearest valid name."""
    tried = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-").lstrip("0123456789-")
    return tried[:_LONGEST] if _STRICT.fullmatch(tried[:_LONGEST]) else f"my-{noun}"


def generated_stem(number: int) -> str:
    """`calm-otter`: the same for the same number, spread over all pairs."""
    adjective, animal = number % len(ADJECTIVES), number // len(ADJECTIVES) % len(ANIMALS)
    return f"{ADJECTIVES[adjective]}-{ANIMALS[animal]}"


def generated_run_name(number: int, taken: Callable[[str], bool]) -> str:
    """`calm-otter-1`, with the first free number."""
    stem = generated_stem(number)
    count = 1
    while taken(f"{stem}-{count}"):
        count += 1
    return f"{stem}-{count}"


def generated_name(number: int, taken: Callable[[str], bool]) -> str:
    """`calm-otter` if it is free, else with the first free number from `calm-otter-2` on."""
    name = generated_stem(number)
    count = 2
    while taken(name):
        name = f"{generated_stem(number)}-{count}"
        count += 1
    return name
