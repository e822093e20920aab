"""A payment that is charged once, however often it is asked for, and by however many.

    python payment.py PAYMENT CENTS

The charge can be started again if a worker was lost half-way, which is why the bank gets a key
that is the same each time: it is the bank that makes a second call harmless.
"""

import sys

import holdfast

locks = holdfast.connect()


@locks.once("payment:{payment}", failures=True)
def charge(grant: holdfast.Grant, payment: str, cents: int) -> dict[str, object]:
    if cents <= 0:
        raise ValueError("nothing to charge")  # recorded too: asking again does not help
    print(f"the bank charges {cents} under the idempotency key {payment}, in try {grant.token}")
    return {"payment": payment, "charged": cents}


with locks:
    try:
        print(charge(sys.argv[1], int(sys.argv[2])))
    except holdfast.RecordedFailure as failure:
        print(f"failed: {failure.error}: {failure.problem}")
