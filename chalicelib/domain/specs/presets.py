"""Presets: what to measure when looking for the best way to serve a model. Only the client uses them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from chalicelib.domain.specs.env import Env
from chalicelib.domain.specs.profiles import ProfileParams
from chalicelib.domain.specs.reading import Integer, JsonSchema, Spec, fault, faults
from chalicelib.domain.specs.services import GatewayChoice

_TEXT = {"type": "string"}
_MOST = 2**31


class PresetModel(Spec):
    """The model to serve."""

    repo: str | None = Field(default=None, description="Exactly this weights repository.")
    name: str | None = Field(default=None, description="The name that clients request; with `repo`.")
    base: str | None = Field(default=None, description="This model, or weights derived from it.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (_TEXT,)

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"repo": written} if isinstance(written, str) else written

    @model_validator(mode="after")
    def _one(self) -> PresetModel:
        if (self.repo is None) == (self.base is None):
            raise fault("exclusive", "a model is an exact `repo` or a `base`", "keep one of them")
        return self


class PresetPrompt(Spec):
    """What to tell the language model."""

    text: str | None = Field(default=None, description="The text.", max_length=10_000)
    path: str | None = Field(default=None, description="A file with the text.")

    SHORT_FORMS: ClassVar[tuple[JsonSchema, ...]] = (_TEXT,)

    @classmethod
    def read(cls, written: Any) -> Any:
        return {"text": written} if isinstance(written, str) else written

    @model_validator(mode="after")
    def _one(self) -> PresetPrompt:
        if (self.text is None) == (self.path is None):
            raise fault("exclusive", "a prompt is a `text` or a `path`", "keep one of them")
        return self


class PresetAgent(Spec):
    """The language model that proposes what to try, behind an API like OpenAI's."""

    provider: Literal["openai", "claude", "codex"] = Field(
        description="Whose API: `openai` for any that is like OpenAI's, `claude` for Anthropic's, `codex` for OpenAI's."
    )
    url: str | None = Field(
        default=None,
        description="The address of the API; that of the provider unless set.",
        pattern=r"^https?://[^\s/?#@]+[^\s?#@]*$",
        max_length=2048,
    )
    model: str | None = Field(default=None, description="The name of the model; from the environment unless set.")
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = Field(
        default=None, description="How much it should think, passed on as `reasoning_effort`."
    )

    @model_validator(mode="after")
    def _effort(self) -> PresetAgent:
        if self.provider == "codex" and self.effort == "max":
            raise fault("invalid-value", "`codex` has no effort `max`", "use `high`", at="effort")
        return self


class PresetConfiguration(ProfileParams):
    """A search for the best way to serve a model: services are tried one after another, and measured."""

    type: Literal["preset"] = Field(default="preset", description="`preset`.")
    name: str | None = Field(default=None, description="The name of the preset.")
    model: PresetModel | None = Field(default=None, description="The model to serve.")
    base: str | None = Field(default=None, description="Short for `model: {base: ...}`.")
    repo: str | None = Field(default=None, description="Short for `model: {repo: ...}`.")
    prompt: PresetPrompt | None = Field(default=None, description="What to tell the language model besides.")
    min_context_length: Integer | None = Field(
        default=None, description="The tokens that one request must be able to have. Needed.", gt=0, le=_MOST
    )
    max_ttft: Integer | None = Field(
        default=None,
        description="Milliseconds to the first token, which 95 of 100 requests must keep to. Needed.",
        gt=0,
        le=_MOST,
    )
    trials: Integer | None = Field(
        default=None,
        description="How many services to try, a baseline included. Needed, here or as `--trials`.",
        gt=0,
        le=_MOST,
    )
    concurrency: Integer | None = Field(
        default=None, description="How many requests to send at a time. Needed.", gt=0, le=_MOST
    )
    previous: tuple[str, ...] = Field(default=(), description="Ids or names of earlier presets to learn from.")
    input_tokens: Integer | None = Field(
        default=None, description="Tokens of each request; 1024 unless set.", gt=0, le=_MOST
    )
    output_tokens: Integer | None = Field(
        default=None, description="Tokens of each response; 1024 unless set.", ge=2, le=_MOST
    )
    shared_prefix_tokens: Integer | None = Field(
        default=None, description="Tokens at the beginning of requests that are the same in all.", ge=0, le=_MOST
    )
    dataset: str | None = Field(
        default=None, description="A file of requests to send instead of random words, one JSON object a line."
    )
    baseline: bool = Field(default=True, description="Begin with a server's default settings.")
    gateway: GatewayChoice | None = Field(default=None, description="As for a service.")
    agent: PresetAgent | None = Field(
        default=None, description="The language model that proposes services; from the environment unless set."
    )
    env: Env = Field(default={}, description="Variables of the services.")

    @model_validator(mode="after")
    def _together(self) -> PresetConfiguration:
        found = []
        sources = [field for field in ("model", "base", "repo") if getattr(self, field) is not None]
        if len(sources) != 1:
            code = "exclusive" if sources else "missing"
            found.append(
                (
                    code,
                    "a preset is for one model",
                    "keep one of `model`, `base` and `repo`",
                    sources[1] if sources else "",
                )
            )
        counts = [f for f in ("input_tokens", "output_tokens", "shared_prefix_tokens") if getattr(self, f) is not None]
        if self.dataset is not None and counts:
            found.append(
                ("exclusive", f"a dataset has its own lengths: not with `{counts[0]}`", "keep one of them", "dataset")
            )
        if self.dataset == "random":
            found.append(
                ("invalid-value", "random requests are what there is without `dataset`", "remove it", "dataset")
            )
        if (self.shared_prefix_tokens or 0) >= (self.input_tokens or 1024):
            hint = "less than `input_tokens`"
            found.append(("invalid-value", "the shared part is as long as the whole", hint, "shared_prefix_tokens"))
        if found:
            raise faults(found)
        return self
