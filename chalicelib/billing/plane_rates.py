"""What each driver of the bill uses: a month of the schedules or of an instance, a run, a state change.
How many state changes the others make is beside it.

Written by `make cost RECORD=1`, which measures it.
"""

from __future__ import annotations

from collections.abc import Mapping

RATES: Mapping[str, Mapping[str, float]] = {
    "the schedules": {
        "Lambda requests": 83300.0,
        "Lambda time": 1430.0,
        "table reads": 247000.0,
        "queue requests": 4380.0,
        "S3 writes": 213.0,
        "S3 reads": 30.4,
        "table writes": 60.8,
    },
    "an account": {
        "Lambda requests": 8880.0,
        "Lambda time": 1270.0,
        "table reads": 79000.0,
        "table writes": 8880.0,
        "S3 writes": 365.0,
        "S3 reads": 122.0,
    },
    "an instance": {"Lambda requests": 43800.0, "Lambda time": 164.0, "table reads": 68600.0, "table writes": 9240.0},
    "a run": {
        "Lambda requests": 83.9,
        "Lambda time": 1.03,
        "table reads": 360.0,
        "API Gateway requests": 17.0,
        "table writes": 56.1,
        "S3 reads": 5.58,
        "S3 writes": 4.92,
        "table storage": 2.61e-05,
        "S3 storage": 1.88e-05,
    },
    "a further node of a run": {
        "Lambda requests": 55.0,
        "Lambda time": 0.224,
        "table reads": 236.0,
        "table writes": 33.0,
        "S3 writes": 4.0,
    },
    "a start on several nodes": {
        "Lambda requests": 6.0,
        "Lambda time": 0.45,
        "table reads": 184.0,
        "table writes": 18.0,
        "state transitions": 9.0,
    },
    "a service's replica": {
        "Lambda requests": 480000.0,
        "Lambda time": 1800.0,
        "table reads": 1010000.0,
        "table writes": 3160.0,
    },
    "a gateway's replica": {"Lambda requests": 263000.0, "Lambda time": 986.0, "table reads": 1840000.0},
    "a busy service": {
        "Lambda requests": 525000.0,
        "Lambda time": 4270.0,
        "table reads": 3420000.0,
        "table writes": 263000.0,
        "S3 writes": 365.0,
        "S3 reads": 122.0,
    },
    "a state change": {"bus events": 1.0, "Lambda requests": 0.308, "Lambda time": 0.0115},
}

CHANGES: Mapping[str, float] = {"a run": 12.0, "a further node of a run": 7.0, "a start on several nodes": 2.0}
