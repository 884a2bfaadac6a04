"""`dstack server --pair PLACE`: two servers of which one decides, and the other takes over if it can't any more.

`protocol.py`  who decides, and who may take over: pure, on the clock of one machine at a time
`places.py`    the lease in a folder, or in a bucket
`tenure.py`    the time for which this server decides: renewed on a thread, asked wherever something is decided
`copies.py`    the copies of the data folder: made by one, kept at hand and restored by the other
`standby.py`   the server that doesn't decide: what it answers, and how it waits
`pair.py`      a server's part in its pair, from its start to its end

In the place are backups (`store/backups.py`), made every few seconds by whoever decides, and the lease: one small
object that is only ever replaced by compare-and-swap. The lease names the copy that counts. What a server writes that
has lost its lease is named by none, so nobody restores it.
"""
