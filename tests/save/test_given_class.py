"""A format's class given straight from Python, without a YAML or a name to import it by."""

import pytest
import torch

import harness
from harness import given
from harness.save import Format, tensor_bytes, tensor_of

KEY = 0x55


class Masked(Format):
    """Every byte turned by a key that stands before all."""

    extension = "masked"

    def write(self, sink, stream):
        key = self.settings.key if hasattr(self.settings, "key") else KEY
        sink.write(bytes([key]))
        for _, tensor in stream:
            sink.write(bytes(byte ^ key for byte in bytes(tensor_bytes(tensor))))

    def read(self, source, wanted):
        key = source.exactly(1)[0]
        for name, row in wanted.items():
            data = bytes(byte ^ key for byte in source.exactly(row["nbytes"]))
            yield name, tensor_of(data, row)


@pytest.fixture
def state(monkeypatch):
    monkeypatch.setattr(given, "classes", {})
    return harness.capture_text(harness.load_model("tiny"), "let k be 5 .")


@pytest.mark.parametrize("options", [{}, {"key": 7}])
def test_a_class_writes_and_is_vouched_for_by_whoever_gives_it(state, tmp_path, options) -> None:
    manifest = harness.save_state(state, tmp_path / "a", format=Masked, **options)
    assert manifest["payload_target"] == f"{__name__}.Masked"
    payload = next(tmp_path.glob("a/*.masked")).read_bytes()
    assert payload[0] == options.get("key", KEY)
    back = harness.load_state(tmp_path / "a")
    assert torch.equal(back.layers[1].value, state.layers[1].value)
    given.classes.clear()  # as in another process
    with pytest.raises(harness.Untrusted, match="takes the class itself, as `format`"):
        harness.load_state(tmp_path / "a")
    back = harness.load_state(tmp_path / "a", format=Masked)
    assert torch.equal(back.layers[1].key, state.layers[1].key)


def test_a_class_of_a_script_is_read_by_the_class_of_its_name_alone(
    state, tmp_path, monkeypatch
) -> None:
    """Saved by a script itself, which is no module that another process could import, and kept in one later."""
    monkeypatch.setattr(Masked, "__module__", "__main__")
    assert (
        harness.save_state(state, tmp_path / "a", format=Masked)["payload_target"]
        == "__main__.Masked"
    )
    monkeypatch.setattr(Masked, "__module__", __name__)
    given.classes.clear()  # as in another process
    with pytest.raises(
        harness.Untrusted, match=r"Masked of a script .* give a class of that name"
    ) as told:
        harness.load_state(tmp_path / "a")
    assert "plugins.trust" not in str(told.value)
    back = harness.load_state(tmp_path / "a", format=Masked)
    assert torch.equal(back.layers[1].key, state.layers[1].key)
    given.classes.clear()

    class Other(Masked):
        """Of another name."""

    with pytest.raises(harness.Untrusted, match="give a class of that name"):
        harness.load_state(tmp_path / "a", format=Other)


def test_what_is_no_format_is_one_sentence(state, tmp_path) -> None:
    for wrong, said in (
        (int, "save: give the name of an option"),
        (5, "save: give the name of an option"),
        (Masked(), "save: this is an object of Masked, built already: give the class itself"),
    ):
        with pytest.raises(harness.ConfigProblem, match=said):
            harness.save_state(state, tmp_path / "a", format=wrong)
    with pytest.raises(harness.ConfigProblem, match="sync is 'x': give True or False"):
        harness.save_state(state, tmp_path / "a", format=Masked, sync="x")
    assert not (tmp_path / "a").exists()
