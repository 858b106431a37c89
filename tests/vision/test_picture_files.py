"""Pictures from every kind of file, and what is wrong with some of them."""

import io
import struct
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

from regard.data.example_store import leave_out
from regard.errors import DataError
from regard.vision.picture_files import find_pictures, read_pictures
from tests.vision.conftest import picture


def read(path, sizes=(3, 12, 12)):
    """(name, class, pixels) of all, and what was said."""
    said = []
    return list(leave_out(read_pictures([str(path)], sizes), said.append)), said


def test_every_form_gives_the_same_pixels(folder, tmp_path):
    rows, said = read(folder)
    assert len(rows) == 30 and not said
    assert [label for _, label, _ in rows[:11]] == ["blue"] * 10 + ["green"]
    files = sorted(folder.rglob("*.png"))
    for ending in ("tar", "tar.xz", "tgz"):
        mode = {"tar": "w", "tar.xz": "w:xz", "tgz": "w:gz"}[ending]
        with tarfile.open(tmp_path / f"all.{ending}", mode) as archive:
            for file in files:
                archive.add(file, file.relative_to(folder))
    listed = [f"{file.relative_to(tmp_path)},{file.parent.name},x" for file in files]
    (tmp_path / "all.csv").write_text("\n".join(["file,label,note", *listed]) + "\n")
    (tmp_path / "all.tsv").write_text("\n".join("\t".join(x.split(",")[:2]) for x in listed))
    pixels = np.stack([np.asarray(Image.open(file)) for file in files])
    labels = np.array([file.parent.name for file in files])
    np.savez_compressed(tmp_path / "all.npz", images=pixels, labels=labels)
    for form in ("all.tar", "all.tar.xz", "all.tgz", "all.csv", "all.tsv", "all.npz"):
        others, said = read(tmp_path / form)
        assert not said and [row[1] for row in others] == [row[1] for row in rows], form
        assert all(np.array_equal(a[2], b[2]) for a, b in zip(rows, others, strict=True)), form


def test_modes_come_out_as_their_colours_say(tmp_path):
    """Grey, palette, 16 bits, alpha on white, and a turned JPEG, against values made by hand."""
    ramp = np.arange(16, dtype=np.uint8).reshape(4, 4) * 17
    Image.fromarray(ramp).save(tmp_path / "grey.png")
    Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / "deep.png")
    clear = np.zeros((4, 4, 4), np.uint8)
    clear[:2] = (255, 0, 0, 255)
    Image.fromarray(clear, "RGBA").save(tmp_path / "clear.png")
    turned = Image.fromarray(np.stack([ramp] * 3, -1))
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned right by a quarter
    turned.save(tmp_path / "turned.png", exif=exif)
    found = {name.split("/")[-1]: planes for name, _, planes in read(tmp_path, (3, 4, 4))[0]}
    grey = np.stack([ramp] * 3)
    assert np.array_equal(found["grey.png"], grey) and np.array_equal(found["deep.png"], grey)
    assert np.array_equal(found["turned.png"], np.rot90(grey, -1, (1, 2)))
    assert (found["clear.png"][:, :2] == np.array([255, 0, 0])[:, None, None]).all()
    assert (found["clear.png"][:, 2:] == 255).all()
    assert read(tmp_path / "grey.png", (1, 4, 4))[0][0][2].shape == (1, 4, 4)


def test_broken_pictures_are_named_and_left_out(folder):
    whole = (folder / "red/0.png").read_bytes()
    (folder / "red/0.png").write_bytes(whole[: len(whole) // 2])
    (folder / "red/1.png").write_bytes(b"no picture")
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = (
        struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )
    (folder / "red/2.png").write_bytes(whole[:8] + chunk + whole[33:])
    rows, said = read(folder)
    assert len(rows) == 27 and len(said) == 3
    assert [n for n in range(3) if f"red/{n}.png" in said[n]] == [0, 1, 2]
    assert "3600000000 pixels" in said[2]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.npz", b"PK", "images"),
        ("a.tar.xz", b"\xfd7zXZ\0", "a whole tar archive"),
        ("a.tar", b"not one", "a whole tar archive"),
    ],
)
def test_a_broken_container_stops(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=expected) as caught:
        list(find_pictures([str(tmp_path / name)]))
    assert name in str(caught.value)


def test_arrays_of_the_wrong_kind(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4)), labels=np.zeros(2))
    with pytest.raises(DataError, match=r"images \(2, 4, 4\) of float64"):
        list(find_pictures([str(tmp_path / "a.npz")]))


def test_shapes_are_shipped_and_balanced():
    labels = [label for _, label, _ in find_pictures(["shapes", "shapes-test"])]
    assert len(labels) == 1170 and len(set(labels)) == 9
    assert {labels.count(label) for label in labels} == {130}


def test_a_picture_keeps_its_bytes_through_an_archive_of_jpegs(tmp_path):
    data = io.BytesIO()
    picture((10, 200, 30)).save(data, "JPEG")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        info = tarfile.TarInfo("train/green/1.JPG")
        info.size = len(data.getvalue())
        archive.addfile(info, io.BytesIO(data.getvalue()))
    (row,), _ = read(tmp_path / "a.tar")
    expected = np.asarray(Image.open(io.BytesIO(data.getvalue())))
    assert row[1] == "green" and np.array_equal(row[2], expected.transpose(2, 0, 1))


def test_a_list_decides_what_is_read(folder):
    """In a folder with a list nothing is read twice; what is listed and nowhere is named."""
    (folder / "list.csv").write_text("file,label\nred/3.png,warm\nblue/9.png,cold\nno.png,cold\n")
    rows, said = read(folder)
    assert [row[1] for row in rows] == ["warm", "cold"] and len(said) == 1
    assert "no.png, line 4 of" in said[0] and "No such file" in said[0]
    by_name = [str(folder), str(folder / "green/0.png")]
    assert [label for _, label, _ in find_pictures(by_name)][2:] == ["green", "cold"]
