"""Several lock servers as one: the table's log and the leadership live in etcd.

Every server tails the log. One leads, by a lease; it writes a batch of changes as one value, in a transaction
that compares its own leader key, so that one who was deposed cannot write, whatever it believes.
"""
