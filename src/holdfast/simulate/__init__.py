"""The simulator: the real fronts and the real lock table, in virtual time, on a network and a disk that fail.

What is simulated: time, machines, the network, the disk, the protected resource, and the nodes of
Redlock. What is real: everything in `locks`, the lock table in `core.table`, the verbs of the table
engines, and Redlock's recipe.
"""
