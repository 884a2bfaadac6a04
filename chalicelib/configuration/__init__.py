"""The `*.dstack.yml` language: text to spec, with errors that say where, what and how to fix it. Pure.

`parse` reads a file, `reading` any other value, and `problems` turns a model's errors into messages. Nothing is
imported here, and YAML only when the first file is read, so that an API that checks one body doesn't load all of it.
"""
