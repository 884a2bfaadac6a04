"""`dstack server migrate`: moves a control plane from a data folder into a stage in AWS while its jobs run, and back.

`steps.py`   the steps, each repeatable: a killed migration is continued by the same command
`places.py`  the two places that it moves between
`checks.py`  what can't move, and what to do about it
`stage.py`   how the functions of a stage are stopped
`signpost.py`  the server on a folder that a control plane has moved from

| step | source | target |
|---|---|---|
| open | decides | its fence says `receiving`, and nothing that began before goes on there |
| copy | decides; agents and people notice nothing | gets records, blobs and logs, until little is left to do |
| fence | its fence says `moved`: from that commit on nothing is decided | |
| settle | nothing that began before the fence is still under way | |
| copy again | unchanged from now on | gets the rest |
| verify | count and digest of all records are compared with … | … the target's |
| hand over | | every agent gets time to find it |
| activate | sends agents and people to the target, as long as it is called | its fence says `active`: it decides |

A fence is changed by a commit under its version, so two migrations exclude each other, and at most one place decides at
any moment; in between none does, which is like a server that is restarted: jobs run on, and agents keep what they have
to report.
"""
