#!/usr/bin/python3
"""Stands for a vendor's tool on a host without its hardware: prints what the tool prints, from a table.

Installed under the tool's name, it reads /usr/share/test-tools/NAME.json:
`rows`: a list of cards, each a field's value or [number, unit], for queries in CSV;
`answers`: arguments (a prefix, words joined by blanks) → text; the longest that fits is printed;
`status` and `says`: if given, all it ever does.
"""

import json
import sys
from pathlib import Path

QUERIES = ("--query-gpu", "--query-aip", "-Q")
FORMATS = ("--format", "-f")


def main(argv):
    name = Path(sys.argv[0]).name
    table = json.loads(Path(f"/usr/share/test-tools/{name}.json").read_text())
    if "says" in table:
        print(table["says"])
        return table["status"]
    options = parsed(argv)
    for query in QUERIES:
        if query in options:
            return print_query(table["rows"], options[query].split(","), options)
    line = " ".join(argv)
    fitting = [key for key in table["answers"] if (line + " ").startswith(key + " ") or key == ""]
    if not fitting:
        print(f"{name}: these arguments are unknown: {line}", file=sys.stderr)
        return 2
    print(table["answers"][max(fitting, key=len)])
    return 0


def parsed(argv):
    """Options by name, whether their value follows `=` or stands by itself."""
    options = {}
    for number, argument in enumerate(argv):
        name, equals, value = argument.partition("=")
        options[name] = value if equals else (argv[number + 1] if number + 1 < len(argv) else "")
    return options


def print_query(rows, fields, options):
    how = next((options[one] for one in FORMATS if one in options), "").split(",")
    if "-i" in options or "--id" in options:
        rows = [rows[int(options.get("-i") or options["--id"])]]
    known = rows[0] if rows else {}
    for field in fields:
        if rows and field not in known:
            print(f'Field "{field}" is not a valid field to query.\n')
            return 2
    if not rows:
        print("No devices were found")
        return 6
    if "noheader" not in how:
        print(", ".join(title(field, known[field]) for field in fields))
    for row in rows:
        print(", ".join(cell(row[field], "nounits" in how) for field in fields))
    return 0


def title(field, value):
    return f"{field} [{value[1]}]" if isinstance(value, list) else field


def cell(value, bare):
    if not isinstance(value, list):
        return str(value)
    return str(value[0]) if bare or str(value[0]).startswith("[") else f"{value[0]} {value[1]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
