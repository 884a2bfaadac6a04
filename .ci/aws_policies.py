"""Lints the policies in templates and files with parliament, one statement at a time. Runs in `.venvs/aws_lint`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parliament

KNOWN = {"Partition": "aws", "Region": "eu-west-1", "AccountId": "123456789012", "URLSuffix": "amazonaws.com"}
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:name"
# Findings of parliament about correct statements, by the statement's name.
ACCEPTED = {
    ("AwsImages", "RESOURCE_MISMATCH"): "the ARN of a public parameter names no account",
    ("AwsLaunch", "RESOURCE_MISMATCH"): "a launch needs two statements, one of which has a condition on tags",
    ("AwsLaunchInto", "RESOURCE_MISMATCH"): "the second of these two statements",
    ("AwsCreateInto", "RESOURCE_MISMATCH"): "the group itself is in the statement with the condition",
    ("AwsAttachForeign", "RESOURCE_MISMATCH"): "the machine is in the statement about this installation's resources",
    ("Network", "RESOURCE_STAR"): "Lambda requires it before any network interface exists",
    ("AllowRoles", "MISMATCHED_TYPE_BUT_USABLE"): "AWS compares a boundary's ARN so in its own examples",
    ("CreateRoles", "MISMATCHED_TYPE_BUT_USABLE"): "the same",
    ("Bucket", "UNKNOWN_ACTION"): "newer than the linter: s3:GetBucketAbac",
    ("Functions", "UNKNOWN_ACTION"): "newer than the linter: lambda:GetFunctionScalingConfig",
    ("AgentApis", "UNKNOWN_ACTION"): "newer than the linter: tags of APIs",
    ("CreateAgentApis", "UNKNOWN_ACTION"): "the same",
    ("Bills", "UNKNOWN_ACTION"): "newer than the linter",
    ("Table", "RESOURCE_MISMATCH"): "tables have resource policies, too, not only streams",
    ("Transform", "INVALID_ARN"): "the account of what AWS offers is `aws`",
    ("NotByItself", "RESOURCE_STAR"): "it denies those actions",
    ("NotByItself", "UNKNOWN_CONDITION_FOR_ACTION"): "every call that a function makes has this key",
}


def plain(part: Any) -> Any:
    """The part without CloudFormation's functions. A conditional value is replaced by the one for a true condition."""
    if isinstance(part, list):
        return [plain(each) for each in part]
    if not isinstance(part, dict):
        return part
    if "Fn::If" in part:
        return plain(part["Fn::If"][1])
    if "Fn::Sub" in part:
        text = part["Fn::Sub"] if isinstance(part["Fn::Sub"], str) else part["Fn::Sub"][0]
        text = re.sub(r"\$\{AWS::(\w+)\}", lambda found: KNOWN[found[1]], text)
        return re.sub(r"\$\{(\w+)\.Arn\}", "arn:aws:s3:::name", text)
    if part == {"Ref": "EncryptionKey"}:
        return "arn:aws:kms:eu-west-1:123456789012:key/1-2"
    if "Ref" in part or "Fn::GetAtt" in part:
        return ARN if "Fn::GetAtt" in part else "value"
    return {name: plain(each) for name, each in part.items()}


def statements(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The statements of identity policies, each with the name of its resource."""
    for each in plain(body.get("Statement", [])):
        yield "", each
    for name, resource in body.get("Resources", {}).items():
        for policy in resource.get("Properties", {}).get("Policies", ()):
            yield from ((f"{name} ", each) for each in plain(policy["PolicyDocument"]["Statement"]))


def main(files: list[str]) -> int:
    wrong = set()
    for file in map(Path, files):
        for where, statement in statements(json.loads(file.read_text())):
            document = {"Version": "2012-10-17", "Statement": [statement]}
            for found in parliament.analyze_policy_string(json.dumps(document)).findings:
                if (statement.get("Sid"), found.issue) not in ACCEPTED:
                    wrong.add(f"{file.name}: {where}{statement.get('Sid')}: {found.issue} {found.detail}")
    print("\n".join(sorted(wrong)), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
