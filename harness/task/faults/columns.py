"""One fault, four columns, each measured with the other three switched off, and the plain script."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.capture import new_cache, positions_of, prefill
from harness.compare import diagnosis as compare
from harness.compare.diagnosis import Diagnosis
from harness.config import SaveConfig
from harness.errors import Altered, HarnessError, SnapshotInvalid, UnsupportedModel
from harness.fault.base import Fault
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.damage import aid_for, damaged
from harness.pipeline.diagnosis import diagnose, recompute
from harness.pipeline.restore import identity, proof
from harness.pipeline.session import Session
from harness.pipeline.testbed import Bed, Run, question, shown
from harness.save import store
from harness.save.assembly import segment_read
from harness.snapshot import manifest as manifests
from harness.snapshot.digest import digest_bytes, digest_tensor
from harness.snapshot.elements import ELEMENTS
from harness.snapshot.state import State
from harness.task.faults import plain

_BROKEN = (RuntimeError, ValueError, IndexError, TypeError, KeyError, AttributeError)


def measure(bed: Bed, fault: Fault, healthy: list[tuple], folder: Path) -> dict[str, Any]:
    """The row of `fault` on `bed`. `folder` is scratch space, emptied again. Mutates nothing else."""
    state = fault.state(bed.state, aid_for(bed.session, bed.state))
    watch = Watch()
    material, invalid, changed = _stored(state, fault, folder, watch)
    shutil.rmtree(folder, ignore_errors=True)
    row = {
        "fault": fault.name,
        "element": fault.element,
        "element_name": next((e.name for e in ELEMENTS if e.number == fault.element), "control"),
        "validation": bool(invalid),
        "digest": bool(changed),
    }
    said = [*invalid, *changed]
    if material is None:
        with watch("diagnosis"):
            diagnosis = compare.refusal((), said)
        known = {"identity": False, "logits": True, "proof": False, "verdict": "unreadable"}
        known |= causes(diagnosis, fault)
        rest: dict[str, Any] = {"plain": plain.ERROR, "shift": None, "strict": "refused"}
        return row | known | watch.seconds | rest | {"said": said[:3]}
    session, sampler = damaged(bed.session, fault, material.rng)
    with watch("identity"):
        differ = identity(session, material, sampler)
    inputs = fault.inputs(material)
    with watch("logits"):
        verdict, shift = logits_column(bed, session, inputs, sampler)
        unproven = _unproven(session, material)
    with watch("plain"):
        ran = plain_column(bed, session, inputs, sampler, healthy)
    with watch("diagnosis"):
        diagnosis = diagnosed(bed, session.loaded, inputs, differ, said)
    said += [str(d) for d in differ + unproven]
    outcome = {
        "identity": bool(differ),
        "logits": verdict in ("drifted", "diverged", "error") or bool(unproven),
        "plain": ran,
        "shift": shift,
        "proof": bool(unproven),
        "verdict": verdict,
        "strict": "refused" if said else verdict,
        "said": said[:3],
    }
    return row | watch.seconds | causes(diagnosis, fault) | outcome


def diagnosed(
    bed: Bed, loaded: Loaded, state: State, differ: list[Any], said: list[str]
) -> Diagnosis:
    """What the diagnosis of `state` says; a buffer that was computed anew once is not again."""
    mask = state.attention_mask
    key = (id(loaded), state.token_ids.numpy().tobytes(), mask.numpy().tobytes())
    usable = loaded is bed.session.loaded and mask.shape == state.token_ids.shape
    if usable and key not in bed.recomputed:
        bed.recomputed[key] = recompute(loaded, state.token_ids, mask)
    return diagnose(loaded, state, differ, said, right=bed.recomputed.get(key))


def causes(diagnosis: Diagnosis | None, fault: Fault) -> dict[str, Any]:
    """The cause that was named and the one that should be, with the evidence."""
    return {
        "cause": diagnosis.cause if diagnosis else "",
        "expected": fault.expected,
        "evidence": diagnosis.evidence if diagnosis else "",
    }


def _unproven(session: Session, state: State) -> list[Any]:
    """What the replay proof says; a model the state cannot even be handed to proves nothing."""
    try:
        return list(proof(session.loaded, state))
    except UnsupportedModel as refusal:
        return [refusal]


def logits_column(
    bed: Bed, session: Session, state: State, sampler: Sampler
) -> tuple[str, float | None]:
    """Verdict and shift with every check off: going on from the cache, and rebuilding it from the
    buffer, which is what the buffer is kept for. The worse of the two."""
    loaded = session.loaded
    try:
        decoder = build_decoder(loaded, state, session.cfg.cache)
        ids = question(loaded.tokenizer, state.tokens).repeat(state.batch, 1)
        again = Sampler(sampler.settings, session.cfg.seed, rng=sampler.rng)
        follow = torch.cat([ids, bed.reference.fed], dim=1)
        path = drive.drive(decoder, again, bed.steps, ids, follow=follow)
        run = shown(state.logits, path, ids.shape[1])
        verdict, shift = bed.verdict(run)
        rebuilt = _rebuilt(bed, loaded, state)
    except (HarnessError, *_BROKEN):
        return "error", None
    name, other = bed.verdict(rebuilt)
    if name in ("drifted", "diverged") and verdict != "diverged":
        verdict = name
    return verdict, max(shift, other)


def plain_column(
    bed: Bed, session: Session, state: State, sampler: Sampler, healthy: list[tuple]
) -> str:
    """What the plain script does with the same material, beside what it does with healthy material."""
    try:
        ran = plain.resume(bed, session.loaded, state, sampler.settings, sampler.rng)
    except (HarnessError, *_BROKEN):
        return plain.ERROR
    return plain.outcome(bed, healthy, ran)


def _rebuilt(bed: Bed, loaded: Loaded, state: State) -> Run:
    """The reference with its first row computed anew from the token buffer of `state`."""
    ids, mask = state.token_ids, state.attention_mask
    if ids.shape != mask.shape:
        mask = torch.ones_like(ids)
    last = prefill(loaded, ids, mask, positions_of(mask), new_cache(loaded))[:, -1]
    rows = bed.reference.shown[..., : last.shape[-1]].clone()
    rows[:, 0] = last[..., : rows.shape[-1]]
    return replace(bed.reference, shown=rows)


class Watch:
    """Seconds that each check takes: `with watch("identity"): ...` adds to `identity_s`."""

    def __init__(self) -> None:
        checks = ("validation", "digest", "identity", "logits", "plain", "diagnosis")
        self.seconds = dict.fromkeys([f"{check}_s" for check in checks], 0.0)

    @contextmanager
    def __call__(self, check: str) -> Iterator[None]:
        start = perf_counter()
        yield
        self.seconds[f"{check}_s"] += perf_counter() - start


def _stored(
    state: State, fault: Fault, folder: Path, watch: Watch
) -> tuple[State | None, list[str], list[str]]:
    """`(material, invalid, changed)`: what a reader without any check gets (None: nothing), what
    validation says once every digest has been made to fit, what the digests say."""
    try:
        store.save(
            state,
            folder,
            SaveConfig("safetensors", sync=False),
            access=store.current(overwrite=True),
        )
    except SnapshotInvalid as refused:
        return state, refused.faults, []
    fault.disk(folder)
    with watch("digest"):  # and validation, which a load does in the same breath
        problems = _refusal(folder)
    changed: list[str] = [f for f in problems if isinstance(f, Altered)]
    try:
        tensors, manifest = _raw(folder)
    except _BROKEN:
        return None, [f for f in problems if f not in changed], changed
    _reseal(folder, manifest, tensors)
    with watch("validation"):
        invalid = _refusal(folder)
    return _with(state, tensors, manifest), invalid, changed


def _refusal(folder: Path) -> list[str]:
    try:
        store.load(folder)
    except SnapshotInvalid as refused:
        return refused.faults
    return []


def _raw(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Every tensor as it lies on disk, unverified, and the manifest as it stands."""
    manifest = json.loads((folder / manifests.NAME).read_bytes())
    tensors = store.unverified(folder, manifest)
    return {name: tensor.clone() for name, tensor in tensors.items()}, manifest


