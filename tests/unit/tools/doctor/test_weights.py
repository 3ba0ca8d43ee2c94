import collections
import datetime
import pickle
import zipfile
from pathlib import Path

from shoal.tools.doctor.weights import foreign_classes


def checkpoint(path: Path, value: object, protocol: int, more: tuple[str, ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol))
        for name in more:
            archive.writestr(name, b"x")
    return path


def test_plain_values_carry_no_code(tmp_path: Path) -> None:
    value = collections.OrderedDict(a=[1, 2.0, "x"])

    assert [foreign_classes(checkpoint(tmp_path / "w.pt", value, protocol)) for protocol in (2, 4)] == [[], []]


def test_classes_of_others_are_named_in_every_protocol(tmp_path: Path) -> None:
    for protocol in (0, 2, 4, 5):
        assert foreign_classes(checkpoint(tmp_path / "w.pt", datetime.timedelta(1), protocol)) == ["datetime.timedelta"]


def test_torchscript_is_read_by_other_means(tmp_path: Path) -> None:
    script = checkpoint(tmp_path / "s.pt", datetime.timedelta(1), 2, ("archive/code/m.py",))

    assert foreign_classes(script) == []


def test_what_is_no_checkpoint_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(b"no zip")
    with zipfile.ZipFile(tmp_path / "y.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02garbage")

    assert foreign_classes(tmp_path / "x.pt") == []
    assert foreign_classes(tmp_path / "y.pt") == []
    assert foreign_classes(tmp_path / "none.pt") == []
