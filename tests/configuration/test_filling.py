"""Flags, profiles, the environment and `${{ ... }}`: what is put into a configuration before it leaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.configuration import profiles
from chalicelib.configuration.interpolation import Unread, fill, joined_arguments, references, secrets_in
from chalicelib.configuration.overrides import Overrides, overridden
from chalicelib.configuration.parse import parse, parse_profiles
from chalicelib.configuration.resolution import resolved
from chalicelib.domain.specs.profiles import Profile
from chalicelib.domain.specs.runs import TaskConfiguration
from chalicelib.domain.specs.services import ServiceConfiguration
from chalicelib.errors import Invalid

RUN = {"run": {"args": "'a b' c"}}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("echo ${{ run.args }}", "echo 'a b' c"),
        ("echo ${{run.args}}", "echo 'a b' c"),
        ("$HOME ${{ run.args }} $$", "$HOME 'a b' c $$"),
        ("$${{ run.args }}", "${{ run.args }}"),
        ("$HOME $${{ run.args }}", "$HOME ${{ run.args }}"),
        ("${{ secrets.x }} ${{ run.args }}", "${{ secrets.x }} 'a b' c"),
        ("${{ groups[0].nodes[1].IP_ADDRESS }}", "${{ groups[0].nodes[1].IP_ADDRESS }}"),
        ("${ x } {{ y }} }}", "${ x } {{ y }} }}"),
        ("", ""),
    ],
)
def test_interpolation(text: str, filled: str) -> None:
    assert fill(text, RUN) == filled


def test_what_is_never_closed_is_looked_through_once() -> None:
    text = "${{" * 300_000  # looked through anew at each beginning it would take minutes
    assert fill(text, RUN) == text and secrets_in(text) == []


@pytest.mark.parametrize(
    ("text", "closed"),
    [("${{ run.args", False), ("${{ x }}", True), ("${{ }}", True), ("${{ 1.a }}", True), ("${{ env.a-b }}", True)],
)
def test_not_interpolation(text: str, closed: bool) -> None:
    assert fill(text, RUN) == text
    (found,) = references(text)
    assert isinstance(found, Unread) and (found.written, found.closed) == (text, closed)


def test_an_escape_ends_with_its_braces_and_what_follows_counts() -> None:
    text = "$${{ ${{ run.args }} $${{ and ${{ run.args }}"
    assert fill(text, RUN) == "${{ 'a b' c ${{ and 'a b' c"


def test_secrets_are_filled_in_by_any_name_they_can_have_and_all_else_is_text() -> None:
    text = "${{secrets.9-a}} ${{ github.ref }} ${{env.X}} ${{ a-b }} $${{ secrets.B }} ${{ secrets.B }} ${{"
    assert secrets_in(text) == ["9-a", "B"]
    filled = fill(text, {"secrets": {"9-a": "1", "B": "2"}})
    assert filled == "1 ${{ github.ref }} ${{env.X}} ${{ a-b }} ${{ secrets.B }} 2 ${{"


def test_an_escape_survives_whoever_is_not_the_last() -> None:
    once = fill("$${{ env.A }} ${{ env.A }} ${{ secrets.B }}", {"env": {"A": "1"}}, unescape=False)
    assert once == "$${{ env.A }} 1 ${{ secrets.B }}"
    assert fill(once, {"secrets": {"B": "2"}}) == "${{ env.A }} 1 2"


@given(st.text(alphabet="${} abc.\n", max_size=40))
def test_any_text_comes_back_from_its_escaped_form(text: str) -> None:
    assert fill(text.replace("${{", "$${{"), RUN) == text


@given(st.lists(st.text(max_size=6) | st.sampled_from(["${{ secrets.x }}", "$${{"]), max_size=4))
def test_arguments_come_back_from_a_shell_as_they_were(args: list[str]) -> None:
    import shlex

    assert shlex.split(fill(joined_arguments(args), {"secrets": {"x": "never"}})) == args


def service(text: str) -> ServiceConfiguration:
    found = parse("type: service\nport: 1\ncommands: ['serve ${{ run.args }}']\n" + text)
    assert isinstance(found, ServiceConfiguration)
    return found


def test_resolution_fills_in_what_only_the_submitting_side_knows() -> None:
    found = resolved(
        service(
            "env: [TOKEN, USER=me]\n"
            "image: x\n"
            "registry_auth: {username: '${{ env.USER }}', password: '${{ secrets.PASS }}'}\n"
            "probes: [{type: http, url: '/${{ env.USER }}', headers: [{name: T, value: '${{ env.TOKEN }}'}]}]\n"
        ),
        environment={"TOKEN": "t"},
        arguments=["-v", "a b"],
    )
    assert found.env == {"TOKEN": "t", "USER": "me"}
    assert found.commands == ("serve -v 'a b'",)
    assert found.registry_auth is not None
    assert (found.registry_auth.username, found.registry_auth.password) == ("me", "${{ secrets.PASS }}")
    assert found.probes is not None
    assert (found.probes[0].url, found.probes[0].headers[0].value) == ("/me", "t")


def test_resolution_tells_everything_that_is_missing() -> None:
    with pytest.raises(Invalid) as caught:
        resolved(
            service("env: [A, B]\nprobes: [{type: http, url: '/${{ env.NO }}'}]\nsetup: ['${{ foo.bar }}']\n"),
            environment={"B": ""},
        )
    assert [(p.path, p.code) for p in caught.value.problems] == [
        ("env.A", "unset-variable"),
        ("probes.0.url", "invalid-interpolation"),
    ]
    assert "export A=" in caught.value.problems[0].hint


def test_groups_get_arguments_too() -> None:
    found = parse("type: task\ngroups: [{commands: ['a ${{ run.args }}']}, {commands: ['${{ foo.bar }}', b]}]\n")
    with pytest.raises(Invalid) as caught:
        resolved(found, environment={})
    assert [p.path for p in caught.value.problems] == ["groups.1.commands.0"]


def test_a_configuration_without_anything_to_fill_is_the_same() -> None:
    volume = parse("type: volume\nbackend: aws\nregion: r\nsize: 1GB\n")
    assert resolved(volume, environment={}) is volume
    assert overridden(volume, Overrides()) is volume


TASK = "type: task\ncommands: [ls]\n"


def test_flags_that_are_wrong_are_told_by_their_names() -> None:
    flags = Overrides(gpu="A100::2", max_duration="1h30m", backends=("awz",), retry_duration="x")
    with pytest.raises(Invalid) as caught:
        overridden(parse(TASK), flags)
    assert {p.path for p in caught.value.problems} == {"--gpu", "--max-duration", "--backend", "--retry-duration"}


def test_flags_that_a_type_has_not() -> None:
    with pytest.raises(Invalid) as caught:
        overridden(parse("type: volume\nbackend: aws\nregion: r\nsize: 1GB\n"), Overrides(gpu="1", fleets=("f",)))
    assert [p.message for p in caught.value.problems] == ["a volume has no `fleets`", "a volume has no `resources`"]


def test_two_ports_cannot_have_one_local_port() -> None:
    with pytest.raises(Invalid, match="the local port 80"):
        overridden(parse(TASK + "ports: [80]\n"), Overrides(ports=("80:90",)))


# --- profiles --------------------------------------------------------------------------------------------------------

HERE = parse_profiles("profiles: [{name: a, max_price: 1}, {name: big, max_price: 9}]")
HOME = parse_profiles("profiles: [{name: a, max_price: 2}, {name: mine, default: true, spot_policy: auto}]")


@pytest.mark.parametrize(
    ("flag", "no", "environment", "wanted"),
    [
        (None, False, {}, (None, True)),
        ("a", False, {"DSTACK_PROFILE": "b", "DSTACK_NO_PROFILE": "1"}, ("a", True)),
        ("a", True, {}, (None, False)),
        (None, False, {"DSTACK_PROFILE": "b"}, ("b", True)),
        (None, False, {"DSTACK_PROFILE": "b", "DSTACK_NO_PROFILE": "on"}, (None, False)),
        (None, False, {"DSTACK_PROFILE": "b", "DSTACK_NO_PROFILE": "false"}, ("b", True)),
    ],
)
def test_which_profile_is_wanted(
    flag: str | None, no: bool, environment: dict[str, str], wanted: tuple[str | None, bool]
) -> None:
    assert profiles.wanted(flag, no, environment) == wanted


def test_a_switch_that_is_none() -> None:
    with pytest.raises(Invalid, match="DSTACK_NO_PROFILE"):
        profiles.wanted(None, False, {"DSTACK_NO_PROFILE": "maybe"})


def test_which_profile_is_chosen() -> None:
    assert profiles.chosen("a", (HERE, HOME)).max_price == 1
    assert profiles.chosen(None, (HERE, HOME)).name == "mine"
    assert profiles.chosen(None, (HERE, None)) == Profile(name="default")
    assert profiles.chosen(None, (None, None)) == Profile(name="default")
    with pytest.raises(Invalid, match="did you mean `mine`"):
        profiles.chosen("mini", (HERE, HOME))
    with pytest.raises(Invalid, match="there is no profile"):
        profiles.chosen("x", (None, None))


def test_a_configuration_goes_before_its_profile_and_null_says_nothing() -> None:
    found = parse(TASK + "max_price: 5\nretry: false\nspot_policy: null\n")
    assert isinstance(found, TaskConfiguration)
    both = profiles.merged(found, Profile(name="p", max_price=9, retry=True, spot_policy="spot", regions=("r",)))
    assert (both.max_price, both.retry, both.spot_policy, both.regions) == (5, False, "spot", ("r",))
    assert both.name is None
    assert profiles.merged(found, None) is found


def test_flags_go_before_the_configuration() -> None:
    found = overridden(parse(TASK + "max_price: 5\nregions: [a, b]\n"), Overrides(max_price=2, regions=("c",)))
    assert isinstance(found, TaskConfiguration)
    assert (found.max_price, found.regions) == (2, ("c",))