def _reseal(folder: Path, manifest: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Make every digest fit what is there, so that only validation can object."""
    for row in manifest["tensors"]:
        row["digest"] = digest_tensor(tensors[row["name"]])
    for row in manifest["files"]:
        data = (folder / row["file"]).read_bytes()
        row["nbytes"], row["digest"] = len(data), digest_bytes(data[: row["covered"]])
    for row in manifest["tokenizer_files"]:
        row["digest"] = digest_bytes((folder / "tokenizer" / row["file"]).read_bytes())
    manifest["elements"] = manifests.element_rows(manifest["tensors"], manifest["documents"])
    manifest["id"] = manifests.identity(manifest)
    (folder / manifests.NAME).write_bytes(manifests.dump(manifest))


def _with(state: State, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> State:
    """`state` with its tensors and documents replaced by those that were read."""
    described = manifest["documents"]["kv_format"]["layers"]
    layers = tuple(
        replace(
            layer,
            segments=tuple(
                segment_read(entry, number, tensors) for number in range(len(layer.segments))
            ),
            recurrent=MappingProxyType(
                {part: tensors[f"layer.{layer.index}.{part}"] for part in layer.recurrent}
            ),
        )
        for layer, entry in zip(state.layers, described, strict=True)
    )
    return replace(
        state,
        layers=layers,
        documents=MappingProxyType(manifest["documents"]),
        token_ids=tensors["token_ids"],
        attention_mask=tensors["attention_mask"],
        next_position=tensors["next_position"],
        logits=tensors["logits"],
        rng=tensors["rng"],
    ).to(state.device)
