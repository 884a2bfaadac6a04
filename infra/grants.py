"""The functions' permissions: what every composition root needs, and what each kind of work adds."""

from __future__ import annotations

from chalicelib.backends.registry import artefacts, permissions_of
from chalicelib.domain.programs import ARCHITECTURES, newest_carrier
from chalicelib.engine.workflows import WORKFLOWS
from infra.policies import Grant

TABLE = "dynamodb:table/dstack-{stage}"
BUCKET = "s3:{bucket}"

READ = Grant("Read", ("dynamodb:GetItem", "dynamodb:BatchGetItem"), (TABLE,))
READ_ONE = Grant("ReadOne", ("dynamodb:GetItem",), (TABLE,))
READ_MANY = Grant("ReadMany", ("dynamodb:BatchGetItem",), (TABLE,))
QUERY_TABLE = Grant("QueryTable", ("dynamodb:Query",), (TABLE,))
QUERY_INDEX = Grant("QueryIndex", ("dynamodb:Query",), (f"{TABLE}/index/*",))
QUERY = Grant("Query", ("dynamodb:Query",), (TABLE, f"{TABLE}/index/*"))
PUT = Grant("Put", ("dynamodb:PutItem",), (TABLE,))
DELETE = Grant("Delete", ("dynamodb:DeleteItem",), (TABLE,))
CHECK = Grant("Check", ("dynamodb:ConditionCheckItem",), (TABLE,))
SCAN = Grant("Scan", ("dynamodb:Scan",), (TABLE,))
WAKE = Grant("Wake", ("lambda:InvokeFunction",), ("lambda:function:dstack-{stage}-reconcile",))


def provider(artefact: str) -> str:
    """The name of the function for the providers of an artefact."""
    return f"provider_{artefact}"


def dead_letter_queue(stage: str) -> str:
    """The name of the queue for events that Lambda gives up. It stays as it is: a new name would replace the queue, and
    the messages in it would be lost."""
    return f"dstack-{stage}-aside"


_PROVIDERS = tuple(f"lambda:function:dstack-{{stage}}-{provider(artefact)}" for artefact in artefacts())
ACCOUNTS = Grant("Accounts", ("lambda:InvokeFunction",), _PROVIDERS)
EFFECTS = Grant("Effects", ("lambda:InvokeFunction",), (*_PROVIDERS, "lambda:function:dstack-{stage}-bootstrap_host"))
# A commit about a workflow starts its execution, and sends it the result that it waits for. Sending takes a token that
# the execution has given out. AWS has no narrower resource for it, and denies it to a policy with a narrower one.
DRIVE = (
    Grant(
        "Drive",
        ("states:StartExecution",),
        tuple(f"states:stateMachine:dstack-{{stage}}-{name}" for name in WORKFLOWS),
    ),
    Grant("Answer", ("states:SendTaskSuccess", "states:SendTaskFailure"), ("*",)),
)
STREAM = (
    Grant(
        "Stream",
        ("dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"),
        (f"{TABLE}/stream/*",),
    ),
    Grant("Streams", ("dynamodb:ListStreams",), ("*",)),  # AWS has no narrower resource for it
)
ANNOUNCE = Grant("Announce", ("events:PutEvents",), ("events:event-bus/dstack-{stage}",))
SEND_DEAD_LETTERS = Grant(  # Lambda does it with the function's role
    "SendDeadLetters", ("sqs:SendMessage",), (f"sqs:{dead_letter_queue('{stage}')}",)
)
READ_DEAD_LETTERS = Grant(
    "ReadDeadLetters", ("sqs:ReceiveMessage", "sqs:DeleteMessage"), (f"sqs:{dead_letter_queue('{stage}')}",)
)
# What Lambda does with a function's role. AWS has no narrower resource for these actions.
TRACE = Grant("Trace", ("xray:PutTelemetryRecords", "xray:PutTraceSegments"), ("*",))
NETWORK = Grant(
    "Network",
    (
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
    ),
    ("*",),
)
# Services that encrypt with a stage's key what functions store, and what they do with it in a function's name.
ENCRYPTING = ("dynamodb", "s3", "sqs", "ssm")
USE_KEY = tuple(
    f"kms:{name}" for name in ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo")
)
LIST = Grant("List", ("s3:ListBucket",), (BUCKET,))  # without it, S3 answers "forbidden" for a missing object
CATALOG = Grant("Catalog", ("s3:GetObject",), (f"{BUCKET}/catalog/*",))
NEWEST = Grant("Newest", ("s3:GetObject",), (f"{BUCKET}/agent/agent.pyz",))
CARRIERS = Grant("Carriers", ("s3:GetObject",), tuple(f"{BUCKET}/{newest_carrier(each)}" for each in ARCHITECTURES))

# A function that handles an outcome decides about any unit: it reads what that needs, commits, and sends hints. No pass
# deletes anything.
CONCLUDE = (READ, QUERY, PUT, WAKE, *DRIVE, CATALOG, LIST)
PASS = (*CONCLUDE, EFFECTS)


def blobs(sid: str, actions: tuple[str, ...], *folders: str) -> Grant:
    return Grant(sid, tuple(f"s3:{action}" for action in actions), tuple(f"{BUCKET}/{folder}/*" for folder in folders))


def settings(names: tuple[str, ...]) -> Grant:
    """Reads only those of the stage's parameters that the function uses."""
    return Grant("Settings", ("ssm:GetParameters",), tuple(f"ssm:parameter/dstack-{{stage}}/{name}" for name in names))


LINES = ("logs:CreateLogStream", "logs:PutLogEvents")


def logs(function: str) -> Grant:
    """Writes to the log group that the stack creates. It can't create one, which would keep its logs forever."""
    group = f"logs:log-group:/aws/lambda/dstack-{{stage}}-{function}:*"
    return Grant("Logs", LINES, (group,))


def own_logs(app: str) -> Grant:
    """Log groups of functions that Chalice deploys by itself, without creating groups for them."""
    return Grant("Logs", ("logs:CreateLogGroup", *LINES), (f"logs:log-group:/aws/lambda/{app}-{{stage}}*",))


def of_providers(artefact: str) -> tuple[Grant, ...]:
    """What the artefact's providers need for accounts without a key of their own, which are called with the function's
    role. For AWS: reading has no narrower resource than everything; created resources must have our tag, and only
    resources with the tag can be changed."""
    return tuple(
        Grant(f"{name.title()}{each.sid}", each.actions, each.resources, each.condition, any_region=True)
        for name in artefacts()[artefact]
        for each in permissions_of(name)
    )
