"""The policies in templates and files, a statement at a time, given to parliament. Runs in `.venvs/aws_lint`."""

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
# What parliament says of statements that are right, by their names.
ACCEPTED = {
    ("AwsImages", "RESOURCE_MISMATCH"): "a public parameter's ARN names no account",
    ("AwsLaunch", "RESOURCE_MISMATCH"): "what a launch needs is in two statements: one has a condition on tags",
    ("AwsLaunchInto", "RESOURCE_MISMATCH"): "the other of these",
    ("AwsCreateInto", "RESOURCE_MISMATCH"): "the group itself is in the statement with the condition",
    ("AwsAttachForeign", "RESOURCE_MISMATCH"): "the machine is in the statement about what is ours",
    ("Network", "RESOURCE_STAR"): "Lambda asks for it, before any network card is there",
    ("NotByItself", "RESOURCE_STAR"): "it denies the same",
    ("NotByItself", "UNKNOWN_CONDITION_FOR_ACTION"): "a key of every call that a function makes",
}


def plain(part: Any) -> Any:
    """Without CloudFormation's functions. Of a condition, what it switches on."""
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
    if "Ref" in part or "Fn::GetAtt" in part:
        return ARN if "Fn::GetAtt" in part else "value"
    return {name: plain(each) for name, each in part.items()}


def statements(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of identities' policies: where each is from, and itself."""
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
