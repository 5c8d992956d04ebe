"""Cohort, labels, counts and costs of a few events by plain loops over rows: slow, and written from the rules alone."""

import datetime
from collections import Counter, defaultdict

DAY = datetime.timedelta(days=1)


def day_of(time):
    return time.date() if isinstance(time, datetime.datetime) else time


def offsets(length, closed, forward):
    """All offsets of a window, as a set."""
    first, last = (0, length) if forward else (-length, 0)
    inside = set(range(first, last + 1))
    if closed not in ("left", "both"):
        inside.discard(first)
    if closed not in ("right", "both"):
        inside.discard(last)
    return inside


def study(rows, threshold, rule, inclusion, outcomes, prices, spell):
    """Everything about one threshold.

    `rows` are (subject, time or None, code, cost or None); `threshold` a date or a dict by subject; `inclusion` a set
    of codes or None; `outcomes` a list of sets of codes, the first being death; `spell` gives the normal spelling.
    """
    dated = [(subject, time, spell(code), cost) for subject, time, code, cost in rows if time is not None]
    data_end = max(day_of(time) for _, time, _, _ in dated)
    if rule.data_end is not None:
        data_end = rule.data_end
    of = defaultdict(list)
    for subject, time, code, cost in dated:
        of[subject].append((day_of(time), code, cost))
    lookback = offsets(rule.lookback_days, rule.lookback_closed, forward=False)
    horizon = offsets(rule.horizon_days, rule.horizon_closed, forward=True)
    found = {}
    for subject in sorted(of):
        at = threshold.get(subject) if isinstance(threshold, dict) else threshold
        if at is None:
            continue
        deaths = [day for day, code, _ in of[subject] if code == "MEDS_DEATH"]
        leaves = [day for day, code, _ in of[subject] if code == "OBSERVATION_END"]
        last = min([data_end, *deaths[:0], *([min(deaths)] if deaths else []), *([max(leaves)] if leaves else [])])
        died = bool(deaths) and min(deaths) == last
        if (last - at).days < min(horizon):
            continue
        if inclusion is not None and not any(
            code in inclusion
            and (day - at).days <= max(lookback)
            and (rule.inclusion_days is None or (day - at).days >= -rule.inclusion_days)
            for day, code, _ in of[subject]
        ):
            continue
        if rule.min_follow_up_days and not died and (last - at).days < rule.min_follow_up_days:
            continue
        counts, paid, billed = Counter(), 0.0, 0.0
        happened, before = set(), set()
        for day, code, cost in of[subject]:
            if day > last:
                continue
            offset = (day - at).days
            if offset in lookback:
                counts[code] += 1
            for j, codes in enumerate(outcomes):
                if code in codes and offset < min(horizon):
                    before.add(j)
                if code in codes and offset in horizon:
                    happened.add(j)
            if offset in horizon:
                paid += cost or 0.0
                billed += prices.get(code, 0.0)
        labels = []
        for j in range(len(outcomes)):
            label = 1.0 if j in happened else 0.0
            if label == 0.0 and (last - at).days < max(horizon):
                settled = died and (j == 0 or rule.death == "negative")
                label = label if settled else None
            if j in before and rule.prior_outcome == "mask":
                label = None
            labels.append(label)
        if before and rule.prior_outcome == "remove":
            continue
        found[subject] = {"labels": labels, "counts": counts, "paid": paid, "billed": billed}
    return found
