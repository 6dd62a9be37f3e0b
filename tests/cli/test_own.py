"""What is wrong in a file of one's own is told with the file."""

from pathlib import Path

import pytest

from harness.variants import conf_dir

GLOBAL = "# @package _global_\n"

VARIES = GLOBAL + "hydra:\n  sweeper:\n    params:\n      {}\n"

OWN_FILES = {
    "prune/p6.yaml": "name: foo\nratio: 0.5\n",
    "prune/big.yaml": "defaults: [snapkv, _self_]\nwindow: big\n",
    "prune/p7.yaml": "defaults: [snapkv, _self_]\nname: foo\n",
    "whole.yaml": "defaults: [config, _self_]\n",
    "plain.yaml": "defaults: [config, _self_]\nprune: snapkv\n",
    "experiment/plain.yaml": f"{GLOBAL}cache: cloned\n",
    "experiment/task.yaml": f"{GLOBAL}task: evaluate\n",
    "experiment/near.yaml": f"{GLOBAL}cache: clond\n",
    "experiment/section.yaml": f"{GLOBAL}restore: yes\n",
    "experiment/name.yaml": f"{GLOBAL}prune: {{name: snapkv, ratio: 0.5}}\n",
    "experiment/key.yaml": VARIES.format("sead: 1,2"),
    "experiment/group.yaml": VARIES.format("cahce: manual,cloned"),
    "experiment/option.yaml": VARIES.format("cache: manual, clond"),
    "experiment/parms.yaml": VARIES.replace("params", "parms").format("seed: 1,2"),
    "experiment/job.yaml": f"{GLOBAL}hydra: {{jb: {{name: a}}}}\n",
    "hydra/launcher/bad.yaml": "defaults: [submitit_local, _self_]\ncpus_per_tsk: 1\n",
    "swept.yaml": "defaults: [config, _self_]\nhydra:\n  sweeper:\n    params:\n      seed: [1, 2]\n",
}

CLONED = "harness: mine/experiment/plain.yaml sets cache to 'cloned': write `override /cache: cloned` among its defaults."

TOLD = {
    "prune=p6": "prune=p6: mine/prune/p6.yaml says name: foo. Write name: p6",
}


@pytest.mark.parametrize("given", TOLD)
def test_a_file_of_one_s_own_is_told_what_is_wrong_in_it(harness, place: Path, given) -> None:
    for group in ("prune", "experiment", "hydra/launcher"):
        (place / "mine" / group).mkdir(parents=True)
    for name, text in OWN_FILES.items():
        (place / "mine" / name).write_text(text)
    done = harness("--config-dir", "mine", *given.format(place, conf_dir()).split(), "steps=1")
    assert done.code == 2 and TOLD[given].replace("{}", str(place)) in done.out, done.out
    assert "Did you mean 'config'" not in done.out
    assert done.out.count("harness: ") == 1 and "Traceback" not in done.out


NOWHERE = {
    "prune=snapkv prune.ratio=${half:}": "harness: prune.ratio=${half:}: there is no resolver half",
    "prune=snapkv prune.ratio=${prune.ratio}": "harness: prune.ratio=${prune.ratio}: it leads back",
    "prune=mine": "mine/prune/mine.yaml: prune.ratio=${half:}: there is no resolver half.",
    "-m prune=mine,snapkv": "mine/prune/mine.yaml: prune.ratio=${half:}: there is no resolver half",
    "name=${name}": "harness: name=${name}: it leads back to itself.",
    "-m runs_dir=${double:3} seed=1,2": "harness: runs_dir=${double:3}: there is no resolver double.",
    "experiment=near": "mine/experiment/near.yaml: name=${cache.nme}_x: ${cache.nme} names no key of the configuration. Did you mean 'cache.name'?",
    "experiment=none": "mine/experiment/none.yaml: limit_s=${nosuch}: ${nosuch} names no key",
    "experiment=loop": "mine/experiment/loop.yaml: name=${text}: it leads back to itself.",
    "hydra.run.dir=${half:}": "harness: hydra.run.dir=${half:}: there is no resolver half.",
}  # fmt: skip
