"""What older versions said of a sweep is accepted, and nothing else in its place."""

import json

from harness.report.sweep import earlier, page, summary
from harness.task import chat as task
from harness.task.audit import difference, evidence, server, wording


def test_counts_that_older_versions_told_the_best_first_are_those_of_today() -> None:
    once = wording.best_first("9 of 9 points: 2 failed, 1 diverged, 3 exact, 3 equivalent")
    assert once == "9 of 9 points: 3 exact, 3 equivalent, 1 diverged, 2 failed"
    sentence = "Not as required: 2 failed, 1 diverged of 9 points (0, 1, 2)."
    assert (
        wording.older([sentence, "2 failed, 1 exact"], "1 exact, 2 failed") == "1 exact, 2 failed"
    )
    before = "Not as required: 1 diverged, 2 failed of 9 points (0, 1, 2)."
    assert wording.older([sentence], before) == before
    assert wording.older([sentence], "3 exact") == sentence, "other counts are no older wording"


def test_what_older_versions_did_not_say_of_a_control_and_said_of_a_budget_that_nothing_reads_holds() -> (
    None
):
    row = {
        "verdict": "diverged",
        "exit_code": 0,
        "reason": "",
        "stored_bytes": 9,
        "top1_agreement": 0.5,
    }
    near = [
        row | {"point": p, "prune": p, "kl_mean": k} for p, k in (("random", 0.1), ("knorm", 2.0))
    ]
    said = "Nearest: prune=random."
    control = f"{said} prune=random is a control, no policy."
    assert wording.older([control], said, near) == said
    assert wording.older([control], "Nearest: prune=knorm.", near) == control
    budgets = [row | {"point": n, "prune": "none", "prune.ratio": n} for n in ("0.1", "0.2")]
    best = "Smallest: prune=none (equivalent, 9 bytes)."
    tied = best.replace(").", "), where every value of prune.ratio ties.")
    assert wording.older([best], tied, budgets) == tied
    assert wording.older([best], tied, near) == best
    assert wording.older([best], tied.replace("none", "knorm"), budgets) == best


def test_what_older_versions_called_the_best_of_a_sweep_is_no_forgery() -> None:
    """They could choose the full cache and the control, in other words; what they never said is no wording of theirs."""
    row = {
        "exit_code": 0,
        "reason": "",
        "stored_bytes": 9,
        "mutated": False,
        "outcome": "",
        "kl_mean": 0.0,
    }
    rows = [
        row | {"point": str(n), "prune": prune, "verdict": verdict, "kl_mean": kl}
        for n, (prune, verdict, kl) in enumerate(
            [("none", "equivalent", 0.0), ("knorm", "diverged", 2.0), ("random", "diverged", 0.1)]
        )
    ]
    now = summary.told(rows, {})[1]
    assert now.startswith("Beside prune=none, the full cache: ")
    before = "The only one to differ by no more than rounding: prune=none (equivalent, 9 bytes)."
    assert wording.older([now], before, rows) == before
    wrong = before.replace("none", "knorm")
    assert wording.older([now], wrong, rows) != wrong
    caches = [
        row | {"point": str(n), "cache": cache, "verdict": "exact", "mutated": cache == "dynamic"}
        for n, cache in enumerate(("cloned", "dynamic"))
    ]
    now = summary.told(caches, {})[1]
    assert now == "Exact, your cache left as it was: cache=cloned (exact, 9 bytes on disk)."
    before = "The only exact point that leaves your cache as it was: cache=cloned (exact, 9 bytes)."
    assert wording.older([now], before, caches) == before


def test_a_winner_of_one_prompt_of_which_older_versions_did_not_say_that_is_no_forgery() -> None:
    row = {
        "exit_code": 0,
        "reason": "",
        "stored_bytes": 9,
        "answer": "right",
        "verdict": "diverged",
    }
    rows = [row | {"point": str(n), "prune": p, "kl_mean": n + 0.1} for n, p in enumerate("ab")]
    rows[0]["verdict"] = "drifted"
    now = summary.said(rows, {}, 2)[1]
    before, caution, _ = now.partition(" One prompt says")
    assert caution and wording.older([now], before, rows) == before
    other = before.replace("prune=a", "prune=b")
    assert wording.older([now], other, rows) != other


def test_a_seed_that_older_versions_chose_is_no_forgery() -> None:
    row = {"verdict": "diverged", "exit_code": 0, "reason": "", "stored_bytes": 9, "prune": "random",
           "restore": "equivalent", "tokens": 9, "kept_tokens": 4}  # fmt: skip
    rows = [row | {"point": str(n), "prune.seed": str(n), "kl_mean": n + 0.5} for n in range(3)]
    now = summary.told(rows, {})[1]
    assert "prune.seed=" not in now
    first = "All 3 came back as saved; pruning changes tokens in each, as is allowed."
    once = f"{first} Nearest policy to the full cache by mean KL: prune.seed=0 (0.5 nats, 0.00879 KiB)."
    once = wording.older([now], f"{once} prune=random is a control, no policy.", rows)
    assert "prune.seed=0 (0.5 nats" in once
    other = once.replace("prune.seed=0", "prune.seed=2")
    assert wording.older([now], other, rows) == now, "another seed is no older wording"


