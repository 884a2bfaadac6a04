"""Presets: a language model proposes services for a model, each is measured on real machines, and the best one is kept.

`creation`        what `dstack apply` does: the plan and its price, the question, the worker, following it.
`worker`          a process of its own that outlives the command: asks, starts, measures, stops, one trial at a time.
`trial`           one of these services, from its submission to its end.
`search`          decisions, pure: what is next, which trial is best, and why the search ends.
`proposals`       what the language model is told, and what is taken of its answer. Pure.
`language_model`  the user's own, behind an API like OpenAI's.
`benchmark`       requests to a service, and the figures that come of them.
`records`         a folder for each preset under `~/.dstack/presets`; nothing of it is on a server.
`export`          a trial as a service's configuration.
"""
