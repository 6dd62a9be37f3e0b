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
    "prune=p7": "prune=p7: mine/prune/p7.yaml says name: foo. Leave it out",
    "prune=p6": "prune=p6: mine/prune/p6.yaml says name: foo. Write name: p6",
    "prune=big": "harness: mine/prune/big.yaml: prune.window=big is not possible: give a whole number.",
    "prune=big prune.window=large": "harness: prune.window=large is not possible: give a whole number.",
    "-cp {}/mine -cn whole": "--config-path replaces the folder that it lies in. With --config-dir",
    "-cn plain": "mine/plain.yaml sets prune to 'snapkv': write `override /prune: snapkv` among its defaults.",
    "-cp {}/mine -cn plain hydra.searchpath=[file://{}]": "mine/plain.yaml sets prune to 'snapkv': write `override /prune: snapkv`",
    "experiment=plain": CLONED,
    "experiment=plain --cfg job": CLONED,
    "-m experiment=plain seed=1,2": CLONED,
    "experiment=task": "mine/experiment/task.yaml sets task to 'evaluate': write `override /task: evaluate`",
    "experiment=near": "mine/experiment/near.yaml sets cache to 'clond': an option is chosen among its defaults, `override /cache: OPTION`. Did you mean 'cloned'?",
    "experiment=section": "mine/experiment/section.yaml sets restore to true, and restore has keys of its own: device, map,",
    "experiment=name": "mine/experiment/name.yaml sets prune.name to 'snapkv', and an option brings all of its keys: write `override /prune: snapkv`",
    "-m experiment=key": "harness: mine/experiment/key.yaml varies sead=1,2: 'sead' is not a key of the configuration. Did you mean 'seed'?",
    "-m experiment=group": "group.yaml varies cahce=manual,cloned: 'cahce' is not a key of the configuration. Did you mean 'cache'?",
    "-m experiment=option": "option.yaml varies cache=clond: 'clond' is not an option of cache. Did you mean 'cloned'?",
    "-m experiment=parms": "parms.yaml sets 'hydra.sweeper.parms', which is not a key of the configuration. Did you mean 'params'?",
    "-m experiment=job": "sets 'hydra.jb', which is not a key of the configuration. Did you mean 'hydra.job'?",
    "-m hydra/launcher=bad": "harness: hydra/launcher=bad: mine/hydra/launcher/bad.yaml sets 'hydra.launcher.cpus_per_tsk', which is not a key of the configuration. Did you mean 'cpus_per_task'?",
    "-cd mine/experiment experiment=plain": "plain.yaml lies in {}/mine/experiment itself: give the folder above, --config-dir {}/mine",
    "-m -cn swept": "give a whole number. The values of a file's sweep stand without brackets: `seed: 1,2`.",
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


def test_a_file_may_name_the_option_that_is_chosen_or_bring_all_its_keys(
    harness, place: Path
) -> None:
    (place / "mine" / "experiment").mkdir(parents=True)
    path = place / "mine" / "experiment" / "fine.yaml"
    path.write_text(f"{GLOBAL}defaults:\n  - override /prune: knorm\nprune: {{name: knorm}}\n")
    shown = ["--config-dir", "mine", "experiment=fine", "--cfg", "job", "-p", "prune"]
    done = harness(*shown)
    assert done.code == 0 and "name: knorm" in done.out, done.out
    other = harness(*shown, "prune=snapkv")
    assert other.code == 2 and "sets prune.name to 'knorm'" in other.out, other.out
    whole = harness("prune=knorm", "--cfg", "job", "-p", "prune").out
    path.write_text(f"{GLOBAL}prune:\n" + "".join(f"  {line}\n" for line in whole.splitlines()))
    done = harness(*shown)
    assert done.code == 0 and "name: knorm" in done.out, done.out


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


@pytest.mark.parametrize("given", NOWHERE)
def test_a_reference_that_leads_nowhere_is_told_with_its_key_and_its_file(
    harness, place: Path, given
) -> None:
    for group in ("prune", "experiment"):
        (place / "mine" / group).mkdir(parents=True)
    (place / "mine" / "prune" / "mine.yaml").write_text(
        "defaults: [snapkv, _self_]\nratio: ${half:}\n"
    )
    for name, text in (("near", "name: ${cache.nme}_x"), ("none", "limit_s: ${nosuch}")):
        (place / "mine" / "experiment" / f"{name}.yaml").write_text(f"{GLOBAL}{text}\n")
    loop = "# @package _global_\nname: ${text}\ntext: ${name}\n"
    (place / "mine" / "experiment" / "loop.yaml").write_text(loop)
    done = harness("--config-dir", "mine", *given.split(), "compare=lossy", "steps=1")
    assert done.code == 2 and NOWHERE[given] in done.out, done.out
    assert not (place / "runs").exists()