def test_how_many_points_are_safe_is_a_claim_of_the_outcome() -> None:
    """Who counts more of them on a server claims another outcome, whatever version recorded it."""
    said = server._claims("2 of 4 safe: keydiff 25% 100% right")
    assert server._claims("keydiff 25% 100% right") <= said
    for other in ("4 of 4 safe: keydiff 25% 100% right", "none of 4 safe", "no safe choice"):
        assert not server._claims(other) <= said, other


def test_points_with_other_tokens_that_older_versions_called_the_smallest_are_no_forgery() -> None:
    row = {"verdict": "diverged", "exit_code": 0, "reason": "", "quantize": "int8", "tokens": 9}
    rows = [
        row | {"point": "0", "prune": "none", "quantize": "none", "verdict": "exact", "stored_bytes": 30, "kl_mean": 0.0},
        row | {"point": "1", "prune": "none", "verdict": "drifted", "exit_code": 1, "stored_bytes": 20, "kl_mean": 1e-6},
        row | {"point": "2", "prune": "knorm", "stored_bytes": 10, "kl_mean": 0.496},
        row | {"point": "3", "prune": "knorm", "quantize": "none", "stored_bytes": 15, "kl_mean": 0.4959},
    ]  # fmt: skip
    now = summary.told(rows, {})[1]
    assert now.startswith("Beside prune=none quantize=none, the full cache: nearest to it (by mean KL) that is as")  # fmt: skip
    before = now.replace(
        "nearest to it (by mean KL) that is as required", "smallest with the right answer"
    )
    assert wording.older([now], before, rows) == before
    other = before.replace("quantize=int8", "quantize=none", 1)
    assert wording.older([now], other, rows) != other


def test_a_tie_of_two_digits_that_older_versions_told_is_no_forgery() -> None:
    row = {"verdict": "diverged", "exit_code": 0, "reason": "", "tokens": 9}
    rows = [
        row | {"point": str(n), "prune": p, "kl_mean": kl, "stored_bytes": 10 + n}
        for n, (p, kl) in enumerate((("knorm", 0.5201), ("tova", 0.5199)))
    ]
    with earlier.without():
        now = summary.told(rows, {})[1]
    before = now.replace(
        "As near: prune=tova (0.52 nats), with 1.1 times the bytes.",
        "The nearest ties with prune=tova to two digits (0.52 nats) and takes the fewest bytes.",
    )
    assert before != now and wording.older([now], before, rows) == before
    other = before.replace("with prune=tova", "with prune=snapkv")
    assert wording.older([now], other, rows) != other


def test_what_older_versions_told_of_the_restore_of_codes_is_no_forgery(tmp_path) -> None:
    for name, prune, kept in (("0", "none", 9), ("1", "knorm", 4)):
        (tmp_path / name).mkdir()
        result = {"verdict": "drifted", "reason": "", "pruned": kept < 9, "task": "experiment",
                  "options": {"prune": prune, "quantize": "int8"}, "size": {"tokens": 9, "kept_tokens": kept},
                  "itself": {"against": "saved", "verdict": "equivalent"}}  # fmt: skip
        (tmp_path / name / "result.json").write_text(json.dumps(result))
    points = [tmp_path / "0", tmp_path / "1"]
    rows = page.rows(points)
    assert [row["restore"] for row in rows] == ["equivalent"] * 2

    def named(*restores: str) -> list[str]:
        told = [{**row, "restore": said} for row, said in zip(rows, restores, strict=True)]
        (tmp_path / "sweep.csv").write_text(page._csv(told))
        return [found.what for found in evidence.summary(tmp_path, points)]

    assert not named("equivalent", "equivalent") and not named("drifted", "equivalent")
    assert named("exact", "equivalent") == named("drifted", "drifted") == ["sweep.csv: restore"]


def test_of_which_turns_a_chat_says_nothing_an_older_one_is_believed_and_no_other_count():
    def differs(recorded, now):
        return [*difference._leaves({"reason": recorded}, {"reason": now}, "why")]

    chat = "3 turns; the restored chat answers turns 2 to 3 token for token; time per turn x0.84 cached"
    older = chat.replace("turns 2 to 3", "every turn").replace("0.84", "0.91")
    assert not differs(older, chat) and not differs(chat, chat.replace("0.84", "0.91"))
    assert differs(chat.replace("2 to 3", "2 to 9"), chat) and differs(chat, older)
    assert not differs(chat.replace("turns 2 to 3", "turn 3"), chat), "which named the last of them"
    one = f"1 turn; {difference.ALONE}"
    assert not differs("1 turn; the restored chat answers every turn token for token", one)
    assert task._restored([], 1) == difference.ALONE
    assert not differs("off; every chosen token is the same", "off; every drawn token is the same")
    assert differs("off; every chosen token is the same", "off; every other token is the same")


def test_only_of_numbers_it_is_said_that_rounding_does_not_explain_them():
    run = {"verdict": "exact", "task": "chat", "against": "a", "loop": {"steps": 4}, "options": {}}
    forged = run | {"verdict": "drifted", "against": "b", "loop": {"steps": 9}}
    changed = [{"what": "code", "recorded": 1, "found": 2, "decisive": True}]
    why = {d.what: d.explanation for d in difference.compare(forged, run, changed)}
    assert why["loop.steps"].startswith(f"{difference.MORE}; changed since: code 1 -> 2")
    words = "the run says something else; changed since: code 1 -> 2"
    assert why["verdict"] == why["against"] == words
