"""Every case of `cases/`, in RESP2 and RESP3, against redis-server 7.0."""

import pytest

from conftest import VARIANTS
from harness import cases
from harness.resp import to_bytes

ALL = cases.load()
#: Groups run again in the other ways of running Snug.
SUBSET = {"bits", "strings", "keys", "streams", "groups", "blocking", "transactions"} | {
    *("lists", "hashes", "sets", "sorted_sets", "sort", "geo", "hyperloglog", "blocking_lists", "blocking_zsets"),
}
#: What is not as it should be: variant and title of the case, and why.
DIFFERENT = {
    ("tiered", "a stream of small nodes"): "XTRIM ~ removes less after a stream came back: its nodes have lost the room of deleted entries",
}


def name(case):
    return f"{case.file}:{case.line} {case.title}"


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
@pytest.mark.parametrize("case", ALL, ids=name)
def test_case(pairs, case, protocol):
    if not case.runs_in(protocol):
        pytest.skip("this case is about the other protocol")
    run(pairs.get(), case, protocol)


@pytest.mark.snug_only
@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "usual"])
@pytest.mark.parametrize("case", [c for c in ALL if c.file in SUBSET], ids=name)
def test_case_in_variant(request, pairs, case, variant):
    if not case.runs_in(2):
        pytest.skip("this case is about the other protocol")
    if VARIANTS[variant].get("tiered") and any(is_about_clients(step) for step in case.steps):
        pytest.skip("whoever has values go to disk is a client too")
    if (variant, case.title) in DIFFERENT:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT[variant, case.title], strict=True))
    run(pairs.get(variant), case, 2)


def is_about_clients(step):
    words = [to_bytes(a).lower() for a in step.args]
    return b"client" in words and not {b"list", b"kill", b"pause"}.isdisjoint(words)


@pytest.mark.parametrize("protocol", [2, 3], ids=["resp2", "resp3"])
@pytest.mark.parametrize("case", cases.load("cluster"), ids=name)
def test_case_in_cluster_mode(pairs, case, protocol):
    if not case.runs_in(protocol):
        pytest.skip("this case is about the other protocol")
    run(pairs.get(cluster=True), case, protocol)


def run(pair, case, protocol):
    found = pair.difference(case, protocol)
    if found:
        where = f"{case.file}.case:{found.step.line or case.line}: {case.title} (RESP{protocol})"
        pytest.fail(f"{where}\n{found}", pytrace=False)
