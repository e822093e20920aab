"""What was given back is gone: whoever released it, and was told so, does not see it any more.

Only looks of the claim's own session count. What another client sees may be older, on engines whose
followers answer too; what is left at the very end is for the checker of leaks.
"""

from __future__ import annotations

from holdfast.verify.finding import Finding, around, found, violation
from holdfast.verify.history import RELEASING, History, Record

CLAIM = "released"


def check(history: History) -> Finding:
    """Look for a claim that its own session still saw after its release."""
    released = {call.claim: call for call in history.calls if call.op in RELEASING and call.ok and call.claim}
    looks = [call for call in history.calls if call.op == "inspect" and call.ok and call.claim in released]
    violations = []
    for look in looks:
        release = released[look.claim]
        if release.end is None or release.end > look.start:
            continue
        there = [role for role in ("holders", "waiters") if look.claim in look.value.get(role, ())]
        if there:
            summary = f"{look.process} gave {look.name!r} back, was told so, and is still among its {there[0]}"
            records: list[Record | None] = [release, look, *around(history, [look.process], release.start, look.start)]
            violations.append(violation(CLAIM, summary, records, look.start))
    return found(CLAIM, len(looks), violations, "nobody looked at what it had given back")
