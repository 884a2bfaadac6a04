"""What functions are granted: what a root needs, and what each kind of work adds to it."""

from __future__ import annotations

from chalicelib.backends.registry import artefacts, permissions_of
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
    """The name of the function that works on the accounts of an artefact's providers."""
    return f"provider_{artefact}"


def dead_letter_queue(stage: str) -> str:
    """The name of the queue for events that Lambda gives up. It stays as it is: a new name would replace the queue, and
    the messages in it would be lost."""
    return f"dstack-{stage}-aside"


_PROVIDERS = tuple(f"lambda:function:dstack-{{stage}}-{provider(artefact)}" for artefact in artefacts())
ACCOUNTS = Grant("Accounts", ("lambda:InvokeFunction",), _PROVIDERS)
EFFECTS = Grant("Effects", ("lambda:InvokeFunction",), (*_PROVIDERS, "lambda:function:dstack-{stage}-bootstrap_host"))
# What is committed about a workflow begins its execution, and tells it what it waits for. The second is by a token that
# only the execution has given out: AWS knows no narrower resource, and refuses it to whoever is allowed a narrower one.
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
    Grant("Streams", ("dynamodb:ListStreams",), ("*",)),  # which knows no narrower resource
)
ANNOUNCE = Grant("Announce", ("events:PutEvents",), ("events:event-bus/dstack-{stage}",))
SEND_DEAD_LETTERS = Grant(  # by Lambda, in the function's name
    "SendDeadLetters", ("sqs:SendMessage",), (f"sqs:{dead_letter_queue('{stage}')}",)
)
READ_DEAD_LETTERS = Grant(
    "ReadDeadLetters", ("sqs:ReceiveMessage", "sqs:DeleteMessage"), (f"sqs:{dead_letter_queue('{stage}')}",)
)
# What Lambda does in a function's name. These actions know no narrower resource.
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
LIST = Grant("List", ("s3:ListBucket",), (BUCKET,))  # without it S3 says of a missing object that it is forbidden
CATALOG = Grant("Catalog", ("s3:GetObject",), (f"{BUCKET}/catalog/*",))
NEWEST = Grant("Newest", ("s3:GetObject",), (f"{BUCKET}/agent/agent.pyz",))

# What concludes an outcome decides about any unit: it reads whatever that needs, commits, and wakes. No pass deletes.
CONCLUDE = (READ, QUERY, PUT, WAKE, *DRIVE, CATALOG, LIST)
PASS = (*CONCLUDE, EFFECTS)


def blobs(sid: str, actions: tuple[str, ...], *folders: str) -> Grant:
    return Grant(sid, tuple(f"s3:{action}" for action in actions), tuple(f"{BUCKET}/{folder}/*" for folder in folders))


def settings(names: tuple[str, ...]) -> Grant:
    """Of the stage's parameters, those alone that a function has a use for."""
    return Grant("Settings", ("ssm:GetParameters",), tuple(f"ssm:parameter/dstack-{{stage}}/{name}" for name in names))


LINES = ("logs:CreateLogStream", "logs:PutLogEvents")


def logs(function: str) -> Grant:
    """Of the group that the stack makes. It can't make one: that would have no end of its retention."""
    group = f"logs:log-group:/aws/lambda/dstack-{{stage}}-{function}:*"
    return Grant("Logs", LINES, (group,))


def own_logs(app: str) -> Grant:
    """Of the functions of an app that Chalice deploys by itself, and makes no groups for."""
    return Grant("Logs", ("logs:CreateLogGroup", *LINES), (f"logs:log-group:/aws/lambda/{app}-{{stage}}*",))


def of_providers(artefact: str) -> tuple[Grant, ...]:
    """What the artefact's providers need where an account has no key of its own, and so is called in the function's
    name. Of AWS: reading has no narrower resource than all; what is created must bear our tag, and only what bears it
    is changed."""
    return tuple(
        Grant(f"{name.title()}{each.sid}", each.actions, each.things, each.only_if, abroad=True)
        for name in artefacts()[artefact]
        for each in permissions_of(name)
    )
