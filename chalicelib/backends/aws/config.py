"""The part of `server/config.yml` for an AWS account."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Tag

from chalicelib.backends.configs import CREDS, EXPERIMENTAL, PUBLIC_IPS, TAGS, RegionalBackend, shaped
from chalicelib.domain.specs.credentials import AccessKeyCreds, DefaultCreds, Text, Texts, by_type
from chalicelib.domain.specs.profiles import Tags
from chalicelib.domain.specs.reading import TAG, Spec
from chalicelib.domain.specs.secrecy import SECRET


class AWSKeyCreds(AccessKeyCreds):
    """An AWS key pair. Temporary ones also have a session token, and work until it expires."""

    session_token: Annotated[Text | None, SECRET] = Field(
        default=None, description="The session token of temporary keys."
    )


AWSCreds = Annotated[
    Annotated[AWSKeyCreds, Tag(TAG + "AWSKeyCreds")] | Annotated[DefaultCreds, Tag(TAG + "DefaultCreds")],
    by_type(AWSKeyCreds, DefaultCreds),
]


MOST_TAGS = 25  # of the 50 that AWS allows; runs, fleets and the control plane add theirs
_OWNER = shaped(r"self|[0-9]{12}", "the owner of an image", "self` or `123456789012")


class AWSOSImage(Spec):
    """An operating system image."""

    name: Text = Field(description="The image's name.")
    owner: Annotated[str, AfterValidator(_OWNER)] = Field(
        default="self", description="The account it belongs to, 12 digits, or `self`."
    )
    user: Text = Field(description="Its user. Nothing logs in to a machine, so it isn't used.")


class AWSOSImages(Spec):
    """Images to start machines from instead of the default ones. Types without a fitting image aren't offered."""

    cpu: AWSOSImage | None = Field(default=None, description="For machines without a GPU.")
    nvidia: AWSOSImage | None = Field(default=None, description="For machines with NVIDIA GPUs.")


class AWSBackendConfig(RegionalBackend):
    """Amazon Web Services."""

    type: Literal["aws"] = Field(description="`aws`.")
    creds: AWSCreds = Field(description=CREDS)
    vpc_name: Text | None = Field(default=None, description="The VPC's name, where `vpc_ids` has none.")
    vpc_ids: dict[str, Text] | None = Field(default=None, description="The VPC's id by region.")
    default_vpcs: bool = Field(default=True, description="Use the default VPC where no other is set.")
    public_ips: bool = Field(default=True, description=PUBLIC_IPS)
    security_group_ids: dict[str, Text] | None = Field(
        default=None,
        description="The machines' security group by region, which stays as it is. It must let them call out, and "
        "those of a cluster reach each other. Elsewhere one is made that does.",
    )
    iam_instance_profile: Text | None = Field(
        default=None, description="The instance profile of the machines. Its role's name begins with `dstack-machine`."
    )
    tags: Annotated[Tags, Field(max_length=MOST_TAGS)] | None = Field(default=None, description=TAGS)
    os_images: AWSOSImages | None = Field(default=None, description="Images to start machines from.")
    experimental_instance_types: Texts | None = Field(default=None, description=EXPERIMENTAL)
